package bare

import (
	"sync/atomic"
	"time"

	"exnet/cmd/dsbench/measure"
)

// A ping bounces a number between two words.
type ping struct {
	pair
	mine, theirs *atomic.Uint64
	seq          uint64
}

func newPing(role measure.Role, site *measure.Site, _ measure.Params) (measure.Half, error) {
	p := &ping{pair: pair{role, site}}
	p.mine, p.theirs = measure.Word(site.Shared, 0), measure.Word(site.Shared, measure.CacheLinePair)
	if role == measure.Follow {
		p.mine, p.theirs = p.theirs, p.mine
	}
	return p, nil
}

func (p *ping) Run(n int) (measure.Sample, error) {
	start := time.Now()
	for range n {
		p.seq++
		if p.role == measure.Lead {
			p.mine.Store(p.seq)
		}
		for p.theirs.Load() != p.seq {
			if p.site.Stopped() {
				return measure.Sample{}, measure.ErrStopped
			}
		}
		if p.role == measure.Follow {
			p.mine.Store(p.seq)
		}
	}
	return measure.Each(time.Since(start), n), nil
}
