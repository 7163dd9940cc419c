package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// taskLinks open pages of actions; "" for none.
type taskLinks struct{ Run, Move, Cancel, Replay, Purge string }

// taskLinksTo returns the links for a selection. Actions that skip all tasks in that state are
// left out.
func taskLinksTo(q url.Values, state task.State) (l taskLinks) {
	text := "?" + q.Encode()
	l.Cancel = "/tasks/cancel" + text
	if state != task.Leased && state != task.Parked {
		l.Run, l.Move = "/tasks/run-now"+text, "/tasks/move"+text
	}
	return l
}

// links returns the links for one task.
func (t taskRow) links() taskLinks {
	if t.State != task.Parked {
		return taskLinksTo(url.Values{"topic": {t.Topic}, "task": {t.ID}}, t.State)
	}
	l := parkedLinksTo(url.Values{"topic": {t.Topic}, "id": {t.ID}})
	return taskLinks{Replay: l.Replay, Purge: l.Purge}
}

// links returns the links for all tasks that the form selects.
func (v *tasksView) links() taskLinks {
	q := v.query()
	if len(q) == 1 {
		q.Set("all", "1")
	}
	return taskLinksTo(q, task.State(v.State))
}

// tasksVerbs are the actions on tasks.
func tasksVerbs() map[bulk.Verb]plan {
	return map[bulk.Verb]plan{
		bulk.RunNow: {Title: "Run now", Done: "Made due", Text: "A waiting task becomes due now. A retry keeps its " +
			"attempts and its message. Tasks that are due already, leased or parked are skipped.",
			Recurring: "One run of a recurring task comes now instead of at its time. The others stay."},
		bulk.Move: {Title: "Move", Done: "Moved", Moves: true, Text: "A waiting task gets another due time. A retry keeps " +
			"its attempts and its message. Leased and parked tasks are skipped.",
			Recurring: "One run of a recurring task moves. The others stay."},
		bulk.Cancel: {Title: "Cancel tasks", Done: "Cancelled", Grave: true, Text: "A cancelled task is gone for good, in " +
			"every state. A message that is on its way may still arrive.",
			Recurring: "A recurring task ends with all its runs."},
	}
}

// tasksPlan returns what changes the tasks that a request selects: one with task, or those that
// a search finds.
func (c *Console) tasksPlan(r *http.Request, verb bulk.Verb) (plan, error) {
	q := r.URL.Query()
	v := tasksView{Topic: q.Get("topic"), ID: q.Get("id"), State: q.Get("state"), After: q.Get("due_after"),
		Before: q.Get("due_before"), States: taskStates()}
	if err := c.knownTopic(r, v.Topic); err != nil {
		return plan{}, err
	}
	wanted, err := v.wanted(time.Now())
	f := bulk.Filter{State: wanted.State, Prefix: wanted.Prefix, DueAfter: wanted.DueAfter, DueBefore: wanted.DueBefore}
	one := q.Get("task")
	if err != nil || one == "" && f.All() && q.Get("all") == "" {
		return plan{}, fmt.Errorf("an address without a selection of tasks: %w", task.ErrNotFound)
	}
	p := tasksVerbs()[verb]
	if one == "" || c.recurs(r.Context(), v.Topic, one) {
		p.Text += " " + p.Recurring
	}
	p.Topic, p.Audit, p.Base = v.Topic, "tasks "+string(verb), "scanner tasks "+string(verb)+" "+v.Topic
	if one != "" {
		f = bulk.Filter{IDs: []string{one}}
		p.Which = "ID " + strconv.Quote(shard.ShortID(one))
		p.Filter = p.Which
		p.Back = link{"Task", newTaskRow(admin.Listed{Stored: shard.Stored{Record: shard.Record{Task: task.Task{
			Topic: v.Topic, ID: one}}}}).Link}
		p.Tail = " " + quoted(one)
		if strings.HasPrefix(one, "-") {
			p.Tail = " --" + p.Tail
		}
	} else {
		p.Which = "all that is in topic " + v.Topic
		if !f.All() {
			p.Which = "tasks in topic " + v.Topic + f.String()
		}
		p.Filter, p.Paced = cmp.Or(strings.TrimSpace(f.String()), "all"), true
		p.Back = link{"Tasks", "/tasks?" + v.query().Encode()}
		p.Base += cmp.Or(v.flags(), " --all")
	}
	change := bulk.Change{Topic: c.store.Topic(v.Topic), Verb: verb, Op: shard.NewOp()}
	p.count = func(ctx context.Context) (bulk.Counts, error) {
		n, err := bulk.Count(ctx, change, f)
		if errors.Is(err, task.ErrNotFound) && len(f.IDs) > 0 {
			err = nil
		}
		return n, err
	}
	p.do = func(ctx context.Context, p plan, progress func(done, of int64)) (bulk.Counts, error) {
		change.Limit, change.Rate, change.When, change.By = p.Limit, p.Rate, p.when, p.shift
		n, err := bulk.Run(ctx, change, f, func(n bulk.Counts) { progress(n.Changed, 0) })
		if err != nil && verb == bulk.Move && !errors.Is(err, task.ErrNotFound) {
			err = fmt.Errorf("%w; go on with the command and --resume %s", err, bulk.OpText(change.Op))
		}
		return n, err
	}
	return p, nil
}

// recurs reports whether a task is a recurring one. If it can't be read, the answer is no.
func (c *Console) recurs(ctx context.Context, topic, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	found, _, err := admin.FindTask(ctx, c.store.Topic(topic), id)
	return err == nil && found.Recurrence != nil
}

// readMove sets what the form of Move asks for.
func (p *plan) readMove(now time.Time) (err error) {
	switch {
	case (p.To == "") == (p.By == ""):
		return errors.New("give either a new due time or a duration to add")
	case p.By != "":
		switch p.shift, err = duetime.Span(p.By); {
		case err == nil && p.shift == 0:
			err = errors.New("moves nothing")
		case err == nil && p.shift > 0:
			err = task.In(p.shift).Check()
		}
		if err != nil {
			return fmt.Errorf("the duration %q: %w", p.By, err)
		}
	default:
		if p.when, err = duetime.When(p.toField(), p.To); err == nil {
			err = task.CheckWhen(p.when, now)
		}
		if err != nil {
			return fmt.Errorf("the new due time %q: %w", p.To, err)
		}
	}
	return nil
}

// toField says which flag takes To: in or at.
func (p *plan) toField() string {
	if _, err := duetime.At(p.To); err == nil {
		return "at"
	}
	return "in"
}
