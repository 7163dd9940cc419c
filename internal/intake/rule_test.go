package intake

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestRulesOfRecurringTasks: each header in each of its types.
func TestRulesOfRecurringTasks(t *testing.T) {
	t.Parallel()
	hour := task.Recurrence{Every: time.Hour}
	until, three, all := hour, hour, hour
	until.Until, three.Runs, all.Each = time.UnixMilli(1796119200000), 3, true
	for _, row := range []struct {
		headers map[string]any
		want    task.Recurrence
	}{
		{map[string]any{HeaderEvery: "1h"}, hour}, {map[string]any{HeaderEvery: []byte("60m")}, hour},
		{map[string]any{HeaderEvery: int32(3_600_000)}, hour}, {map[string]any{HeaderEvery: int64(3_600_000)}, hour},
		{map[string]any{HeaderEvery: "3600000"}, hour}, {map[string]any{HeaderEvery: 3_600_000.9}, hour},
		{map[string]any{HeaderEvery: uint16(60_000)}, task.Recurrence{Every: time.Minute}},
		{map[string]any{HeaderEvery: "1d12h"}, task.Recurrence{Every: 36 * time.Hour}},
		{map[string]any{HeaderCron: "0 9 1 * *", HeaderZone: "Europe/Berlin"},
			task.Recurrence{Cron: "0 9 1 * *", Zone: "Europe/Berlin"}},
		{map[string]any{HeaderEvery: "1h", HeaderUntil: int64(1796119200000)}, until},
		{map[string]any{HeaderEvery: "1h", HeaderUntil: "2026-12-01T10:00:00Z"}, until},
		{map[string]any{HeaderEvery: "1h", HeaderUntil: time.Unix(1796119200, 0)}, until},
		{map[string]any{HeaderEvery: "1h", HeaderRuns: int8(3)}, three},
		{map[string]any{HeaderEvery: "1h", HeaderRuns: "3"}, three},
		{map[string]any{HeaderEvery: "1h", HeaderEach: true}, all},
		{map[string]any{HeaderEvery: "1h", HeaderEach: "true"}, all},
		{map[string]any{HeaderEvery: "1h", HeaderEach: false, HeaderRuns: int64(0)}, hour},
	} {
		got, err := ruleOf(row.headers)
		if err != nil {
			t.Errorf("%v: %v", row.headers, err)
			continue
		}
		if !got.Until.Equal(row.want.Until) {
			t.Errorf("%v: until %v", row.headers, got.Until)
		}
		got.Until = row.want.Until
		check.Equal(t, fmt.Sprint(row.headers), *got, row.want)
	}
	if got, err := ruleOf(map[string]any{HeaderIn: "1h"}); got != nil || err != nil {
		t.Errorf("no rule: got %+v, %v", got, err)
	}
}

// TestBadRules: a bad value is refused, and the reason begins with its header.
func TestBadRules(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		header string
		value  any
	}{
		{HeaderEvery, "soon"}, {HeaderEvery, ""}, {HeaderEvery, true}, {HeaderEvery, nil}, {HeaderEvery, int32(0)},
		{HeaderEvery, int32(999)}, {HeaderEvery, int64(math.MaxInt64)}, {HeaderEvery, int64(math.MinInt64)},
		{HeaderEvery, "-1h"}, {HeaderEvery, "0"}, {HeaderEvery, "0s"}, {HeaderEvery, math.NaN()},
		{HeaderEvery, time.Unix(1, 0)},
		{HeaderCron, "61 * * * *"}, {HeaderCron, int32(1)}, {HeaderCron, ""}, {HeaderZone, "Mars"}, {HeaderZone, nil},
		{HeaderUntil, "soon"}, {HeaderUntil, int64(1796119200)}, {HeaderUntil, int64(0)}, {HeaderUntil, true},
		{HeaderRuns, int32(-1)}, {HeaderRuns, "many"}, {HeaderRuns, 1.5}, {HeaderRuns, int64(math.MaxUint32 + 1)},
		{HeaderEach, int32(1)}, {HeaderEach, "yes"}, {HeaderEach, nil},
	} {
		headers := map[string]any{HeaderCron: "0 * * * *", HeaderZone: "UTC"}
		if row.header == HeaderEvery {
			headers = map[string]any{}
		}
		headers[row.header] = row.value
		if got, err := ruleOf(headers); err == nil || !strings.HasPrefix(err.Error(), "header "+row.header+": ") {
			t.Errorf("%s %T %v: got %+v, %v", row.header, row.value, row.value, got, err)
		}
	}
	for _, headers := range []map[string]any{
		{HeaderRuns: int32(3)}, {HeaderZone: "UTC"}, {HeaderEach: true}, {HeaderUntil: "2026-12-01T10:00:00Z"},
		{HeaderCron: "0 * * * *"}, {HeaderEvery: "1h", HeaderCron: "0 * * * *", HeaderZone: "UTC"},
	} {
		if got, err := ruleOf(headers); err == nil {
			t.Errorf("%v: got %+v", headers, got)
		}
	}
	for name, row := range map[string]struct {
		id      string
		headers amqp.Table
		class   string
	}{
		"no ID":         {"", amqp.Table{HeaderEvery: "1h"}, refusedID},
		"a long ID":     {strings.Repeat("x", task.MaxRecurringID+1), amqp.Table{HeaderEvery: "1h"}, refusedID},
		"a move":        {"a", amqp.Table{HeaderVerb: Move, HeaderIn: "1h", HeaderEvery: "1h"}, refusedWhen},
		"a bad rule":    {"a", amqp.Table{HeaderEvery: "soon"}, refusedWhen},
		"a misspelling": {"a", amqp.Table{"x-duefleet-evry": "1h"}, refusedHeaders},
	} {
		it := rules{maxPayload: 1}.read(&amqp.Delivery{MessageId: row.id, Headers: row.headers}, time.Now())
		if it.refusal == nil || it.refusal.class != row.class {
			t.Errorf("%s: %+v", name, it.refusal)
		}
	}
}

