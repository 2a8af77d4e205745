package channel

import (
	"fmt"
	"testing"

	. "exnet/test/memmodel"
)

const (
	statusRelease = "producer: the status word is written with release order"
	inCredit      = "producer: no more slots in use than there are"
	lapParity     = "producer and consumer: the valid bit changes with each lap"
	blockedFirst  = "producer: says blocked before the second look at the credit"
	afterEpoch    = "producer: looks at the credit after publishing the epoch, not only after saying blocked"
	statusAcquire = "consumer: the status word is read with acquire order"
	creditRelease = "consumer: the credit is returned with release order"
	creditLast    = "consumer: the credit is returned after the payload was read"
	creditFirst   = "consumer: returns the credit, then reads blocked"
	creditFence   = "consumer: fence between returning the credit and reading blocked"
)

// credit is a bounded ring of slots with everything that moves a message: payload, status word,
// credit, and the sleep of both sides. Message n carries n, so the consumer knows what it must
// find.
//
//	producer                                consumer
//	  out of credit:                          status word of the next slot valid?
//	    blocked := 1                            read the payload
//	    sleep, looking at the credit            credit := messages taken
//	    blocked := 0                            fence
//	  payload := message                        blocked?
//	  status word := valid                        epoch odd, not yet rung: ring
//	  fence                                     else sleep, looking at the status word
//	  epoch odd, not yet rung: ring
//
// While nobody waits for credit, blocked saves the consumer from reading the epoch, which is in
// another cache line. The producer reads the credit without acquire order: the machine lets no
// store overtake the branch on it. C and Go still use acquire.
func credit(slots, messages int, how readiness) *Model {
	m := New(fmt.Sprintf("credit: %d messages through %d slots, %s", messages, slots, how))

	// In the consumer's memory: written by the producer, or read-only for it.
	payload, status := m.Array("payload", slots), m.Array("status", slots)
	returned, consumerEpoch := m.Word("credit", 0), m.Word("consumer's epoch", 0)
	// In the producer's memory: read-only for the consumer.
	blocked, producerEpoch := m.Word("blocked", 0), m.Word("producer's epoch", 0)
	messageBell, creditBell := m.Event("message bell"), m.Event("credit bell")

	// The status word of a slot is valid if it is 1 in lap 0, 0 in lap 1, and so on.
	valid := func(n Var) Expr { return Mod(Add(Div(n, slots), 1), 2) }

	producer := m.Process("producer")
	{
		sent, got := producer.Var("sent"), producer.Var("credit")
		limit, mark := producer.Var("limit"), producer.Var("mark")
		s := newSleeper("producer", producer, producerEpoch, how, creditBell)
		r := newRinger("producer", producer, consumerEpoch, messageBell)
		slot, full := Mod(sent, slots), Eq(Sub(sent, got), limit)
		look := Load(got, returned)
		producer.Does(
			Rule(inCredit, Set(limit, slots), Set(limit, slots+1)),
			While(Lt(sent, messages),
				While(full,
					look,
					If(full,
						Rule(afterEpoch,
							Seq(
								Rule(blockedFirst, Store(blocked, 1)),
								s.sleep(Seq(look, Rule(blockedFirst, Seq(), Store(blocked, 1))), full),
							),
							Store(blocked, 1), Fence(), look,
							If(full, s.sleep(Seq(), full)),
						),
						Store(blocked, 0),
					),
				),
				Rule(lapParity, Set(mark, valid(sent)), Set(mark, 1)),
				r.publish(Seq(
					Store(At(payload, slot), Add(sent, 1)),
					Rule(statusRelease, StoreRelease(At(status, slot), mark), Store(At(status, slot), mark)),
				)),
				Set(sent, Add(sent, 1)),
			),
		)
	}

	consumer := m.Process("consumer")
	{
		taken, word := consumer.Var("taken"), consumer.Var("status")
		mark, waits := consumer.Var("mark"), consumer.Var("blocked")
		s := newSleeper("consumer", consumer, consumerEpoch, how, messageBell)
		r := newRinger("consumer", consumer, producerEpoch, creditBell)
		slot, empty := Mod(taken, slots), Ne(word, mark)
		look := Rule(statusAcquire, LoadAcquire(word, At(status, slot)), Load(word, At(status, slot)))
		read := Expect(At(payload, slot), Add(taken, 1))
		give := Rule(creditRelease, StoreRelease(returned, Add(taken, 1)), Store(returned, Add(taken, 1)))
		consumer.Does(While(Lt(taken, messages),
			Rule(lapParity, Set(mark, valid(taken)), Set(mark, 1)),
			look,
			If(empty,
				s.sleep(look, empty),
			).Else(
				Rule(creditFirst,
					Seq(
						Rule(creditLast, Seq(read, give), give, read),
						Rule(creditFence, Fence()),
						Load(waits, blocked),
					),
					Load(waits, blocked), read, give, Fence(),
				),
				If(Ne(waits, 0),
					Load(r.seen, r.epoch),
					r.ring(),
				),
				Set(taken, Add(taken, 1)),
			),
		))
	}
	return m
}

func TestVEL4Credit(t *testing.T) {
	holds(t, credit(1, 3, edges), credit(1, 3, counter), credit(2, 5, edges))
}

func TestVEL4CreditNeedsItsRules(t *testing.T) {
	needs(t, []rule{
		{statusRelease, Weak, damaged},
		{inCredit, SC, damaged},
		{lapParity, SC, damaged},
		{blockedFirst, SC, lost},
		{afterEpoch, SC, lost},
		{"producer" + epochFence, TSO, lost},
		{"producer" + secondLook, SC, lost},
		{"producer" + ownEpoch, SC, lost},
		{"producer" + publishFirst, SC, lost},
		{"producer" + publishFence, TSO, lost},
		{"producer" + ringOnce, SC, "an epoch is rung once"},
		{statusAcquire, Weak, damaged},
		{creditRelease, Weak, damaged},
		{creditLast, SC, damaged},
		{creditFirst, SC, lost},
		{creditFence, TSO, lost},
		{"consumer" + epochFence, TSO, lost},
		{"consumer" + secondLook, SC, lost},
		{"consumer" + ownEpoch, SC, lost},
		{"consumer" + ringOnce, SC, "an epoch is rung once"},
	}, credit(1, 3, edges), credit(2, 4, edges))
}
