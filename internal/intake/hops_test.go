package intake

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpmsg"
)

// rounds returns in which round a message is refused, 0 if none of 1,000. Each round takes
// some time, and changed replaces headers of the message before it comes back.
func rounds(t *testing.T, round time.Duration, changed amqp.Table) int {
	t.Helper()
	now, headers := time.UnixMilli(1_800_000_000_000), amqp.Table{}
	for n := range 1000 {
		for key, v := range changed {
			headers[key] = v
		}
		it := rules{maxPayload: maxPayload}.read(&amqp.Delivery{MessageId: "a", Headers: headers}, now)
		if it.refusal != nil {
			if it.refusal.class != refusedLoop {
				t.Fatal(it.refusal.why)
			}
			return n + 1
		}
		m, err := amqpmsg.Decode(it.entry.Body)
		if err != nil {
			t.Fatal(err)
		}
		headers = with(m.Headers, nil)
		now = now.Add(round)
	}
	return 0
}

// TestAMessageThatGoesRoundIsRefused: a retry that waits at least a second isn't, wherever
// it waits.
func TestAMessageThatGoesRoundIsRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		round   time.Duration
		changed amqp.Table
		want    int
	}{
		"at once":                               {time.Millisecond, nil, mostHops + 1},
		"with a short delay":                    {900 * time.Millisecond, amqp.Table{HeaderDelay: int32(500)}, mostHops + 1},
		"a clock that is set back":              {-time.Hour, nil, mostHops + 1},
		"a retry that waits in another queue":   {time.Second, nil, 0},
		"a retry with a delay":                  {time.Second, amqp.Table{HeaderDelay: int32(1000)}, 0},
		"a retry with a due time":               {time.Millisecond, amqp.Table{HeaderDue: "2100-01-01T00:00:00Z"}, 0},
		"headers that hold no numbers, at once": {0, amqp.Table{HeaderHops: "x", HeaderTaken: true}, 0},
	} {
		if got := rounds(t, row.round, row.changed); got != row.want {
			t.Errorf("%s: refused in round %d, want %d", name, got, row.want)
		}
	}
}

// TestAMessageThatWaitsHasNoHop: it is delivered as it was published. A redelivery has the
// op of the first delivery, although it was taken later.
func TestAMessageThatWaitsHasNoHop(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	read := func(at time.Time, delay int32) *item {
		return rules{maxPayload: maxPayload}.read(&amqp.Delivery{MessageId: "a",
			Headers: amqp.Table{HeaderVerb: IfAbsent, HeaderDelay: delay}}, at)
	}
	m, err := amqpmsg.Decode(read(now, 1000).entry.Body)
	if err != nil || len(m.Headers) != 1 {
		t.Errorf("headers %v, %v", m.Headers, err)
	}
	if first, second := read(now, 0), read(now.Add(time.Minute), 0); first.entry.Op != second.entry.Op {
		t.Errorf("ops %v and %v", first.entry.Op, second.entry.Op)
	}
}
