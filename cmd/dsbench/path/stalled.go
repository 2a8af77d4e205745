package path

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Of the nodes of Crowd, the ends are the first two.
const (
	crowd  = 4
	victim = 2 // the third
)

// Crowd is Exn with two more nodes, to which the first end sends a few datagrams as
// long as a load runs, small ones and large ones in turns. With stop, one of the two
// is stopped meanwhile.
func Crowd(daemon, name string, stop bool, args ...string) (*Path, error) {
	p, err := exnOf(crowd, (*Path).private, daemon, name, args...)
	if err != nil {
		return nil, err
	}
	p.Accompany = func() (func() error, error) { return p.trickle(stop) }
	return p, nil
}

// trickle starts the datagrams, and stops the victim once one has arrived there.
func (p *Path) trickle(stop bool) (end func() error, err error) {
	var sockets []*net.UDPConn
	shut := func() {
		for _, s := range sockets {
			s.Close()
		}
	}
	listen := func(i int) (s *net.UDPConn, err error) {
		err = p.ns[i].Do(func() (err error) {
			s, err = net.ListenUDP("udp", &net.UDPAddr{IP: address(i).Addr().AsSlice()})
			return err
		})
		if err == nil {
			sockets = append(sockets, s)
		}
		return s, err
	}
	from, err := listen(0)
	var to []*net.UDPAddr
	var at *net.UDPConn
	for i := len(p.Ends); i < crowd && err == nil; i++ {
		var s *net.UDPConn
		if s, err = listen(i); err == nil {
			to = append(to, s.LocalAddr().(*net.UDPAddr))
		}
		if i == victim {
			at = s
		}
	}
	if err != nil {
		shut()
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	over, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		const often = time.Millisecond
		tick := time.NewTicker(often)
		defer tick.Stop()
		message := make([]byte, 1400)
		for {
			for _, addr := range to {
				for _, size := range []int{50, len(message)} {
					_, _ = from.WriteToUDP(message[:size], addr) // what is lost is lost
				}
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	at.SetReadDeadline(time.Now().Add(patience))
	_, _, err = at.ReadFromUDP(make([]byte, 1)) // its address is known from now on
	if err == nil && stop {
		err = syscall.Kill(p.Daemons[victim], syscall.SIGSTOP)
	}
	end = func() error {
		close(over)
		done.Wait()
		shut()
		if stop {
			return syscall.Kill(p.Daemons[victim], syscall.SIGCONT)
		}
		return nil
	}
	if err != nil {
		return nil, fmt.Errorf("path %s: %w", p.Name, errors.Join(err, end()))
	}
	return end, nil
}
