package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/outbox/internal/dberr"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// batch brings rows to Redis and removes them, in one transaction. While it is open, no other
// relay takes rows of the same IDs. It returns the number of rows that
// left, and an error if Redis or the database failed. A batch that began doesn't end with ctx.
func (r *relay) batch(ctx context.Context) (left int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchLimit)
	defer cancel()
	var failure error
	err = r.session.inTx(ctx, func(tx *sql.Tx) error {
		rows, err := r.session.statements.take(ctx, tx, r.outbox, r.Batch, r.waitingTopics())
		if err != nil || len(rows) == 0 {
			return err
		}
		r.send(ctx, rows)
		left, failure, err = r.settle(ctx, tx, rows)
		if err == nil && errors.Is(failure, task.ErrUncertain) {
			// A late call must not undo what a later row of the ID does.
			retry.Sleep(ctx, lateCall)
		}
		return err
	})
	return left, cmp.Or(dberr.Explained(err), failure)
}

// waitingTopics returns the topics whose rows wait now, separated by commas.
func (r *relay) waitingTopics() string {
	now := time.Now()
	maps.DeleteFunc(r.waiting, func(_ string, until time.Time) bool { return now.After(until) })
	return strings.Join(slices.Collect(maps.Keys(r.waiting)), ",")
}

// send gives each row its result. All rows have different IDs, so their order doesn't matter.
func (r *relay) send(ctx context.Context, rows []row) {
	ctx, cancel := context.WithTimeout(ctx, redisLimit)
	defer cancel()
	type group struct{ action, topic string }
	groups := map[group][]int{}
	for i := range rows {
		if rows[i].err != nil {
			continue
		}
		g := group{rows[i].action, rows[i].request.Topic}
		if g.action == "schedule" {
			g.topic = "" // ScheduleMany takes all topics at once
		}
		groups[g] = append(groups[g], i)
	}
	for g, at := range groups {
		switch g.action {
		case "schedule":
			requests := make([]producer.Request, len(at))
			for n, i := range at {
				requests[n] = rows[i].request
			}
			for n, result := range r.Client.ScheduleMany(ctx, requests) {
				rows[at[n]].err = result.Err
			}
		case "reschedule":
			moves := make([]producer.Move, len(at))
			for n, i := range at {
				moves[n] = producer.Move{ID: rows[i].request.ID, When: rows[i].request.When}
			}
			for n, result := range r.Client.RescheduleMany(ctx, g.topic, moves) {
				rows[at[n]].err = result.Err
			}
		case "cancel":
			ids := make([]string, len(at))
			for n, i := range at {
				ids[n] = rows[i].request.ID
			}
			for n, err := range r.Client.CancelMany(ctx, g.topic, ids) {
				rows[at[n]].err = err
			}
		}
	}
}

// settle removes rows that Redis has and sets rows aside that break a rule. It returns their
// number, and the first of the errors for which the other rows stay.
func (r *relay) settle(ctx context.Context, tx *sql.Tx, rows []row) (left int, failure, err error) {
	var done []string
	for _, row := range rows {
		switch {
		case row.err == nil, errors.Is(row.err, task.ErrExists), errors.Is(row.err, task.ErrNotFound):
			done = append(done, number(row.seq))
			r.metrics.stored.WithLabelValues(row.action).Inc()
		case errors.Is(row.err, task.ErrInvalid):
			if _, err := tx.ExecContext(ctx, r.session.statements.setAside, row.err.Error(), row.seq); err != nil {
				return 0, nil, err
			}
			left++
			r.aside.Log(ctx, "topic", row.request.Topic, "id", row.request.ID, "seq", row.seq, "error", row.err)
		case errors.Is(row.err, task.ErrUnknownTopic):
			r.waiting[row.request.Topic] = time.Now().Add(topicPause)
			r.unknown.Log(ctx, "topic", row.request.Topic, "error", row.err)
		default:
			if failure == nil || errors.Is(row.err, task.ErrUncertain) {
				failure = fmt.Errorf("%s topic %s, ID %q: %w", row.action, row.request.Topic, row.request.ID, row.err)
			}
		}
	}
	if len(done) > 0 {
		if _, err := tx.ExecContext(ctx, r.session.statements.deleteRows, strings.Join(done, ",")); err != nil {
			return 0, nil, err
		}
	}
	return left + len(done), failure, nil
}

// rowName returns the value of HeaderRow.
func rowName(outbox string, seq int64) string { return outbox + "/" + number(seq) }

func number(n int64) string { return strconv.FormatInt(n, 10) }
