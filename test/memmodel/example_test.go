package memmodel_test

import (
	"fmt"

	. "exnet/test/memmodel"
)

// A producer publishes one message. A waiter that finds none publishes that it sleeps, and sleeps.
// Each publishes a word and then reads the other's. Without the fence the producer reads too early,
// and the waiter is never woken. No interleaving of the statements shows that; it takes a store
// buffer.
func Example() {
	m := New("wake")
	message, asleep, bell := m.Word("message", 0), m.Word("asleep", 0), m.Event("bell")

	producer := m.Process("producer")
	sleeping := producer.Var("sleeping")
	producer.Does(
		Store(message, 1),
		Rule("fence before asking who sleeps", Fence()),
		Load(sleeping, asleep),
		If(Eq(sleeping, 1), Ring(bell)),
	)

	waiter := m.Process("waiter")
	found := waiter.Var("found")
	waiter.Does(
		LoadAcquire(found, message),
		If(Eq(found, 0),
			Store(asleep, 1),
			Fence(),
			Rule("second look", LoadAcquire(found, message)),
			If(Eq(found, 0), Wait(bell)),
		),
	)

	for _, run := range []Run{
		{Memory: TSO},
		{Memory: SC, Without: "fence before asking who sleeps"},
		{Memory: TSO, Without: "fence before asking who sleeps"},
	} {
		result, err := m.Explore(run)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result)
	}
	// Output:
	// wake, TSO: 21 states, 25 steps, depth 6: holds
	// wake, SC, without "fence before asking who sleeps": 21 states, 25 steps, depth 6: holds
	// wake, TSO, without "fence before asking who sleeps": 26 states, 35 steps, depth 5: asleep for ever: waiter at wait bell
	//   producer  message := 1               into its store buffer
	//   producer  sleeping = asleep: 0
	//   waiter    found = message: 0
	//   waiter    asleep := 1                into its store buffer
	//   waiter      asleep := 1 is visible
	//   waiter    fence
	//   waiter    found = message: 0
	//   producer    message := 1 is visible
	//   memory in the end: message=1 asleep=1
}
