package harness

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

func TestATaskTellsItsNumberAndItsDueTime(t *testing.T) {
	due := time.UnixMilli(1796119200123)
	task := NewTask(4711, due)
	if len(task.ID()) != 18 || len(task.Payload) != 200 {
		t.Errorf("an ID of %d bytes and a payload of %d", len(task.ID()), len(task.Payload))
	}
	n, err := numberOf(task.ID())
	if n != 4711 || err != nil {
		t.Errorf("number %d: %v", n, err)
	}
	got, err := dueOf(task.Payload)
	if !got.Equal(due) || err != nil {
		t.Errorf("due %s: %v", got, err)
	}
}

func TestEarlyAndRepeatedArrivalsStandInNoPercentile(t *testing.T) {
	a := NewArrivals()
	due := time.Now()
	arrive := func(number int, late time.Duration, headers amqp.Table) {
		task := NewTask(number, due)
		a.handle(fleet.Delivery{At: due.Add(late), Delivery: amqp.Delivery{MessageId: task.ID(), Body: task.Payload,
			Headers: headers}})
	}
	arrive(1, 2*time.Millisecond, nil)
	arrive(2, -time.Microsecond, nil)
	arrive(1, time.Hour, nil)
	arrive(3, 10*time.Millisecond, amqp.Table{headerDue: due.UnixMilli() + 8})
	a.handle(fleet.Delivery{At: due, Delivery: amqp.Delivery{MessageId: "x"}})
	s := a.Summary()
	if s.Arrived != 3 || s.Early != 1 || s.Repeated != 1 || s.Strange != 1 {
		t.Errorf("got %+v", s)
	}
	if most := a.Percentile(100); most < 2 || most > 3.1 {
		t.Errorf("the largest lateness is %v ms", most)
	}
}

func TestWhatIsDueWhileALoadRisesOrFallsStandsInNoPercentile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewArrivals()
		arrive := func(number int, due time.Time, late time.Duration) {
			task := NewTask(number, due)
			a.handle(fleet.Delivery{At: due.Add(late), Delivery: amqp.Delivery{MessageId: task.ID(), Body: task.Payload}})
		}
		now := time.Now() // the bubble's clock, which stands still
		rising, falling := now.Add(-time.Millisecond), now.Add(time.Millisecond)
		arrive(1, rising, time.Minute)
		a.Begin()
		arrive(2, rising, time.Minute)
		arrive(3, now, 5*time.Millisecond)
		arrive(4, now, -time.Millisecond)
		a.End()
		arrive(5, now, 7*time.Millisecond)
		arrive(6, falling, time.Minute)
		s := a.Summary()
		if s.Arrived != 6 || s.Early != 1 {
			t.Errorf("all count as arrived, got %+v", s)
		}
		if most := a.Percentile(100); a.Counted() != 2 || most < 7 || most > 7.1 {
			t.Errorf("%d stand in the percentiles, the largest lateness is %v ms", a.Counted(), most)
		}
	})
}

func TestTasksOfAnotherLoadAreNotCounted(t *testing.T) {
	a := NewArrivals()
	a.from = 100
	for _, number := range []int{99, 100, 101} {
		task := NewTask(number, time.Now())
		a.handle(fleet.Delivery{At: task.Due, Delivery: amqp.Delivery{MessageId: task.ID(), Body: task.Payload}})
	}
	if s := a.Summary(); s.Arrived != 2 || s.Strange != 0 {
		t.Errorf("got %+v", s)
	}
}

// collector records the offered tasks.
type collector struct {
	mu    sync.Mutex
	seen  map[int]time.Duration
	calls int
}

func (c *collector) Schedule(_ context.Context, tasks []Task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	for _, t := range tasks {
		if _, again := c.seen[t.Number]; again {
			return fmt.Errorf("task %d came twice", t.Number)
		}
		c.seen[t.Number] = time.Until(t.Due)
	}
	return nil
}

func TestALoadComesAtItsRate(t *testing.T) { synctest.Test(t, testLoad) }

// testLoad uses a clock of its own, on which only waiting takes time.
func testLoad(t *testing.T) {
	c := &collector{seen: map[int]time.Duration{}}
	l := Load{Rate: 2000, For: 500 * time.Millisecond, From: time.Minute, To: 2 * time.Minute, First: 5000}
	next, err := Offer(t.Context(), c, l)
	n := next - l.First
	if err != nil || n != len(c.seen) {
		t.Fatalf("%d offered, %d came: %v", n, len(c.seen), err)
	}
	if n < 800 || n > 1200 { // six standard deviations
		t.Errorf("%d tasks in half a second at 2,000/s", n)
	}
	for number, delay := range c.seen {
		if number < l.First || number >= next {
			t.Errorf("task %d came, of those from %d to %d", number, l.First, next)
		}
		if delay > l.To || delay < l.From-time.Millisecond { // due times are whole ms
			t.Errorf("task %d is due in %s", number, delay)
		}
	}
}

func TestProcessFiguresAreRead(t *testing.T) {
	pid := os.Getpid()
	check.Until(t, "work to be counted as processor time", func() bool {
		for n := range 10_000 {
			_ = NewTask(n, time.Now())
		}
		cpu, err := ProcessCPU(pid)
		if err != nil {
			t.Fatal(err)
		}
		return cpu > 0
	})
	rss, err := RSS(pid)
	peak, errPeak := PeakRSS(pid)
	if rss < 1<<20 || peak < rss/2 || err != nil || errPeak != nil {
		t.Errorf("memory %d, at most %d: %v, %v", rss, peak, err, errPeak)
	}
}
