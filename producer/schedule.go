package producer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// When is a due time: Now, In a delay, or At an instant. The zero value breaks a rule. Its
// methods Wait and Instant say which it is, for example to a fake in a test.
type When = task.When

// Now means due at once.
func Now() When { return task.Now() }

// In means d from now by the clock of the Redis that stores the task. d is cut to the
// millisecond, and at most task.MaxAhead. A negative d means due now. 0 breaks a rule, and so does
// less than a millisecond: In(30) is 30 nanoseconds. For a moment that may be near, use At
// instead of In(time.Until(moment)).
func In(d time.Duration) When { return task.In(d) }

// At means the instant t, cut to the millisecond, at most task.MaxAhead from now. A time in
// the past means due now. A time before 1971 breaks a rule, such as the zero time.Time,
// time.Unix(0, 0), or Unix seconds given to time.UnixMilli.
func At(t time.Time) When { return task.At(t) }

// Request is one task to schedule.
type Request struct {
	// Topic of the task: 1 to 64 of A-Z a-z 0-9 . _ -. Scanners must serve it.
	Topic string
	// ID of the task within its topic: 1 to 255 bytes of valid UTF-8.
	ID string
	// When the task is due: Now, In or At. Required, except with Recurrence.
	When When
	// Recurrence makes the task recur: see Every and Cron. When is then its first run, and
	// the zero When stands for the first time of the rule, counted from now. The ID has at
	// most task.MaxRecurringID bytes. Defaults to none.
	Recurrence *task.Recurrence
	// Group puts the task into a group, such as a customer's or an order's: see CancelGroup. It
	// has at most 255 bytes of valid UTF-8. The message has it as a header, and Task.Group is
	// for the handler. Defaults to none.
	Group string
	// Payload is delivered byte for byte, at most Config.MaxPayload.
	Payload []byte
	// ContentType of the payload. Defaults to application/octet-stream.
	ContentType string
	// Headers of the message: at most 32, keys of up to 128 bytes that don't begin with
	// x-duefleet-, 64 KiB together.
	//
	// If ctx carries a trace, Schedule and ScheduleMany add traceparent and tracestate
	// (W3C Trace Context), unless Headers has one of the two. An empty traceparent keeps
	// a task out of the trace. A trace header that exceeds the limits is left out.
	Headers map[string]string
	// Options of the message: routing key, priority, expiration, correlation ID,
	// reply-to.
	Options task.Options
	// AMQP is a message that is delivered as it is, with Payload as its body. It is for a
	// copy of a task that came through a topic's intake: Stored.AMQP. Its message-id may
	// differ from ID. With it, ContentType, Headers and Options must be empty, and
	// Schedule adds no trace headers.
	//
	// It must be a message that an intake can store:
	//   - Texts of up to 255 bytes. Headers of the Go types that task.AMQP lists, 32 deep,
	//     8192 elements in each table and array.
	//   - 126 KiB for properties and headers together.
	//   - No headers that begin with x-duefleet-, except for x-duefleet-hops and
	//     x-duefleet-taken, int64 each.
	//   - A delivery mode of 1 or 2, an expiration in decimal milliseconds, an array as CC
	//     and BCC, and a reply-to other than amq.rabbitmq.reply-to.
	//
	// The field of the *task.RuleError begins with "amqp". Defaults to none.
	AMQP *task.AMQP
	// IfAbsent returns task.ErrExists if a task of this ID is stored, instead of
	// replacing it. A parked task is stored. A task that waits in a queue or is in a
	// handler isn't stored. The new version replaces it: its retry and next step are dropped.
	IfAbsent bool
	// IfPresent returns task.ErrNotFound unless a task of this ID is stored. A parked task
	// is stored. A task that waits in a queue or is in a handler isn't.
	IfPresent bool
}

