package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/task"
)

const (
	// countLimit limits the count of what an action would change.
	countLimit = 8 * time.Second
	// readChangeEvery is the pause between two events of a change's page.
	readChangeEvery = time.Second
)

// plan says what an action would do with tasks of a topic, and does it.
type plan struct {
	Topic string
	// Title names the action and Done its result: "Replay", "Replayed".
	Title, Done string
	// Text says what the action means for a task, and Which names the tasks.
	Text, Which string
	// Recurring says what the action means for a recurring task.
	Recurring string
	// Back is the page with the tasks.
	Back link
	// Grave is true if the tasks are gone after it.
	Grave bool
	// Paced is true if the action takes Limit and Rate. For these, 0 means no limit.
	Paced       bool
	Limit, Rate int
	// Moves is true if the action takes To, a due time or a duration from now, or By.
	Moves  bool
	To, By string
	when   task.When // of To
	shift  time.Duration
	// Base and Tail are the command that does the same. Flags for the fields above are
	// between them.
	Base, Tail string
	// Audit and Filter are the command and the filter of the audit record.
	Audit, Filter string

	count func(ctx context.Context) (bulk.Counts, error)
	do    func(ctx context.Context, p plan, progress func(done, of int64)) (bulk.Counts, error)
}

// Command returns the command that does the same.
func (p plan) Command() string {
	text := p.Base
	if p.To != "" {
		text += " --" + p.toField() + "=" + quoted(p.To)
	}
	if p.By != "" {
		text += " --by=" + quoted(p.By)
	}
	if p.Limit > 0 {
		text += " --limit=" + strconv.Itoa(p.Limit)
	}
	if p.Rate > 0 {
		text += " --rate=" + strconv.Itoa(p.Rate)
	}
	return text + p.Tail
}

// audit returns the command of the audit record.
func (p plan) audit() string {
	switch {
	case p.To != "":
		return p.Audit + " --" + p.toField() + " " + p.To
	case p.By != "":
		return p.Audit + " --by " + p.By
	}
	return p.Audit
}

// read sets what the form of a request asks for.
func (p *plan) read(r *http.Request) error {
	if p.Paced {
		for name, field := range map[string]*int{"limit": &p.Limit, "rate": &p.Rate} {
			text := strings.TrimSpace(r.PostFormValue(name))
			n, err := strconv.Atoi(text)
			if text != "" && (err != nil || n < 1) {
				return fmt.Errorf("the %s %q must be a whole number of 1 or more", name, text)
			}
			*field = n
		}
	}
	if !p.Moves {
		return nil
	}
	p.To, p.By = strings.TrimSpace(r.PostFormValue("to")), strings.TrimSpace(r.PostFormValue("by"))
	return p.readMove(time.Now())
}

// actView has everything that the page of an action shows.
type actView struct {
	plan
	Counts bulk.Counts
	// Mistake says what is wrong with the input, or why the tasks can't be counted; "" for
	// nothing.
	Mistake string
	// Running is another change of the topic that runs; nil: none.
	Running *change
	// Uncounted is true if the tasks could not be counted.
	Uncounted bool
}

// routeAct registers the page of an action. Its GET counts what the action would change, its
// POST starts it. The address has the selection; the form has limit and rate.
func (c *Console) routeAct(mux *http.ServeMux, path string, planOf func(r *http.Request) (plan, error)) error {
	t, err := parse("act.html")
	if err != nil {
		return err
	}
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		p, err := planOf(r)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		c.showAct(w, r, t, http.StatusOK, actView{plan: p})
	})
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
		p, err := planOf(r)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		c.act(w, r, t, p)
	})
	return nil
}

// showAct counts and shows what an action would change.
func (c *Console) showAct(w http.ResponseWriter, r *http.Request, t *template.Template, status int, v actView) {
	ctx, cancel := context.WithTimeout(r.Context(), countLimit)
	defer cancel()
	var err error
	switch v.Counts, err = v.count(ctx); {
	case errors.Is(err, context.DeadlineExceeded):
		v.Uncounted, v.Mistake = true, "to count the tasks takes more than "+countLimit.String()+": use the command below"
	case err != nil:
		v.Uncounted, v.Mistake = true, "the tasks can't be counted: "+err.Error()
	}
	c.write(w, r, status, t, page{Title: v.Title + ": " + v.Topic, Body: v})
}

// act starts an action and sends the browser to the page of the change.
func (c *Console) act(w http.ResponseWriter, r *http.Request, t *template.Template, p plan) {
	if err := p.read(r); err != nil {
		c.showAct(w, r, t, http.StatusBadRequest, actView{plan: p, Mistake: err.Error()})
		return
	}
	who := whoOf(r).Name
	id, err := c.changes.start(r.Context(), &change{Topic: p.Topic, By: who, Title: p.Title, Done: p.Done, Back: p.Back,
		Command: p.Command(), do: c.audited(p, who), after: func() { c.readers.expire(parkedKey) }})
	if busy := (*busyError)(nil); errors.As(err, &busy) {
		c.showAct(w, r, t, http.StatusConflict, actView{plan: p, Running: busy.running})
		return
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/change/"+id, http.StatusSeeOther)
}

// host returns this machine's name for the audit.
func host() string {
	name, _ := os.Hostname() // on an error: "?"
	return cmp.Or(name, "?")
}

// audited returns what carries out a plan, with an audit entry.
func (c *Console) audited(p plan, who string) func(context.Context, func(int64, int64)) (bulk.Counts, error) {
	e := bulk.Entry{By: who, Host: host(), Command: p.audit(), Topic: p.Topic, Filter: p.Filter}
	if p.Limit > 0 {
		e.Filter += fmt.Sprintf(", at most %d", p.Limit)
	}
	return func(ctx context.Context, progress func(int64, int64)) (bulk.Counts, error) {
		n, err := c.auditedAction(ctx, e, func() (bulk.Counts, error) {
			n, err := p.do(ctx, p, progress)
			if err != nil && ctx.Err() != nil {
				err = errors.New("the console was stopped; what is " + strings.ToLower(p.Done) + " stays so")
			}
			return n, err
		})
		c.log.InfoContext(ctx, "change ended", "user", who, "command", e.Command, "topic", p.Topic, "filter", e.Filter,
			"changed", n.Changed, "skipped", n.Skipped, "failed", n.Failed, "error", err)
		return n, err
	}
}

// changeRow is a change, and how far it is now.
type changeRow struct {
	*change
	changeState
}

func changeRows(some []*change) (rows []changeRow) {
	for _, one := range some {
		rows = append(rows, changeRow{one, one.State()})
	}
	return rows
}

// changeReader returns what reads the topic of a change.
func (c *Console) changeReader(r *http.Request) *reader {
	one := c.changes.find(r.PathValue("id"))
	if one == nil {
		return c.reader
	}
	status := &admin.Reader{Store: c.store, OrphansEvery: orphansEvery, OrphansIn: orphansIn}
	read := func(ctx context.Context) (got content, err error) {
		got.Status, err = status.Read(ctx, one.Topic)
		return got, err
	}
	return c.readers.find("change "+one.Topic, readChangeEvery, measured(c.metrics, "change", read))
}

// change shows one change, running or ended.
func (c *Console) change(_ context.Context, r *http.Request, _ reading) (any, error) {
	one := c.changes.find(r.PathValue("id"))
	if one == nil {
		return nil, fmt.Errorf("a change that began before the console did, or long ago; scanner audit shows it: %w",
			task.ErrNotFound)
	}
	return changeRow{one, one.State()}, nil
}
