package exn

import "exnet/exteth"

// A CaptureFrame is a frame as it crosses the fabric.
type CaptureFrame = exteth.CaptureFrame

// Capture calls f for each frame sent and received, on the loop's goroutine: f must be quick and
// must not block. Without captures a frame costs nothing extra. stop ends the capture, and f is not
// called after stop has returned.
func (i *Interface) Capture(f func(*CaptureFrame)) (stop func()) {
	var t *exteth.Tap
	i.ask(func() { t = i.eth.Tap(f) })
	return func() { i.ask(func() { i.eth.Untap(t) }) }
}

// Capture is [Interface.Capture] for one port.
func (r *Router) Capture(port int, f func(*CaptureFrame)) (stop func()) {
	return r.net.ports[port].link.Capture(f)
}
