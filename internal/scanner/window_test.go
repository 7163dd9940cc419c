package scanner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// line is a window with those who have come, in the order in which they came.
type line struct {
	*window
	t       *rapid.T
	waiting []*waiter
	held    []int // places that were had and not given back
}

// needs is what must be free for somebody to be served.
func (l *line) needs(me *waiter) int { return max(1, min(me.want, l.size/4)) }

// look takes note of who was served, and holds the line to its rules: nobody is served
// before those in front, nor with more than it wants, and nobody is first in line while
// what it needs is free.
func (l *line) look() {
	var left []*waiter
	for _, me := range l.waiting {
		select {
		case n := <-me.places:
			if len(left) > 0 {
				l.t.Fatalf("served though %d stood in front", len(left))
			}
			if n < 1 || n > me.want {
				l.t.Fatalf("asked for %d, got %d", me.want, n)
			}
			l.held = append(l.held, n)
		default:
			left = append(left, me)
		}
	}
	l.waiting = left
	taken := 0
	for _, n := range l.held {
		taken += n
	}
	if used := l.inUse(); used != taken {
		l.t.Fatalf("%d places are taken, and it says %d", taken, used)
	}
	if len(left) > 0 && l.size-taken >= l.needs(left[0]) && l.bytes < windowBytes {
		l.t.Fatalf("the first in line wants %d and waits, with %d of %d free", left[0].want, l.size-taken, l.size)
	}
}

func TestAWindowServesInOrderWhatThereIsRoomFor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &line{window: newWindow(rapid.IntRange(1, 50).Draw(t, "size")), t: t}
		carried := 0
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { l.look() },
			"come": func(t *rapid.T) {
				before := l.inUse()
				l.waiting = append(l.waiting, l.join(rapid.IntRange(1, 60).Draw(t, "want")))
				if used := l.inUse(); used > before && used > l.size {
					t.Fatalf("%d places of %d are taken", used, l.size)
				}
			},
			"go": func(t *rapid.T) {
				if len(l.waiting) == 0 {
					t.Skip("nobody waits")
				}
				at := rapid.IntRange(0, len(l.waiting)-1).Draw(t, "who")
				me := l.waiting[at]
				l.waiting = append(l.waiting[:at:at], l.waiting[at+1:]...)
				l.leave(me)
			},
			"free": func(t *rapid.T) {
				if len(l.held) == 0 {
					t.Skip("nothing is taken")
				}
				l.free(l.held[0])
				l.held = l.held[1:]
			},
			"resize": func(t *rapid.T) { l.resize(rapid.IntRange(1, 50).Draw(t, "size")) },
			"carry": func(t *rapid.T) {
				before := carried
				carried = rapid.SampledFrom([]int{0, windowBytes - 1, windowBytes}).Draw(t, "bytes")
				l.carry(carried - before)
			},
		})
	})
}

// TestWhoLeavesTheLineLetsTheNextOneIn: the tick of the first in line ends, and what
// it waited for is more than the next one needs.
func TestWhoLeavesTheLineLetsTheNextOneIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(100)
		if n, err := w.reserve(t.Context(), 90); n != 90 || err != nil {
			t.Fatalf("an empty window of 100 gave %d, %v", n, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan int, 1)
		go func() {
			_, err := w.reserve(ctx, 50)
			first <- err
		}()
		synctest.Wait()
		go func() {
			n, _ := w.reserve(t.Context(), 5)
			second <- n
		}()
		synctest.Wait()
		if len(second) > 0 {
			t.Fatal("the second in line was served before the first")
		}
		leave()
		if err := <-first; err == nil {
			t.Error("served after it left")
		}
		if n := <-second; n != 5 {
			t.Errorf("the second in line got %d places, want 5 of 10", n)
		}
	})
}

// TestWhoIsServedWhileItLeavesGivesItBack: its tick ended in the moment in which its
// turn came.
func TestWhoIsServedWhileItLeavesGivesItBack(t *testing.T) {
	t.Parallel()
	w := newWindow(10)
	w.leave(w.join(10))
	if next := w.join(10); len(next.places) != 1 {
		t.Error("places are taken that nobody has")
	}
}

func TestAFullWindowWaitsForAQuarter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(100)
		if n, err := w.reserve(t.Context(), 500); n != 100 || err != nil {
			t.Fatalf("an empty window of 100 gave %d, %v", n, err)
		}
		got := make(chan int, 1)
		go func() {
			n, _ := w.reserve(t.Context(), 500)
			got <- n
		}()
		w.free(24)
		synctest.Wait()
		select {
		case n := <-got:
			t.Fatalf("%d places reserved with 24 free: claims get tiny", n)
		default:
		}
		w.free(1)
		if n := <-got; n != 25 {
			t.Fatalf("reserved %d of 25 free places", n)
		}
	})
}

func TestAWaitForTheWindowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(1)
		if _, err := w.reserve(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, err := w.reserve(ctx, 1); err == nil {
			t.Fatalf("reserved %d in a full window", n)
		}
	})
}

func TestAWindowThatGrowsLetsWaitersIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(1)
		if _, err := w.reserve(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		got := make(chan int, 1)
		go func() {
			n, _ := w.reserve(t.Context(), 10)
			got <- n
		}()
		synctest.Wait()
		w.resize(11)
		if n := <-got; n != 10 {
			t.Fatalf("reserved %d of 10 new places", n)
		}
	})
}

func TestAWindowIsFullOfBytesToo(t *testing.T) {
	t.Parallel()
	w := newWindow(100)
	w.carry(windowBytes - 1)
	if len(w.join(1).places) != 1 {
		t.Fatal("no place though a byte is free")
	}
	w.carry(1)
	next := w.join(1)
	if len(next.places) != 0 {
		t.Fatal("a place though the payloads in flight are at their limit")
	}
	w.carry(-1)
	if len(next.places) != 1 {
		t.Fatal("no place though a byte is free again")
	}
}
