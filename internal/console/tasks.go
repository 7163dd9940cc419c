package console

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// tasksPerPage is the number of rows of a page of tasks.
	tasksPerPage = 100
	// tasksLimit limits the search for one page.
	tasksLimit = 8 * time.Second
)

// tasksView has everything that the list of tasks shows.
type tasksView struct {
	// Topic, ID, State, After and Before have the values of the form.
	Topic, ID, State, After, Before string

	Topics, States []string
	// Exact is the task whose whole ID is asked for; nil if there is none.
	Exact *taskRow
	Rows  []taskRow
	// Next is the address of the next page, and First of the first; "" for none.
	Next, First string
	// Missing is the address of the page of a task that isn't stored and has a history; "" for
	// none.
	Missing string
	// Mistake says why the list isn't there, or isn't complete; "" if it is.
	Mistake string
	// Links act on all tasks of the list, on all pages.
	Links taskLinks
	// Command lists the same tasks.
	Command string
}

// taskRow is one task.
type taskRow struct {
	admin.Listed
	Link  string
	Shard int
	// Rule is the rule of a recurring task; "" for any other.
	Rule string
	// SeriesLink is the address of a run's recurring task; "" for any other task.
	SeriesLink string
}

func newTaskRow(l admin.Listed) taskRow {
	row := taskRow{Listed: l, Link: taskLink(l.Topic, l.ID)}
	if l.Recurrence != nil {
		row.Rule = admin.RuleText(*l.Recurrence)
	}
	if l.Series != "" {
		row.SeriesLink = taskLink(l.Topic, l.Series)
	}
	return row
}

// taskLink returns the address of a task's page.
func taskLink(topic, id string) string {
	return "/task?" + url.Values{"topic": {topic}, "id": {id}}.Encode()
}

func (c *Console) tasks(ctx context.Context, r *http.Request, _ reading) (any, error) {
	v := tasksView{Topic: r.FormValue("topic"), ID: r.FormValue("id"), State: r.FormValue("state"),
		After: strings.TrimSpace(r.FormValue("due_after")), Before: strings.TrimSpace(r.FormValue("due_before")),
		States: taskStates()}
	ctx, cancel := context.WithTimeout(ctx, tasksLimit)
	defer cancel()
	var err error
	if v.Topics, err = c.store.Registry().Topics(ctx); err != nil {
		v.Mistake = "Redis can't be read: " + err.Error()
		return v, nil
	}
	slices.Sort(v.Topics)
	if v.Topic == "" && len(v.Topics) == 1 {
		v.Topic = v.Topics[0]
	}
	if v.Topic == "" {
		return v, nil
	}
	if err := c.knownTopic(r, v.Topic); err != nil {
		return nil, err
	}
	wanted, err := v.wanted(time.Now())
	if err != nil {
		v.Mistake = err.Error()
		return v, nil
	}
	wanted.Topic = c.store.Topic(v.Topic)
	v.Command = v.command()
	if err := v.find(ctx, wanted, r); errors.Is(err, context.DeadlineExceeded) {
		v.Mistake = "the search took more than " + tasksLimit.String() + "; ask for a state, a due time or a whole ID"
	} else if err != nil {
		v.Mistake = err.Error()
	}
	if len(v.Rows) > 0 {
		v.Links = v.links()
	} else if v.Exact == nil && v.ID != "" {
		if events, err := wanted.Topic.Events(ctx, v.ID); err == nil && len(events) > 0 { // else there is nothing to show
			v.Missing = taskLink(v.Topic, v.ID)
		}
	}
	return v, nil
}

// taskStates returns the states of the form.
func taskStates() []string {
	return []string{string(task.Waiting), string(task.Leased), string(admin.Retrying), string(task.Parked)}
}

// wanted returns what the form asks for.
func (v *tasksView) wanted(now time.Time) (t admin.Tasks, err error) {
	t = admin.Tasks{State: task.State(v.State), Prefix: v.ID, Limit: tasksPerPage, Details: true}
	if v.State != "" && !slices.Contains(v.States, v.State) {
		return t, fmt.Errorf("the state %q must be one of %s", v.State, strings.Join(v.States, ", "))
	}
	if t.DueAfter, err = parseMoment("the time", v.After, now); err != nil {
		return t, err
	}
	t.DueBefore, err = parseMoment("the time", v.Before, now)
	return t, err
}

