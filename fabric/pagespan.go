package fabric

import "slices"

// A pageSpan is a run of page entries of the ATU.
type pageSpan struct{ start, n int }

// pageSpans are the free runs, in order and never touching each other.
type pageSpans []pageSpan

// take removes n entries from the first run that has them.
func (f *pageSpans) take(n int) (pageSpan, bool) {
	for i, s := range *f {
		if s.n < n {
			continue
		}
		if s.n == n {
			*f = slices.Delete(*f, i, i+1)
		} else {
			(*f)[i] = pageSpan{s.start + n, s.n - n}
		}
		return pageSpan{s.start, n}, true
	}
	return pageSpan{}, false
}

// give puts a run back and joins it with its neighbours.
func (f *pageSpans) give(s pageSpan) {
	if s.n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(*f, s, func(a, b pageSpan) int { return a.start - b.start })
	*f = slices.Insert(*f, i, s)
	if i+1 < len(*f) && s.start+s.n == (*f)[i+1].start {
		(*f)[i].n += (*f)[i+1].n
		*f = slices.Delete(*f, i+1, i+2)
	}
	if i > 0 && (*f)[i-1].start+(*f)[i-1].n == s.start {
		(*f)[i-1].n += (*f)[i].n
		*f = slices.Delete(*f, i, i+1)
	}
}
