package exteth

import "time"

// orderFrames bounds the frames of one source that wait behind one being fetched. It covers all
// adverts that can be outstanding, and as many small frames between them.
const orderFrames = 128

type orderState uint8

const (
	orderAdvert   orderState = iota // to be fetched as soon as the fabric has room
	orderFetching                   // the GET is under way
	orderFetched                    // the frame is in its sink
	orderEager                      // the frame is in data
	orderFailed
)

// An ordered frame waits for its turn.
type ordered struct {
	state  orderState
	slot   uint32
	advert advert
	sink   *Buffer
	vnet   VNet   // of an eager frame
	data   []byte // of an eager frame
	since  time.Duration
}

// An orderQueue keeps the frames of one source in the order in which they were sent (RDV-4). It is
// empty unless its first frame is still being fetched.
type orderQueue struct {
	frames []ordered
	first  uint32 // slot numbers are never reused, so a late result cannot hit a later frame
	n      uint32
}

func (q *orderQueue) head() *ordered { return &q.frames[q.first%orderFrames] }

// at returns the frame in a slot, or nil when it is gone.
func (q *orderQueue) at(slot uint32) *ordered {
	if slot-q.first >= q.n {
		return nil
	}
	return &q.frames[slot%orderFrames]
}

// pushOrder appends an entry. If the queue is full it counts that and returns nil.
func (e *Engine) pushOrder(p *peer, now time.Duration) *ordered {
	q := &p.order
	if q.n == orderFrames {
		e.stats.count(RXOrderFull)
		return nil
	}
	if q.frames == nil {
		q.frames = make([]ordered, orderFrames)
	}
	slot := q.first + q.n
	q.n++
	o := &q.frames[slot%orderFrames]
	*o = ordered{slot: slot, since: now}
	e.watch(p)
	return o
}

// orderEager keeps a copy of a frame until its turn.
func (e *Engine) orderEager(p *peer, data []byte, v VNet, now time.Duration) {
	o := e.pushOrder(p, now)
	if o == nil {
		return
	}
	var b []byte
	if n := len(e.small); n > 0 {
		b, e.small = e.small[n-1], e.small[:n-1]
	} else {
		b = make([]byte, 0, maxFragments*Fragment)
	}
	o.state, o.vnet, o.data = orderEager, v, append(b, data...)
}

// popOrder removes the head and releases what it held.
func (e *Engine) popOrder(p *peer) {
	o := p.order.head()
	if o.sink != nil {
		e.sinks.release(o.sink)
	}
	if o.data != nil {
		e.small = append(e.small, o.data[:0])
	}
	*o = ordered{}
	p.order.first++
	p.order.n--
}

// deliver passes up the frames that are ready, in order, and starts the GETs that can be started.
func (e *Engine) deliver(p *peer, now time.Duration) {
	for p.order.n > 0 {
		o := p.order.head()
		if o.state == orderAdvert && !e.fetch(p, o, now) {
			if now-o.since < e.cfg.Timeout {
				return
			}
			e.stats.count(RXTimeout)
			e.nack(p, o.advert)
			o.state = orderFailed
		}
		switch o.state {
		case orderFetching:
			e.fetchAhead(p, now)
			return
		case orderFetched:
			e.up(p, o.sink.Bytes[:o.advert.length], o.advert.vnet, true)
		case orderEager:
			e.up(p, o.data, o.vnet, false)
		}
		e.popOrder(p)
	}
}

// fetch starts the GET of the head.
func (e *Engine) fetch(p *peer, o *ordered, now time.Duration) bool {
	if e.inPlace == nil {
		return e.startGet(p, o, now)
	}
	if !e.getInPlace(p, o.advert) {
		return false
	}
	o.state = orderFailed // finished, well or badly: nothing is left to pass up
	return true
}

// fetchAhead starts GETs for frames behind the head, so that fetches overlap.
func (e *Engine) fetchAhead(p *peer, now time.Duration) {
	for i := uint32(1); i < p.order.n; i++ {
		if o := p.order.at(p.order.first + i); o.state == orderAdvert && !e.startGet(p, o, now) {
			return
		}
	}
}
