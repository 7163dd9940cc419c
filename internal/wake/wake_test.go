package wake

import (
	"testing"
	"testing/synctest"
)

func TestABroadcastWakesEverybodyOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b Broadcast
		b.Fire() // nobody waits
		woken := make(chan int)
		for i := range 3 {
			next := b.Next()
			go func() {
				<-next
				woken <- i
			}()
		}
		synctest.Wait()
		b.Fire()
		for range 3 {
			<-woken
		}
		select {
		case <-b.Next():
			t.Fatal("a change is announced twice")
		default:
		}
	})
}

// TestASignalHoldsOneWakeUp: sending never blocks, and wake-ups that nobody received are
// one.
func TestASignalHoldsOneWakeUp(t *testing.T) {
	t.Parallel()
	s := NewSignal()
	for range 3 {
		s.Send()
	}
	if <-s; len(s) != 0 {
		t.Errorf("%d wake-ups are left", len(s))
	}
}
