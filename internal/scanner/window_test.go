package scanner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestAWindowIsNeverOverfull(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 50).Draw(t, "size")
		w := newWindow(size)
		var held []int
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "free") {
				w.free(held[0])
				held = held[1:]
				continue
			}
			want := rapid.IntRange(1, 60).Draw(t, "want")
			n, _ := w.try(want)
			if n > want {
				t.Fatalf("asked for %d, got %d", want, n)
			}
			if n > 0 {
				held = append(held, n)
			}
			if used := w.inUse(); used > size {
				t.Fatalf("%d places of %d are taken", used, size)
			}
		}
		for _, n := range held {
			w.free(n)
		}
		if n, _ := w.try(size); n != size {
			t.Fatalf("all is free, yet only %d of %d places were had", n, size)
		}
	})
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
	if n, _ := w.try(1); n != 1 {
		t.Fatal("no place though a byte is free")
	}
	w.carry(1)
	n, changed := w.try(1)
	if n != 0 {
		t.Fatal("a place though the payloads in flight are at their limit")
	}
	w.carry(-1)
	select {
	case <-changed:
	default:
		t.Fatal("waiters don't hear that a payload is done with")
	}
	if n, _ := w.try(1); n != 1 {
		t.Fatal("no place though a byte is free again")
	}
}
