package balance

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTheLastMinuteIsTheLast: ten tasks a second for two minutes, each as late as the
// seconds since the start. The rate is ten a second, and the median is the last minute's
// alone. A minute after the last task nothing is reported or kept.
func TestTheLastMinuteIsTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := NewLastMinute()
		var n TopicNote
		for second := range 120 {
			for range 10 {
				m.Forwarded(time.Now(), time.Duration(second)*time.Second)
				time.Sleep(100 * time.Millisecond)
			}
			if n = (TopicNote{}); second >= 4 {
				m.AddTo(&n)
				if n.PerSecond < 9 || n.PerSecond > 11 {
					t.Fatalf("after %d s: %v a second", second+1, n.PerSecond)
				}
			}
		}
		if median := n.Lateness.Quantile(.5); median < 80*time.Second || median > 110*time.Second {
			t.Errorf("median of tasks that were 60 to 120 s late: %v", median)
		}
		time.Sleep(time.Minute + minuteSlot)
		n = TopicNote{}
		if m.AddTo(&n); !n.IsZero() {
			t.Errorf("a minute later: %+v", n)
		}
		for _, s := range m.ring {
			if s.by != nil {
				t.Error("an idle topic keeps its counts")
			}
		}
		m.Forwarded(time.Now(), time.Hour)
		if m.AddTo(&n); n.PerSecond == 0 {
			t.Error("nothing is counted after that")
		}
		time.Sleep(40 * time.Second)
		m.Forwarded(time.Now(), 0)
		time.Sleep(30 * time.Second) // nothing has replaced the first one's slot since
		if m.AddTo(&n); n.Lateness.Quantile(1) > time.Millisecond {
			t.Errorf("the latest of the last minute was late by %v, want that of 30 s ago", n.Lateness.Quantile(1))
		}
	})
}
