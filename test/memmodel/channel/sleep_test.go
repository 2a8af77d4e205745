package channel

import . "exnet/test/memmodel"

// The rules of sleeping and waking. A model prefixes each with the process that must obey it:
// "waiter: second look".
const (
	epochFence   = ": fence between publishing the epoch and the second look"
	secondLook   = ": second look"
	ownEpoch     = ": each sleep has an epoch of its own"
	drainFirst   = ": the counter is drained before the rings are looked at"
	publishFirst = ": publishes, then reads the epoch"
	publishFence = ": fence between publishing and reading the epoch"
	ringOnce     = ": remembers the epoch it has rung"
)

// readiness is how the waiter learns from the kernel that an eventfd was rung.
type readiness int

const (
	edges   readiness = iota // EPOLLET: each write is an edge, and nobody reads the counter
	counter                  // level-triggered: the counter is read, which resets it
)

func (r readiness) String() string { return [...]string{"edges", "counter"}[r] }

// A sleeper is the waiter's half of the protocol.
type sleeper struct {
	who   string
	epoch Word // in memory that peers map read-only; odd means asleep
	how   readiness
	bells []Event

	mine  Var // the epoch last published
	count Var // what a drained counter held
}

func newSleeper(who string, p *Process, epoch Word, how readiness, bells ...Event) sleeper {
	return sleeper{who, epoch, how, bells, p.Var("mine"), p.Var("count")}
}

// sleep is what a waiter does after a look that found nothing. The second look is the same look
// again.
func (s sleeper) sleep(look Stmt, nothing Expr) Stmt {
	next := Seq(Set(s.mine, Add(s.mine, 1)), Store(s.epoch, s.mine))
	return Seq(
		Rule(s.who+ownEpoch, next, Set(s.mine, 1), Store(s.epoch, s.mine)),
		Rule(s.who+epochFence, Fence()),
		Rule(s.who+secondLook, look),
		If(nothing, s.wait()),
		next,
	)
}

func (s sleeper) wait() Stmt {
	if s.how == edges {
		return Wait(s.bells...)
	}
	var drain []Stmt
	for _, b := range s.bells {
		drain = append(drain, Drain(s.count, b))
	}
	return Rule(s.who+drainFirst,
		Seq(Poll(s.bells...), Seq(drain...)),
		Seq(drain...), Poll(s.bells...),
	)
}

// A ringer is the producer's half of the protocol.
type ringer struct {
	who   string
	epoch Word
	bell  Event

	seen Var // the epoch as read
	rung Var // the epoch last rung: private, so no peer can change it
}

func newRinger(who string, p *Process, epoch Word, bell Event) ringer {
	return ringer{who, epoch, bell, p.Var("seen"), p.Var("rung")}
}

// publish makes something visible and wakes the waiter if it sleeps.
func (r ringer) publish(what Stmt) Stmt {
	return Seq(
		Rule(r.who+publishFirst,
			Seq(what, Rule(r.who+publishFence, Fence()), Load(r.seen, r.epoch)),
			Load(r.seen, r.epoch), what),
		r.ring(),
	)
}

// ring wakes the waiter if the epoch seen says that it sleeps and has not been rung.
func (r ringer) ring() Stmt {
	ring := Seq(
		Assert(Ne(r.seen, r.rung), "an epoch is rung once"),
		Set(r.rung, r.seen),
		Ring(r.bell),
	)
	return Rule(r.who+ringOnce,
		If(And(Odd(r.seen), Ne(r.seen, r.rung)), ring),
		If(Odd(r.seen), ring))
}
