package wake

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestChoresRunTogether: chores that last for different times begin at the same moments, once in
// each of their intervals. Other processes have other moments.
func TestChoresRunTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const beat = Beat(300 * time.Millisecond)
		began := time.Now().Truncate(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		runs := make(chan time.Duration)
		for _, lasts := range []time.Duration{0, 10 * time.Millisecond, 999 * time.Millisecond, 1500 * time.Millisecond} {
			go func() {
				for {
					select {
					case <-ctx.Done():
						runs <- 0
						return
					case <-time.After(beat.Until(time.Second)):
					}
					runs <- time.Since(began)
					<-time.After(lasts)
				}
			}()
		}
		counts := map[time.Duration]int{}
		for ended := 0; ended < 4; {
			at := <-runs
			if at == 0 {
				ended++
				continue
			}
			counts[at]++
			if at%time.Second != time.Duration(beat) {
				t.Errorf("a chore ran at %v", at)
			}
		}
		if len(counts) != 60 || counts[300*time.Millisecond] != 4 || counts[1300*time.Millisecond] != 3 {
			t.Errorf("got %v", counts)
		}
	})
}

// TestBeatsDiffer: they are spread over a second.
func TestBeatsDiffer(t *testing.T) {
	t.Parallel()
	const parts = 4
	var in [parts]bool
	for range 1000 {
		in[int(NewBeat())*parts/int(time.Second)] = true
	}
	if in != [parts]bool{true, true, true, true} {
		t.Errorf("got %v", in)
	}
}