// TestARepeatOfARecurringRequestIsKnown: its op doesn't depend on when it was taken, although the
// first run does.
func TestARepeatOfARecurringRequestIsKnown(t *testing.T) {
	t.Parallel()
	read := func(now time.Time, rule string) *item {
		it := rules{maxPayload: 1}.read(&amqp.Delivery{MessageId: "a",
			Headers: amqp.Table{HeaderVerb: IfAbsent, HeaderEvery: rule}}, now)
		it.begin(now)
		if it.refusal != nil {
			t.Fatal(it.refusal.why)
		}
		return it
	}
	now := time.UnixMilli(1796119200000)
	first, repeat := read(now, "1h"), read(now.Add(time.Minute), "1h")
	check.Equal(t, "op", repeat.entry.Op, first.entry.Op)
	check.Equal(t, "first run", first.entry.When, task.At(now.Add(time.Hour)))
	check.Equal(t, "its body", string(repeat.entry.Body), string(first.entry.Body))
	check.Equal(t, "another rule has the op", read(now, "2h").entry.Op == first.entry.Op, false)
	first.begin(now.Add(time.Minute)) // the next try of a batch
	check.Equal(t, "first run after a repeat", first.entry.When, task.At(now.Add(time.Hour)))
}

// TestARecurringMessage: the task has the rule and the message without its headers. The first run
// is the due time, or the first time of the rule.
func TestARecurringMessage(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.start()
	h.publish(newMessage("every", HeaderEvery, int32(60_000), HeaderRuns, int32(3), "mine", "stays"))
	h.publish(newMessage("delay", HeaderEvery, "1h", HeaderDelay, int32(90_000)))
	h.publish(newMessage("absent", HeaderVerb, IfAbsent, HeaderCron, "0 9 1 * *", HeaderZone, "Europe/Berlin"))
	h.publish(newMessage("over", HeaderEvery, "1h", HeaderUntil, "2020-01-01T00:00:00Z"))
	h.settled()
	tasks := router.New(h.redis.Store).Topic(fixture.Orders)
	for id, want := range map[string]struct {
		rule    task.Recurrence
		headers string
		delay   time.Duration // 0: it depends on the date
	}{
		"every":  {task.Recurrence{Every: time.Minute, Runs: 3}, "map[mine:stays]", time.Minute},
		"delay":  {task.Recurrence{Every: time.Hour}, "map[x-delay:-90000]", 90 * time.Second},
		"absent": {task.Recurrence{Cron: "0 9 1 * *", Zone: "Europe/Berlin"}, "map[]", 0},
	} {
		s, err := tasks.Get(t.Context(), id)
		check.OK(t, err)
		check.Equal(t, id+": rule", *s.Recurrence, want.rule)
		check.Equal(t, id+": headers", fmt.Sprint(s.AMQP.Headers), want.headers)
		check.Equal(t, id+": key and body", s.AMQP.RoutingKey+" "+string(s.Payload), "key.of.a.client body of "+id)
		if delay := s.Due.Sub(s.Scheduled); want.delay > 0 && (delay-want.delay).Abs() > 30*time.Second {
			t.Errorf("%s: due after %v", id, delay)
		}
		if want.delay == 0 && (s.Due.Before(s.Scheduled) || s.Due.Minute() != 0) {
			t.Errorf("%s: due at %v", id, s.Due)
		}
	}
	d := h.taken(refused)
	said, _ := d.Headers[HeaderRefused].(string)
	check.Equal(t, "refused", said, "header x-duefleet-until: must not be before the first run")
	check.Equal(t, "class", d.Headers[HeaderRefusedClass], any(refusedWhen))
}
