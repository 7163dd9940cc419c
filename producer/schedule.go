package producer

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Schedule stores a task, replacing one of the same topic and ID in whatever
// state, and returns its due time by Redis's clock. Calls from several goroutines share
// round trips; each keeps to its own ctx.
//
// Where ctx carries a trace, the task gets its headers, traceparent and tracestate, and
// the handler's context continues it: see Request.Headers.
//
// Errors: *task.RuleError for input that breaks a rule, task.ErrUnknownTopic,
// task.ErrExists with IfAbsent, task.ErrRedisFull, with Config.MinReplicas
// task.ErrReplicas, beside which the due time is that of what the master has
// stored, task.ErrUnavailable where it surely is not stored since Redis was not reached,
// task.ErrUncertain where it may be, and Redis's own.
func (c *Client) Schedule(ctx context.Context, r Request) (due time.Time, err error) {
	defer c.metrics.begin(verbSchedule).end(&err)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	now, err := c.now(ctx)
	if err == nil {
		err = r.Check(c.maxPayload, now)
	}
	if err != nil {
		return time.Time{}, err
	}
	entry := r.entry(traceHeaders(ctx))
	one, err := writes(ctx, c, func() (shard.Scheduled, error) { return c.store.Router(r.Topic).ScheduleOne(ctx, entry), nil })
	if err != nil {
		return time.Time{}, err
	}
	stored := result(r.Topic, r.ID, one)
	return stored.Due, stored.Err
}

// Result is what became of one Request.
type Result struct {
	// Due time by Redis's clock; zero with an error other than task.ErrReplicas.
	Due time.Time
	// Err as from Schedule.
	Err error
}

// ScheduleMany stores tasks like Schedule, grouped by shard and pipelined: one
// round trip for each 500 or so of them. The results are in the order of the
// requests; each task succeeds or fails alone. Of two requests for the same
// topic and ID the later wins.
func (c *Client) ScheduleMany(ctx context.Context, requests []Request) []Result {
	results := make([]Result, len(requests))
	defer c.metrics.begin(verbScheduleMany).endBatch(results)
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	now, err := c.now(ctx)
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	var good []int
	for i := range requests {
		if results[i].Err = requests[i].Check(c.maxPayload, now); results[i].Err == nil {
			good = append(good, i)
		}
	}
	named := traceHeaders(ctx)
	for len(good) > 0 {
		good = c.scheduleRound(ctx, requests, results, good, named)
	}
	return results
}

type name struct{ topic, id string }

// scheduleRound stores the first request for each task and returns the others:
// within a round the op alone tells whose record a shard holds. named: the trace's headers.
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
		entries := make([]shard.Entry, len(of))
		for j, i := range of {
			entries[j] = requests[i].entry(named)
		}
		all, err := writes(ctx, c, func() ([]shard.Scheduled, error) { return c.store.Router(topic).Schedule(ctx, entries), nil })
		for j, at := range of {
			if results[at].Err = err; err == nil {
				results[at] = result(topic, entries[j].ID, all[j])
			}
		}
	}
	return later
}

// entry is the request as it is stored, with the headers of a trace.
func (r *Request) entry(named map[string]string) shard.Entry {
	body := shard.EncodeBody(&task.Task{
		ContentType: r.ContentType, Headers: withTrace(r.Headers, named), Options: r.Options, Payload: r.Payload,
	})
	return shard.Entry{ID: r.ID, When: shard.WhenOf(r.When), IfAbsent: r.IfAbsent, Body: body}
}

func result(topic, id string, s shard.Scheduled) (r Result) {
	if s.Due > 0 { // with task.ErrReplicas too
		r.Due = fromMillis(s.Due)
	}
	if r.Err = explained(s.Err); errors.Is(s.Err, task.ErrExists) {
		r.Err = named(topic, id, s.Err)
	}
	return r
}
