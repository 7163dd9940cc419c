package producer

import (
	"context"
	"errors"
	"time"

	"github.com/duefleet/duefleet/internal/router"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Schedule stores a task and returns its due time by Redis's clock. It replaces a task of
// the same topic and ID in any state. Concurrent calls share round trips; each still ends
// with its own ctx.
//
// If ctx carries a trace, the task gets its headers, traceparent and tracestate, and the
// handler's context continues the trace: see Request.Headers.
//
// Errors:
//   - *task.RuleError: the input breaks a rule.
//   - task.ErrUnknownTopic.
//   - task.ErrExists: only with IfAbsent.
//   - task.ErrRedisFull.
//   - task.ErrReplicas: only with Config.MinReplicas. The due time is returned too, if the
//     master stored the task.
//   - task.ErrUnavailable: Redis wasn't reached, so the task certainly isn't stored.
//   - task.ErrUncertain: the task may be stored.
//   - Errors of Redis itself.
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
	one, err := writes(ctx, c, func() (router.Scheduled, error) {
		return c.routers.Topic(r.Topic).ScheduleOne(ctx, entry), nil
	})
	if err != nil {
		return time.Time{}, err
	}
	stored := result(r.Topic, r.ID, one)
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
		entries := make([]shard.Entry, len(of))
		for j, i := range of {
			entries[j] = requests[i].entry(named)
		}
		all, err := writes(ctx, c, func() ([]router.Scheduled, error) {
			return c.routers.Topic(topic).Schedule(ctx, entries), nil
		})
		for j, at := range of {
			if results[at].Err = err; err == nil {
				results[at] = result(topic, entries[j].ID, all[j])
			}
		}
	}
	return later
}

// entry returns the request as it is stored, with the trace headers in named.
func (r *Request) entry(named map[string]string) shard.Entry {
	body := shard.EncodeBody(&task.Task{
		ContentType: r.ContentType, Headers: withTrace(r.Headers, named), Options: r.Options, Payload: r.Payload,
	})
	return shard.Entry{ID: r.ID, When: shard.WhenOf(r.When), IfAbsent: r.IfAbsent, Body: body}
}

func result(topic, id string, s router.Scheduled) (r Result) {
	if s.Due > 0 { // also with task.ErrReplicas
		r.Due = fromMillis(s.Due)
	}
	if r.Err = explained(s.Err); errors.Is(s.Err, task.ErrExists) {
		r.Err = named(topic, id, s.Err)
	}
	return r
}
