package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// readParkedEvery is the pause between two readings of parked tasks while somebody looks.
	readParkedEvery = 10 * time.Second
	// maxParkedRead and parkedLimit bound one reading.
	maxParkedRead = 20_000
	parkedLimit   = 6 * time.Second
	// parkedKey begins the keys of readers of parked tasks.
	parkedKey = "parked "
	// maxParkedRows and maxParkedGroups bound the tables.
	maxParkedRows   = 100
	maxParkedGroups = 200
	// maxChangeRows bounds the list of changes.
	maxChangeRows = 10
)

// parkedContent has the parked tasks that a reading found.
type parkedContent struct {
	Groups []parkedGroup
	// First has the first tasks, if the reading is of one topic.
	First []shard.Record
	Tasks int64
	// Partial is true if there are tasks that were not read.
	Partial bool
	// Unread says which shards can't be read; "" for none.
	Unread string
}

// parkedGroup has the tasks of a topic that are parked for the same reason.
type parkedGroup struct {
	Topic, Reason string
	Tasks         int64
	// Oldest and Newest are when tasks of it were parked; zero if nobody knows.
	Oldest, Newest time.Time
}

// parkedChoice has the values of the form. None selects tasks without a reason.
type parkedChoice struct {
	Topic, Reason, Than string
	None                bool
}

func parkedChoiceOf(r *http.Request) parkedChoice {
	q := r.URL.Query()
	return parkedChoice{q.Get("topic"), q.Get("reason"), strings.TrimSpace(q.Get("older_than")), q.Get("no_reason") != ""}
}

// query returns the values as a part of an address.
func (p parkedChoice) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"topic": p.Topic, "reason": p.Reason, "older_than": p.Than} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if p.None {
		q.Set("no_reason", "1")
	}
	return q
}

// filter returns the filter; ages count back from now.
func (p parkedChoice) filter(now time.Time) (f admin.ParkedFilter, err error) {
	f.Reason, f.NoReason = p.Reason, p.None
	if p.None && p.Reason != "" {
		return f, errors.New("a task without a reason has no text in it: choose one of both")
	}
	if p.Than == "" {
		return f, nil
	}
	age, err := duetime.Span(p.Than)
	if err != nil || age < 0 {
		return f, fmt.Errorf("the age %q must be a duration as in 30m, 2d", p.Than)
	}
	f.Before = now.Add(-age)
	return f, nil
}

// flags returns the flags that select the same.
func (p parkedChoice) flags() (text string) {
	if p.Reason != "" {
		text += " --reason=" + quoted(p.Reason)
	}
	if p.None {
		text += " --no-reason"
	}
	if p.Than != "" {
		text += " --older-than=" + quoted(p.Than)
	}
	return text
}

// parkedReader returns what reads parked tasks for everybody who looks at the same.
func (c *Console) parkedReader(r *http.Request) *reader {
	choice := parkedChoiceOf(r)
	status := &admin.Reader{Store: c.store, OrphansEvery: orphansEvery, OrphansIn: orphansIn}
	read := func(ctx context.Context) (got content, err error) {
		if choice.Topic != "" && task.CheckTopic(choice.Topic) != nil {
			return got, fmt.Errorf("topic %q: %w", choice.Topic, task.ErrUnknownTopic)
		}
		if got.Status, err = status.Read(ctx, choice.Topic); err != nil {
			return got, err
		}
		filter, err := choice.filter(time.Now())
		if err != nil {
			return got, nil //nolint:nilerr // the page says what is wrong with the form
		}
		got.Parked, err = readParked(ctx, c.store, choice.Topic, filter)
		return got, err
	}
	return c.readers.find(parkedKey+choice.query().Encode(), readParkedEvery, measured(c.metrics, "parked", read))
}

// readParked groups the parked tasks of a topic, or of all topics.
func readParked(ctx context.Context, store *shard.Store, topic string, filter admin.ParkedFilter) (got parkedContent,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, parkedLimit)
	defer cancel()
	groups := map[[2]string]*parkedGroup{}
	err = admin.EachParked(ctx, store, topic, filter, func(r shard.Record) bool {
		if got.Tasks == maxParkedRead {
			got.Partial = true
			return false
		}
		got.Tasks++
		key := [2]string{r.Topic, r.Reason}
		g := groups[key]
		if g == nil {
			g = &parkedGroup{Topic: r.Topic, Reason: r.Reason}
			groups[key] = g
		}
		g.Tasks++
		if at := r.ReasonAt; !at.IsZero() {
			if g.Oldest.IsZero() || at.Before(g.Oldest) {
				g.Oldest = at
			}
			if at.After(g.Newest) {
				g.Newest = at
			}
		}
		if topic != "" && len(got.First) < maxParkedRows {
			got.First = append(got.First, r)
		}
		return true
	})
	for _, g := range groups {
		got.Groups = append(got.Groups, *g)
	}
	slices.SortFunc(got.Groups, func(a, b parkedGroup) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), strings.Compare(a.Topic, b.Topic), strings.Compare(a.Reason, b.Reason))
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && got.Tasks > 0:
		got.Partial, err = true, nil
	case shard.Unreadable(err) != nil:
		got.Unread, err = err.Error(), nil
	}
	return got, err
}

// parkedView has everything that the page of parked tasks shows.
type parkedView struct {
	parkedChoice
	Topics []string
	// Mistake says what is wrong with the form; "" for nothing.
	Mistake string
	parkedContent
	// Parked is how many tasks of the topics are parked, whatever the form says.
	Parked int64
	// Hidden is how many groups are left out.
	Hidden int
	Rows   []parkedRow
	Groups []parkedGroupRow
	// Links act on all that the form selects.
	Links parkedLinks
	// Command lists the same tasks.
	Command string
	Changes []changeRow
	Now     time.Time
}

