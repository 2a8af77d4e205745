package exn

import "exnet/exteth"

// A CaptureFrame is a frame as it crosses the fabric.
type CaptureFrame = exteth.CaptureFrame

// Capture calls f for each frame sent and received, on the loop's goroutine: it
// must be quick and must not block. It costs nothing while nobody captures.
// stop ends it; f is not called after stop has returned.
func (i *Interface) Capture(f func(*CaptureFrame)) (stop func()) {
	var t *exteth.Tap
	i.ask(func() { t = i.eth.Tap(f) })
	return func() { i.ask(func() { i.eth.Untap(t) }) }
}

// Capture is [Interface.Capture] of a port.
func (r *Router) Capture(port int, f func(*CaptureFrame)) (stop func()) {
	return r.net.ports[port].link.Capture(f)
}
