package ofi

// frames is the pool of the frames that a node sends: memory that the provider
// may read, each with the peer whose session keeps it. It is under Node.mu.
//
// A frame is given back when the peer has acknowledged it and the provider has
// completed every post of it.
type frames struct {
	all  []frame
	free []int32
}

type frame struct {
	b       []byte // frameSize
	n       int    // bytes used
	peer    *peer
	posts   int  // that the provider has not completed
	kept    bool // by a session, until it is acknowledged
	control bool // hello or ack: nobody keeps it
}

// reserved frames are for hellos and acks, so that these are never held up by data.
const reserved = 32

func (f *frames) take(p *peer, control bool) int32 {
	least := 0
	if !control {
		least = reserved
	}
	if len(f.free) <= least {
		return none
	}
	i := f.free[len(f.free)-1]
	f.free = f.free[:len(f.free)-1]
	f.all[i].n, f.all[i].peer, f.all[i].posts = headerSize, p, 0
	f.all[i].kept, f.all[i].control = !control, control
	return i
}

// release gives a frame back if nobody has it any more.
func (f *frames) release(i int32) {
	if fr := &f.all[i]; fr.posts == 0 && !fr.kept {
		fr.peer = nil
		f.free = append(f.free, i)
	}
}

// completed takes a completion of the provider.
func (f *frames) completed(n *Node, i int, failed bool) {
	if i >= len(f.all) || f.all[i].posts == 0 {
		return
	}
	fr := &f.all[i]
	p := fr.peer
	fr.posts--
	n.underWay--
	p.posts--
	if failed {
		p.failures++
	}
	f.release(int32(i))
	n.room(p)
	n.touch(p)
}

// none is an index of nothing.
const none int32 = -1
