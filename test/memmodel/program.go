package memmodel

// A Stmt is a statement of a process's program. Each statement that touches memory is one atomic
// step of the exploration. If, While, Set and Assert work only on variables and cost no step.
type Stmt interface{ compile(*compiler) }

type stmt func(*compiler)

func (s stmt) compile(c *compiler) { s(c) }

// Seq runs statements one after the other. A Go function uses it to return a piece of protocol.
func Seq(body ...Stmt) Stmt {
	return stmt(func(c *compiler) { c.block(body) })
}

// Rule marks a statement that obeys a rule of the protocol. A run "without" the rule gets the wrong
// statements in its place, or none. One rule may mark several places.
func Rule(name string, right Stmt, wrong ...Stmt) Stmt {
	return stmt(func(c *compiler) {
		c.rules[name] = true
		if name == c.without {
			c.block(wrong)
		} else {
			right.compile(c)
		}
	})
}

// Loads. The package comment says what they can return on each Memory.

// Load reads a word into a variable, with no order.
func Load(into Var, from Word) Stmt { return load(into, from, plain) }

// LoadAcquire reads a word into a variable. No later load of the process is satisfied before it.
func LoadAcquire(into Var, from Word) Stmt { return load(into, from, acquire) }

func load(into Var, from Word, o order) Stmt {
	return stmt(func(c *compiler) {
		c.add(instr{op: opLoad, dst: c.slot(into), at: from, order: o})
	})
}

// Expect reads a word, with no order, whose value must be want. The reader does not wait for the
// value. On Weak the load may still be under way when its later stores are visible, so a buffer
// that is returned too early is noticed.
func Expect[W Operand](from Word, want W) Stmt {
	return stmt(func(c *compiler) {
		c.add(instr{op: opLoad, dst: none, at: from, x: expr(want)})
	})
}

// Stores. Under TSO and Weak they enter the process's store buffer.

// Store writes a word, with no order.
func Store[V Operand](to Word, value V) Stmt { return store(to, expr(value), plain) }

// StoreRelease writes a word. All earlier loads and stores of the process come before it.
func StoreRelease[V Operand](to Word, value V) Stmt { return store(to, expr(value), release) }

func store(to Word, value Expr, o order) Stmt {
	return stmt(func(c *compiler) {
		c.add(instr{op: opStore, dst: none, at: to, x: value, order: o})
	})
}

// Fence is a full fence: atomic_thread_fence(memory_order_seq_cst), MFENCE, DMB ISH.
func Fence() Stmt {
	return stmt(func(c *compiler) { c.add(instr{op: opFence, dst: none}) })
}

// Exchange atomically writes value and reads what was there before. It is also a full fence.
func Exchange[V Operand](into Var, word Word, value V) Stmt {
	return stmt(func(c *compiler) {
		c.add(instr{op: opExchange, dst: c.slot(into), at: word, x: expr(value)})
	})
}

// CompareAndSwap writes value if the word holds old, atomically, and sets ok to 1 or 0. It is also
// a full fence.
func CompareAndSwap[O, V Operand](ok Var, word Word, old O, value V) Stmt {
	return stmt(func(c *compiler) {
		c.add(instr{op: opCompareAndSwap, dst: c.slot(ok), at: word, x: expr(value), old: expr(old)})
	})
}

// Events. The kernel's own locks order them: the Wait, Poll or Drain that a Ring satisfies sees
// what the ringing process stored before.

// Ring adds one to an event's counter: write(eventfd).
func Ring(e Event) Stmt {
	return stmt(func(c *compiler) { c.add(instr{op: opRing, dst: none, events: []uint8{e.id}}) })
}

// Wait sleeps until one of the events is not 0 and sets all of them to 0. It models epoll_wait on
// edge-triggered eventfds that are never read: every write is an edge, and a wake-up consumes all
// edges.
func Wait(events ...Event) Stmt { return sleep(opWait, events) }

// Poll sleeps until one of the events is not 0 and leaves them unchanged: poll, or a
// level-triggered epoll_wait.
func Poll(events ...Event) Stmt { return sleep(opPoll, events) }

func sleep(op opcode, events []Event) Stmt {
	return stmt(func(c *compiler) {
		in := instr{op: op, dst: none}
		for _, e := range events {
			in.events = append(in.events, e.id)
		}
		c.add(in)
	})
}

// Drain reads an event's counter into a variable and sets it to 0, without sleeping: read(eventfd),
// O_NONBLOCK.
func Drain(into Var, e Event) Stmt {
	return stmt(func(c *compiler) { c.add(instr{op: opDrain, dst: c.slot(into), events: []uint8{e.id}}) })
}

// Set computes a variable.
func Set[V Operand](v Var, value V) Stmt {
	return stmt(func(c *compiler) { c.add(instr{op: opSet, dst: c.slot(v), x: expr(value)}) })
}

// Assert ends the exploration with a counter-example if the condition is false.
func Assert(cond Expr, text string) Stmt {
	return stmt(func(c *compiler) { c.add(instr{op: opAssert, dst: none, x: cond, text: text}) })
}

// A Branch is an If that may still get its Else.
type Branch struct {
	cond            Expr
	then, otherwise []Stmt
}

// If runs the statements when the condition is true.
func If(cond Expr, then ...Stmt) Branch { return Branch{cond: cond, then: then} }

// Else completes an If.
func (b Branch) Else(otherwise ...Stmt) Stmt {
	b.otherwise = otherwise
	return b
}

func (b Branch) compile(c *compiler) {
	test := c.add(instr{op: opJump, dst: none, x: b.cond})
	c.block(b.then)
	leave := c.add(instr{op: opJump, dst: none, x: expr(1)})
	c.target(test, test+1, c.here())
	c.block(b.otherwise)
	c.target(leave, c.here(), c.here())
}

// While runs the statements as long as the condition is true.
func While(cond Expr, body ...Stmt) Stmt {
	return stmt(func(c *compiler) {
		test := c.add(instr{op: opJump, dst: none, x: cond})
		c.block(body)
		again := c.add(instr{op: opJump, dst: none, x: expr(1)})
		c.target(again, test, test)
		c.target(test, test+1, c.here())
	})
}

// Choose runs any one of the statements; the exploration follows all of them.
func Choose(choices ...Stmt) Stmt {
	return stmt(func(c *compiler) {
		fork := c.add(instr{op: opChoose, dst: none})
		var starts, leaves []int
		for _, choice := range choices {
			starts = append(starts, c.here())
			choice.compile(c)
			leaves = append(leaves, c.add(instr{op: opJump, dst: none, x: expr(1)}))
		}
		c.target(fork, starts...)
		for _, l := range leaves {
			c.target(l, c.here(), c.here())
		}
	})
}
