package napi_test

import (
	"context"
	"fmt"
	"runtime"

	"exnet/napi"
)

// inbox is a channel of frames as a source. The sender rings a doorbell with each frame, which
// needs no masking, and arming only has to check for frames.
type inbox struct {
	frames chan string
	took   func(frame string)
}

func (b *inbox) Poll(budget int) (r napi.Result) {
	for r.Work < budget {
		select {
		case frame := <-b.frames:
			r.Work++
			r.Bytes += len(frame)
			b.took(frame)
		default:
			return r
		}
	}
	return r
}

func (b *inbox) Mask()     {}
func (b *inbox) Arm() bool { return len(b.frames) == 0 }

// A program without file descriptors sleeps on a Doorbell.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	in := &inbox{frames: make(chan string, 16)}
	in.took = func(frame string) {
		fmt.Println(frame)
		if frame == "bye" {
			cancel()
		}
	}

	engine, err := napi.New(napi.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	source, err := engine.Add(napi.Spec{Name: "inbox", Poller: in, Line: in})
	if err != nil {
		fmt.Println(err)
		return
	}
	bell := napi.NewDoorbell()

	go func() {
		for _, frame := range []string{"hello", "bye"} {
			in.frames <- frame
			bell.Ring(source)
		}
	}()
	fmt.Println(engine.Run(ctx, bell, runtime.Gosched))
	// Output:
	// hello
	// bye
	// context canceled
}
