package wake

import (
	"container/heap"
	"time"
)

// Timed is something that has a time.
type Timed interface {
	When() time.Time
	// Place is for ByTime: 0 while the thing isn't there. It is in one ByTime at most.
	Place() *int
}

// ByTime holds things in the order of their times. The zero value is ready to use.
type ByTime[T Timed] struct{ things timed[T] }

// Put puts a thing in its place, also after its time has changed.
func (b *ByTime[T]) Put(x T) {
	if at := *x.Place(); at > 0 {
		heap.Fix(&b.things, at-1)
	} else {
		heap.Push(&b.things, x)
	}
}

// Remove removes a thing, if it is there.
func (b *ByTime[T]) Remove(x T) {
	if at := *x.Place(); at > 0 {
		heap.Remove(&b.things, at-1)
	}
}

// First returns the thing whose time comes first; false: nothing is there.
func (b *ByTime[T]) First() (first T, ok bool) {
	if len(b.things) == 0 {
		return first, false
	}
	return b.things[0], true
}

// Take takes out the first thing, if its time has come at now.
func (b *ByTime[T]) Take(now time.Time) (first T, ok bool) {
	if first, ok = b.First(); !ok || first.When().After(now) {
		return first, false
	}
	heap.Remove(&b.things, 0)
	return first, true
}

// timed implements heap.Interface. The place of a thing is its index and 1.
type timed[T Timed] []T

func (h timed[T]) Len() int           { return len(h) }
func (h timed[T]) Less(i, j int) bool { return h[i].When().Before(h[j].When()) }

func (h timed[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].Place(), *h[j].Place() = i+1, j+1
}

// Push adds a T.
func (h *timed[T]) Push(x any) {
	thing, _ := x.(T)
	*h = append(*h, thing)
	*thing.Place() = len(*h)
}

// Pop removes the last thing.
func (h *timed[T]) Pop() any {
	last := len(*h) - 1
	thing := (*h)[last]
	*h = (*h)[:last]
	*thing.Place() = 0
	return thing
}