// find sets the rows, and the address of the next page.
func (v *tasksView) find(ctx context.Context, wanted admin.Tasks, r *http.Request) error {
	var after admin.TaskCursor
	if after.ID = r.FormValue("behind"); after.ID != "" {
		if ms, err := strconv.ParseInt(r.FormValue("at"), 10, 64); err == nil && ms > 0 {
			after.Next = time.UnixMilli(ms)
		}
		v.First = "/tasks?" + v.query().Encode()
	} else if v.ID != "" {
		found, at, err := admin.FindTask(ctx, wanted.Topic, v.ID)
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return err
		}
		if err == nil {
			row := newTaskRow(found)
			row.Shard = at
			v.Exact = &row
		}
	}
	page, more, err := wanted.Page(ctx, after)
	for _, l := range page {
		v.Rows = append(v.Rows, newTaskRow(l))
	}
	if more {
		q, last := v.query(), page[len(page)-1]
		q.Set("behind", last.ID)
		q.Set("at", strconv.FormatInt(duetime.Millis(last.Next), 10))
		v.Next = "/tasks?" + q.Encode()
	}
	return err
}

// query returns the form's values as a part of an address. Durations become times, so that
// all pages of a list have the same bounds.
func (v *tasksView) query() url.Values {
	q := url.Values{"topic": {v.Topic}}
	now := time.Now()
	values := map[string]string{"id": v.ID, "state": v.State, "due_after": v.After, "due_before": v.Before}
	for name, value := range values {
		if at, err := parseMoment("", value, now); err == nil && strings.HasPrefix(name, "due_") {
			value = duetime.Text(at)
		}
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// command returns the command that lists the same tasks.
func (v *tasksView) command() string {
	return "scanner tasks ls " + v.Topic + v.flags() + " --limit " + strconv.Itoa(tasksPerPage)
}

// flags returns the flags that select the same tasks.
func (v *tasksView) flags() (text string) {
	for _, flag := range [][2]string{{"--id-prefix", v.ID}, {"--state", v.State}, {"--due-after", v.After},
		{"--due-before", v.Before}} {
		if flag[1] != "" {
			text += " " + flag[0] + "=" + quoted(flag[1])
		}
	}
	return text
}

// taskView has everything that a task's page shows.
type taskView struct {
	taskRow
	// Unreadable says why the record can't be read; "" if it can.
	Unreadable string
	Bytes      int
	// NextTimes has the next three times of a recurring task, or fewer if it ends.
	NextTimes []time.Time
	Headers   []settingRow
	// Options has those that are set.
	Options []settingRow
	Links   taskLinks
	// Payload is nil if payloads are hidden.
	Payload *payloadView
	// Gone says that the task isn't stored. Then only Events are set.
	Gone bool
	// Events happened to the task, and are kept.
	Events []task.Event
	// Unkept says why Events can't be read; "" if they can.
	Unkept string
}

func (c *Console) task(ctx context.Context, r *http.Request, _ reading) (any, error) {
	name, id := r.FormValue("topic"), r.FormValue("id")
	if err := c.knownTopic(r, name); err != nil {
		return nil, err
	}
	events, unkept := c.store.Topic(name).Events(ctx, id)
	found, at, err := admin.FindTask(ctx, c.store.Topic(name), id)
	v := taskView{taskRow: newTaskRow(found), Bytes: max(len(found.Payload), found.PayloadBytes), Events: events}
	v.Shard = at
	if unkept != nil {
		v.Unkept = unkept.Error()
	}
	if errors.Is(err, task.ErrNotFound) && len(events) > 0 {
		v.Gone, v.Topic, v.ID = true, name, id
		return v, nil
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s, ID %q: %w", name, id, err)
	}
	if found.Err != nil {
		v.Unreadable = found.Err.Error()
	}
	v.Links = v.links()
	if found.Recurrence != nil {
		v.NextTimes = admin.NextTimes(found, time.Now())
	}
	if c.payloads && found.Err == nil {
		v.Payload = newPayloadView(found.Payload, found.AMQP)
	}
	shard.HideNext(&v.Task)
	for _, key := range slices.Sorted(maps.Keys(v.Task.Headers)) {
		v.Headers = append(v.Headers, settingRow{Key: key, Value: v.Task.Headers[key]})
	}
	v.Options = optionRows(v.Task.Options)
	return v, nil
}

// optionRows returns the options that are set, with the names that producer load has.
func optionRows(o task.Options) []settingRow {
	var priority, expiration string
	if o.Priority > 0 {
		priority = strconv.Itoa(int(o.Priority))
	}
	if o.Expiration > 0 {
		expiration = o.Expiration.String()
	}
	rows := []settingRow{{Key: "routing_key", Value: o.RoutingKey}, {Key: "priority", Value: priority},
		{Key: "expiration", Value: expiration}, {Key: "correlation_id", Value: o.CorrelationID},
		{Key: "reply_to", Value: o.ReplyTo}}
	return slices.DeleteFunc(rows, func(row settingRow) bool { return row.Value == "" })
}
