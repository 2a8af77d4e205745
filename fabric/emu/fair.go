package emu

// fair is a queue of queues: items of one source leave in order, and the sources take turns.
type fair[K comparable, T any] struct {
	queues map[K][]T
	turns  []K // sources with items
}

func (f *fair[K, T]) push(k K, item T) {
	if f.queues == nil {
		f.queues = make(map[K][]T)
	}
	if len(f.queues[k]) == 0 {
		f.turns = append(f.turns, k)
	}
	f.queues[k] = append(f.queues[k], item)
}

func (f *fair[K, T]) pop() (k K, item T, ok bool) {
	if len(f.turns) == 0 {
		return k, item, false
	}
	k = f.turns[0]
	f.turns = f.turns[1:]
	q := f.queues[k]
	if item = q[0]; len(q) > 1 {
		f.queues[k] = q[1:]
		f.turns = append(f.turns, k)
	} else {
		delete(f.queues, k)
	}
	return k, item, true
}

func (f *fair[K, T]) empty() bool { return len(f.turns) == 0 }
