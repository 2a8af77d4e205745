package main

import (
	"log/slog"
	"net/netip"

	"exnet/directsockets/home"
	"exnet/exn/netns"
)

// homes registers the addresses of an interface, so that direct sockets find their
// peers across network namespaces. It does so beside the interface's loop, which must
// not wait for a file system. Without it connections stay on TCP, so what fails is
// logged and ends nothing.
type homes struct {
	news chan []netip.Addr // the latest list
	over chan struct{}
}

func newHomes(fabricDir, namespace string, log *slog.Logger) *homes {
	h := &homes{make(chan []netip.Addr, 1), make(chan struct{})}
	cookie, err := cookieOf(namespace)
	var r *home.Registration
	if err == nil {
		r, err = home.Register(fabricDir, cookie)
	}
	go func() {
		defer close(h.over)
		if err != nil {
			log.Warn("direct sockets will not cross this interface", "err", err)
			for range h.news {
			}
			return
		}
		for all := range h.news {
			if err := r.Hold(all); err != nil {
				log.Warn("direct sockets may not cross this interface", "err", err)
			}
		}
		if err := r.Close(); err != nil {
			log.Warn("cannot take back the addresses of direct sockets", "err", err)
		}
	}()
	return h
}

// held puts a list in place of one that has not been looked at. Only one goroutine
// may call it.
func (h *homes) held(all []netip.Addr) {
	for {
		select {
		case h.news <- all:
			return
		default:
		}
		select {
		case <-h.news:
		default:
		}
	}
}

// close takes all addresses back. The loop has ended.
func (h *homes) close() {
	close(h.news)
	<-h.over
}

// cookieOf names a network namespace; "" is that of this process.
func cookieOf(namespace string) (uint64, error) {
	if namespace == "" {
		namespace = "/proc/self/ns/net"
	}
	ns, err := netns.Open(namespace)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	return ns.Cookie()
}
