package fleet_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/test/fleet"
)

// book is a ledger whose clock only the test advances.
type book struct {
	*fleet.Ledger
	now time.Time
}

func newBook() *book {
	b := &book{now: time.UnixMilli(1_000_000)}
	b.Ledger = fleet.NewLedger(fleet.LedgerConfig{Now: func() time.Time { return b.now }})
	return b
}

// in returns the time d after the first time of the book's clock.
func (b *book) in(d time.Duration) time.Time { return time.UnixMilli(1_000_000).Add(d) }

// deliver enters a message that arrives at its due time plus late.
func (b *book) deliver(due time.Time, late time.Duration, payload string, change ...func(*fleet.Delivery)) {
	d := fleet.Delivery{At: due.Add(late), Delivery: amqp.Delivery{
		MessageId: "a", Type: "t", Body: []byte(payload),
		Headers: amqp.Table{"x-duefleet-due": due.UnixMilli(), "x-duefleet-redelivered": false},
	}}
	for _, c := range change {
		c(&d)
	}
	b.Delivered(d)
}

var key = fleet.Key{Topic: "t", ID: "a"}

func requeued(d *fleet.Delivery) { d.Redelivered = true }

// TestLedgerFinds: for each way to break a promise, the ledger reports that mistake and
// no other.
func TestLedgerFinds(t *testing.T) {
	t.Parallel()
	const s, ms = time.Second, time.Millisecond
	tests := []struct {
		name string
		do   func(b *book)
		want string // how the error begins; "" for none
	}{
		{"all is well", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), ms, "p")
		}, ""},
		{"the message comes before the entry of its call", func(b *book) {
			b.deliver(b.in(s), ms, "p")
			b.Scheduled(key, b.in(s), []byte("p"))
		}, ""},
		{"lost", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
		}, "1 lost of 1"},
		{"duplicated", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), ms, "p")
			b.deliver(b.in(s), 2*ms, "p")
		}, "1 duplicated of 1"},
		{"requeued by the broker", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), ms, "p")
			b.deliver(b.in(s), 2*ms, "p", requeued)
		}, ""},
		{"requeued before it was seen", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), 2*ms, "p", requeued)
		}, ""},
		{"early", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), -ms, "p")
		}, "1 early of 1"},
		{"cancelled but delivered", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.Cancelled(key)
			b.deliver(b.in(s), ms, "p")
		}, "1 delivered after they were cancelled of 0"},
		{"cancelled and absent", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.Cancelled(key)
		}, ""},
		{"cancelled while it was on its way", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.now = b.in(s)
			b.Cancelled(key)
			b.deliver(b.in(s), ms, "p")
		}, ""},
		{"cancelled while it was on its way, and delivered twice", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.now = b.in(s)
			b.Cancelled(key)
			b.deliver(b.in(s), ms, "p")
			b.deliver(b.in(s), ms, "p")
		}, "1 duplicated of 0"},
		{"scheduled anew after a cancel", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.Cancelled(key)
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), ms, "p")
		}, ""},
		{"old version by its due time", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.Rescheduled(key, b.in(2*s))
			b.deliver(b.in(s), ms, "p")
			b.deliver(b.in(2*s), ms, "p")
		}, "1 of a version that was replaced of 1"},
		{"old version by its payload", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("old"))
			b.Scheduled(key, b.in(s), []byte("new"))
			b.deliver(b.in(s), ms, "old")
		}, "1 lost, 1 of a version that was replaced of 1"},
		{"rescheduled after it was delivered", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.now = b.in(s)
			b.Rescheduled(key, b.in(2*s))
			b.deliver(b.in(s), ms, "p")
			b.deliver(b.in(2*s), ms, "p")
		}, ""},
		{"rescheduled and lost", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.now = b.in(s)
			b.Rescheduled(key, b.in(2*s))
			b.deliver(b.in(s), ms, "p")
		}, "1 lost of 1"},
		{"another payload", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), ms, "q")
		}, "1 lost, 1 unknown of 1"},
		{"nobody's task", func(b *book) {
			b.deliver(b.in(s), ms, "p")
		}, "1 unknown of 0"},
		{"failed call, delivered", func(b *book) {
			b.MaybeScheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), ms, "p")
		}, ""},
		{"failed call, absent", func(b *book) {
			b.MaybeScheduled(key, b.in(s), []byte("p"))
		}, ""},
		{"failed call, then repeated after it was due", func(b *book) {
			b.MaybeScheduled(key, b.in(s), []byte("p"))
			b.now = b.in(s)
			b.Scheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(s), ms, "p")
			b.deliver(b.in(s), 2*ms, "p")
			b.deliver(b.in(s), 3*ms, "p")
		}, "1 duplicated of 1"},
		{"failed call, carried out after it was due", func(b *book) {
			b.now = b.in(2 * s)
			b.MaybeScheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(4*s), ms, "p")
			b.deliver(b.in(4*s), 2*ms, "p")
		}, "1 duplicated of 0"},
		{"failed call, carried out long after", func(b *book) {
			b.now = b.in(2 * s)
			b.MaybeScheduled(key, b.in(s), []byte("p"))
			b.deliver(b.in(6*s), ms, "p")
		}, "1 unknown of 0"},
		{"failed cancel", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.MaybeCancelled(key)
		}, ""},
		{"failed reschedule, both versions", func(b *book) {
			b.Scheduled(key, b.in(s), []byte("p"))
			b.MaybeRescheduled(key, b.in(2*s))
			b.deliver(b.in(s), ms, "p")
			b.deliver(b.in(2*s), ms, "p")
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBook()
			tt.do(b)
			r := b.Check()
			if b.Missing() != r.Lost {
				t.Errorf("%d missing, want the %d lost", b.Missing(), r.Lost)
			}
			err := r.Err()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("found %v, want nothing", err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want+" promised")):
				t.Errorf("found %v, want %s promised", err, tt.want)
			}
		})
	}
}

// TestLedgerClock: the ledger judges whether a message is early by Redis's clock.
func TestLedgerClock(t *testing.T) {
	t.Parallel()
	l := fleet.NewLedger(fleet.LedgerConfig{Offset: -5 * time.Millisecond})
	b := &book{Ledger: l}
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	l.Scheduled(key, due, nil)
	b.deliver(due, 4*time.Millisecond, "")
	if r := l.Check(); r.Early != 1 || r.Lateness.At(1) != -time.Millisecond {
		t.Errorf("early %d, lateness %s; want 1 and -1ms", r.Early, r.Lateness.At(1))
	}
}

func TestLateness(t *testing.T) {
	t.Parallel()
	var l fleet.Lateness
	for i := range 100 {
		l = append(l, time.Duration(i+1)*time.Millisecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 50, 0.99: 99, 1: 100} {
		if got := l.At(share); got != want*time.Millisecond {
			t.Errorf("at %v: %s, want %dms", share, got, want)
		}
	}
	if got := (fleet.Lateness)(nil).At(0.5); got != 0 {
		t.Errorf("of none: %s, want 0", got)
	}
	const want = "" +
		"    <= 1ms        1 ###\n" +
		"    <= 2ms        0 \n" +
		"    <= 5ms        2 ######\n" +
		"      more        1 ###\n"
	got := fleet.Lateness{time.Millisecond, 3 * time.Millisecond, 4 * time.Millisecond, time.Minute}.Histogram(6)
	rows := strings.SplitAfter(got, "\n")
	if short := strings.Join(append(rows[:3:3], rows[len(rows)-2]), ""); short != want {
		t.Errorf("histogram:\n%swant\n%s", short, want)
	}
}