// parkedLinks open pages of actions; "" for none.
type parkedLinks struct{ Show, Replay, Purge string }

// parkedRow is one parked task.
type parkedRow struct {
	shard.Record
	Attempts int
	parkedLinks
}

// parkedGroupRow is one group.
type parkedGroupRow struct {
	parkedGroup
	parkedLinks
}

// parkedLinksTo returns the links for a selection.
func parkedLinksTo(q url.Values) parkedLinks {
	text := q.Encode()
	return parkedLinks{Show: "/parked?" + text, Replay: "/parked/replay?" + text, Purge: "/parked/purge?" + text}
}

func (c *Console) parked(ctx context.Context, r *http.Request, now reading) (any, error) {
	if errors.Is(now.err, task.ErrUnknownTopic) {
		return nil, now.err
	}
	v := parkedView{parkedChoice: parkedChoiceOf(r), parkedContent: now.Parked, Now: now.At}
	topics, err := c.store.Registry().Topics(ctx)
	if err != nil {
		topics = nil // the page says that Redis can't be read
	}
	v.Topics = topics
	slices.Sort(v.Topics)
	for _, t := range now.Topics {
		v.Parked += t.Parked
	}
	if _, err := v.filter(time.Now()); err != nil {
		v.Mistake = err.Error()
	}
	v.Command = "scanner parked ls" + strings.TrimRight(" "+v.Topic, " ") + v.flags()
	v.Changes = changeRows(c.changes.newest(v.Topic, maxChangeRows))
	if v.Topic != "" && v.Tasks > 0 {
		q := v.query()
		if len(q) == 1 {
			q.Set("all", "1")
		}
		v.Links = parkedLinksTo(q)
	}
	for _, g := range now.Parked.Groups[:min(len(now.Parked.Groups), maxParkedGroups)] {
		links := parkedLinksTo(parkedChoice{g.Topic, g.Reason, v.Than, g.Reason == ""}.query())
		v.Groups = append(v.Groups, parkedGroupRow{g, links})
	}
	v.Hidden = len(now.Parked.Groups) - len(v.Groups)
	for _, p := range now.Parked.First {
		q := url.Values{"topic": {p.Topic}, "id": {p.ID}}
		row := parkedRow{Record: p, Attempts: max(p.Attempt-1, 0), parkedLinks: parkedLinksTo(q)}
		row.Show = "/task?" + q.Encode()
		v.Rows = append(v.Rows, row)
	}
	return v, nil
}

// parkedPlan returns what replays or purges the parked tasks that a request selects.
func (c *Console) parkedPlan(r *http.Request, verb string) (plan, error) {
	q, choice := r.URL.Query(), parkedChoiceOf(r)
	if err := c.knownTopic(r, choice.Topic); err != nil {
		return plan{}, err
	}
	filter, err := choice.filter(time.Now())
	id := q.Get("id")
	some := choice.Reason != "" || choice.Than != "" || choice.None
	if err != nil || id == "" && !some && q.Get("all") == "" {
		return plan{}, fmt.Errorf("an address without a selection of parked tasks: %w", task.ErrNotFound)
	}
	p := plan{Topic: choice.Topic, Back: link{"Parked", parkedLinksTo(choice.query()).Show}, Audit: "parked " + verb,
		Filter: cmp.Or(strings.TrimSpace(filter.String()), "all"), Paced: verb == "replay" && id == "",
		Base: "scanner parked " + verb + " " + choice.Topic + cmp.Or(choice.flags(), " --all")}
	p.Which = "all that is parked in topic " + p.Topic + filter.String()
	if id != "" {
		p.Filter, p.Which = "ID "+strconv.Quote(shard.ShortID(id)), "ID "+strconv.Quote(shard.ShortID(id))
		p.Base = "scanner parked " + verb + " " + p.Topic + " --id=" + quoted(id)
	}
	parked := admin.Parked{Topic: c.store.Topic(p.Topic), Filter: filter}
	p.Title, p.Done, p.Text = "Replay", "Replayed", "A replayed task is due now, and its attempts count from the start."
	do := admin.Parked.Replay
	if verb == "purge" {
		p.Title, p.Done, p.Text, p.Grave = "Purge", "Purged", "A purged task is gone for good.", true
		do = admin.Parked.Purge
	}
	p.count = func(ctx context.Context) (bulk.Counts, error) { return countParked(ctx, parked, id) }
	p.do = func(ctx context.Context, p plan, progress func(done, of int64)) (n bulk.Counts, err error) {
		parked.Limit, parked.Rate, parked.Progress = p.Limit, p.Rate, progress
		changed, err := do(parked, ctx, id)
		n.Changed = int64(changed)
		if left := (*admin.LeftError)(nil); errors.As(err, &left) {
			n.Failed = int64(left.Tasks)
		}
		n.Matched = n.Changed + n.Failed
		return n, err
	}
	return p, nil
}

// countParked counts the parked tasks that a change would change: one, or if id is "" all
// that the filter selects.
func countParked(ctx context.Context, p admin.Parked, id string) (n bulk.Counts, err error) {
	if id == "" {
		n.Changed, err = p.Count(ctx)
		return n, err
	}
	found, _, err := admin.FindTask(ctx, p.Topic, id)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return n, nil
	case err == nil && found.State == task.Parked:
		n.Changed = 1
	}
	return n, err
}