// Check returns a *task.RuleError for the first input rule that the request breaks.
// maxPayload is in bytes. Schedule makes the same check, with Redis's clock as now; call
// Check to know earlier.
func (r *Request) Check(maxPayload int, now time.Time) error {
	first := *r
	return cmp.Or(r.check(maxPayload), first.begin(now), task.CheckWhen(first.When, now))
}

// check makes the checks that need no clock.
func (r *Request) check(maxPayload int) error {
	return cmp.Or(
		task.CheckTopic(r.Topic),
		task.CheckID(r.ID),
		task.CheckGroup(r.Group),
		r.checkRecurrence(),
		task.CheckPayload(r.Payload, maxPayload),
		task.CheckContentType(r.ContentType),
		task.CheckHeaders(r.Headers),
		task.CheckOptions(r.Options),
		r.checkAMQP(),
		r.checkGiven(),
		r.checkConditions(),
	)
}

func (r *Request) checkConditions() error {
	if r.IfAbsent && r.IfPresent {
		return &task.RuleError{Field: "if_present", Rule: "must not be set together with if_absent", Got: "both"}
	}
	return nil
}

// Schedule stores a task and returns its due time by Redis's clock. It replaces a task of
// the same topic and ID in any state. Concurrent calls share round trips; each still ends
// with its own ctx.
//
// If ctx carries a trace, the task gets its headers, traceparent and tracestate. The
// handler's context continues the trace: see Request.Headers. With Config.TracerProvider,
// the headers name the span of the call.
//
// Errors:
//   - *task.RuleError: the input breaks a rule.
//   - task.ErrUnknownTopic.
//   - task.ErrExists: only with IfAbsent.
//   - task.ErrNotFound: only with IfPresent. If one of these two is ErrRepeated too, this call
//     may have stored the task.
//   - task.ErrRedisFull.
//   - task.ErrReplicas: only with Config.MinReplicas. The due time is returned too, if the
//     master stored the task.
//   - task.ErrUnavailable: Redis wasn't reached, so the task certainly isn't stored.
//   - task.ErrUncertain: the task may be stored.
//   - Errors of Redis itself.
func (c *Client) Schedule(ctx context.Context, r Request) (due time.Time, err error) {
	defer c.metrics.begin(verbSchedule).end(&err)
	ctx, span := c.startSchedule(ctx, &r)
	defer span.end(&err)
	if err := r.check(c.maxPayload); err != nil {
		return time.Time{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	now, err := c.now(ctx)
	if err == nil {
		err = cmp.Or(r.begin(now), task.CheckWhen(r.When, now))
	}
	if err != nil {
		return time.Time{}, err
	}
	entry, err := r.entry(traceHeaders(ctx))
	if err != nil {
		return time.Time{}, err
	}
	millis, err := within(ctx, c, task.ErrUncertain, c.routers.Topic(r.Topic).ScheduleOne, entry)
	stored := result(r.Topic, r.ID, millis, err)
	return stored.Due, stored.Err
}

// Result is the result for one Request.
type Result struct {
	// Due time by Redis's clock; zero with any error but task.ErrReplicas.
	Due time.Time
	// Err is the error that Schedule would return.
	Err error
}

// ScheduleMany stores tasks like Schedule, grouped by shard and pipelined: about one
// round trip for each 500 tasks. The results are in the order of the requests. Each task
// succeeds or fails alone. If two requests have the same topic and ID, the later wins.
func (c *Client) ScheduleMany(ctx context.Context, requests []Request) []Result {
	results := make([]Result, len(requests))
	defer c.metrics.begin(verbScheduleMany).endBatch(results)
	ctx, span := c.startMany(ctx, requests)
	defer span.endBatch(results)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	requests, begun := c.begin(ctx, requests)
	good := c.good(ctx, results, func(i int) (When, error) {
		return requests[i].When, cmp.Or(requests[i].check(c.maxPayload), begun[i])
	})
	named := traceHeaders(ctx)
	for len(good) > 0 {
		good = c.scheduleRound(ctx, requests, results, good, named)
	}
	return results
}

// good returns the indexes of the inputs that keep the rules, and gives the others their
// errors. check returns the due time of an input, and the rule that it breaks. The time of
// Redis is asked only if there is an input to compare with it.
func (c *Client) good(ctx context.Context, results []Result, check func(i int) (When, error)) (good []int) {
	whens := make([]When, len(results))
	for i := range results {
		if whens[i], results[i].Err = check(i); results[i].Err == nil {
			good = append(good, i)
		}
	}
	if len(good) == 0 {
		return nil
	}
	now, err := c.now(ctx)
	return slices.DeleteFunc(good, func(i int) bool {
		results[i].Err = cmp.Or(err, task.CheckWhen(whens[i], now))
		return results[i].Err != nil
	})
}

type name struct{ topic, id string }

// scheduleRound stores the first request for each task. It returns the indexes of the
// other requests, which need a later round. One call of Router.Schedule has one op, and a
// shard takes a second put with that op for a repeat of the first. named holds the trace
// headers.
func (c *Client) scheduleRound(
	ctx context.Context, requests []Request, results []Result, todo []int, named map[string]string,
) (later []int) {
	round := map[string][]int{}
	seen := make(map[name]bool, len(todo))
	for _, i := range todo {
		r := &requests[i]
		if n := (name{r.Topic, r.ID}); len(todo) > 1 {
			if seen[n] {
				later = append(later, i)
				continue
			}
			seen[n] = true
		}
		round[r.Topic] = append(round[r.Topic], i)
	}
	for topic, of := range round {
		entries := make([]shard.Entry, 0, len(of))
		of = slices.DeleteFunc(of, func(i int) bool {
			entry, err := requests[i].entry(named)
			if results[i].Err = err; err == nil {
				entries = append(entries, entry)
			}
			return err != nil
		})
		all, err := within(ctx, c, task.ErrUncertain, func(ctx context.Context, e []shard.Entry) ([]router.Scheduled, error) {
			return c.routers.Topic(topic).Schedule(ctx, e), nil
		}, entries)
		for j, at := range of {
			if results[at].Err = err; err == nil {
				results[at] = result(topic, entries[j].ID, all[j].Due, explained(all[j].Err))
			}
		}
	}
	return later
}

// entry returns the request as it is stored, with the trace headers in named. An error means
// that AMQP was changed during the call.
func (r *Request) entry(named map[string]string) (shard.Entry, error) {
	t := task.Task{ContentType: r.ContentType, Group: r.Group, Options: r.Options, Payload: r.Payload, AMQP: r.AMQP}
	if r.Recurrence != nil {
		rule := *r.Recurrence
		rule.Planned = time.Time{} // this run is not moved
		t.Recurrence = &rule
	}
	if r.AMQP == nil {
		t.Headers = withTrace(r.Headers, named)
	}
	body, err := shard.Encode(&t)
	return shard.Entry{ID: r.ID, When: r.When, IfAbsent: r.IfAbsent, IfPresent: r.IfPresent, Body: body}, err
}

// checkAMQP checks the rules for AMQP.
func (r *Request) checkAMQP() error {
	if r.AMQP == nil {
		return nil
	}
	for _, other := range []struct {
		name  string
		given bool
	}{
		{"content_type", r.ContentType != ""}, {"headers", len(r.Headers) > 0}, {"options", r.Options != task.Options{}},
	} {
		if other.given {
			return &task.RuleError{Field: "amqp", Rule: "must not be set together with " + other.name, Got: "both"}
		}
	}
	return amqpmsg.Check(r.AMQP)
}

// result returns the result for a task with a due time in ms, which is 0 if it isn't known.
func result(topic, id string, due int64, err error) Result {
	r := Result{Err: err}
	if due > 0 { // also with task.ErrReplicas
		r.Due = fromMillis(due)
	}
	if errors.Is(err, task.ErrExists) || errors.Is(err, task.ErrNotFound) {
		r.Err = named(topic, id, err)
	}
	return r
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
