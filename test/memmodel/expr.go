package memmodel

import (
	"fmt"
	"strings"
)

// A Var is a variable of one process. No other process sees it, and it costs no memory access. It
// holds a byte and starts at 0.
type Var struct {
	name  string
	owner int   // index of the process
	slot  uint8 // index among that process's variables
}

// An Expr computes a byte from the variables of one process. As a condition, anything but 0 is
// true.
type Expr struct {
	text string
	// set of variable slots that it reads; a delayed load of one must arrive before it is
	// evaluated
	uses uint32
	// set of processes whose variables it reads; more than one is a mistake in the model
	owners uint32
	copy   bool // it is just a variable
	wide   bool // a constant in it does not fit a byte
	eval   func(*vars) uint8
}

type vars = [maxVars]uint8

// Operand is what an operator accepts: a constant 0..255, a variable, or an expression.
type Operand interface{ int | Var | Expr }

func expr[T Operand](operand T) Expr {
	switch x := any(operand).(type) {
	case int:
		c := uint8(x)
		return Expr{text: fmt.Sprint(x), wide: int(c) != x, eval: func(*vars) uint8 { return c }}
	case Var:
		return Expr{text: x.name, copy: true, uses: 1 << x.slot, owners: 1 << x.owner, eval: func(v *vars) uint8 { return v[x.slot] }}
	default:
		return x.(Expr)
	}
}

func binary[A, B Operand](left A, op string, right B, f func(a, b uint8) uint8) Expr {
	a, b := expr(left), expr(right)
	return Expr{
		text:   fmt.Sprintf("%s %s %s", a.term(), op, b.term()),
		uses:   a.uses | b.uses,
		owners: a.owners | b.owners,
		wide:   a.wide || b.wide,
		eval:   func(v *vars) uint8 { return f(a.eval(v), b.eval(v)) },
	}
}

// term returns the text of an expression inside a larger one.
func (e Expr) term() string {
	if strings.Contains(e.text, " ") {
		return "(" + e.text + ")"
	}
	return e.text
}

func truth(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// Add returns a + b modulo 256.
func Add[A, B Operand](a A, b B) Expr {
	return binary(a, "+", b, func(a, b uint8) uint8 { return a + b })
}

// Sub returns a - b modulo 256.
func Sub[A, B Operand](a A, b B) Expr {
	return binary(a, "-", b, func(a, b uint8) uint8 { return a - b })
}

// Div returns a / b, or a if b is 0.
func Div[A, B Operand](a A, b B) Expr {
	return binary(a, "/", b, func(a, b uint8) uint8 { return a / max(b, 1) })
}

// Mod returns a % b, or 0 if b is 0.
func Mod[A, B Operand](a A, b B) Expr {
	return binary(a, "%", b, func(a, b uint8) uint8 { return a % max(b, 1) })
}

// Eq returns 1 if a == b, else 0.
func Eq[A, B Operand](a A, b B) Expr {
	return binary(a, "==", b, func(a, b uint8) uint8 { return truth(a == b) })
}

// Ne returns 1 if a != b, else 0.
func Ne[A, B Operand](a A, b B) Expr {
	return binary(a, "!=", b, func(a, b uint8) uint8 { return truth(a != b) })
}

// Lt returns 1 if a < b, else 0.
func Lt[A, B Operand](a A, b B) Expr {
	return binary(a, "<", b, func(a, b uint8) uint8 { return truth(a < b) })
}

// And returns 1 if neither a nor b is 0, else 0.
func And[A, B Operand](a A, b B) Expr {
	return binary(a, "&&", b, func(a, b uint8) uint8 { return truth(a != 0 && b != 0) })
}

// Not returns 1 if a is 0, else 0.
func Not[A Operand](a A) Expr {
	e := Eq(a, 0)
	e.text = "!" + expr(a).term()
	return e
}

// Odd returns Mod(a, 2). For a sleep epoch that means "asleep".
func Odd[A Operand](a A) Expr { return Mod(a, 2) }
