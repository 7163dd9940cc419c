package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// Verdict says how the live scanners took a topic's document.
type Verdict struct {
	Topic string
	// Live is the number of scanners, Applied the number of those that deliver by the
	// document.
	Live, Applied int
	// Elsewhere counts scanners that use another source of documents; they don't count in
	// Live.
	Elsewhere int
	// Refused, Blocked and Open count the others by what they report. Refused: the
	// document is broken. Blocked: they applied it, but something prevents the topic's
	// delivery. Open: they still wait for something.
	Refused, Blocked, Open map[string]int
}

// ReadVerdict reads from the heartbeats how scanners took a topic's document written at
// index, or a later one.
func ReadVerdict(fleet []balance.Member, topic string, index uint64) Verdict {
	v := Verdict{Topic: topic, Refused: map[string]int{}, Blocked: map[string]int{}, Open: map[string]int{}}
	for _, m := range balance.Live(fleet) {
		if m.Refused != "" {
			v.Elsewhere++
			continue
		}
		v.Live++
		switch {
		case m.Applied < index:
			v.Open[cmp.Or(m.Errors[""], "it has not been read yet")]++
		case m.Errors[topic] != "":
			v.Refused[m.Errors[topic]]++
		case m.Blocked[topic] != "":
			v.Blocked[cmp.Or(m.Trouble(topic), m.Blocked[topic])]++
		case slices.Contains(m.Applying, topic):
			v.Open[cmp.Or(m.Trouble(topic), "RabbitMQ has not answered yet")]++
		default:
			v.Applied++
		}
	}
	return v
}

// Final reports whether no scanner is left to wait for.
func (v Verdict) Final() bool { return len(v.Open) == 0 }

// Bad reports whether a scanner refuses the document, or can't deliver the topic with it.
// That a topic can't be delivered is no fault of a document that pauses it.
func (v Verdict) Bad(pausing bool) bool { return len(v.Refused) > 0 || len(v.Blocked) > 0 && !pausing }

// Text returns the verdict on one line, as in "applied by 2 scanners".
func (v Verdict) Text() string {
	if v.Live == 0 && v.Elsewhere > 0 {
		return "not applied: the running scanners use another source of topics, which `scanner status` names"
	}
	if v.Live == 0 {
		return "no scanner runs, so nobody has applied it yet"
	}
	var parts []string
	if v.Applied > 0 {
		parts = append(parts, "applied by "+v.share(v.Applied))
	}
	for _, of := range []struct {
		what string
		by   map[string]int
	}{{"refused", v.Refused}, {"blocked", v.Blocked}, {"not applied yet", v.Open}} {
		for _, why := range slices.Sorted(maps.Keys(of.by)) {
			parts = append(parts, fmt.Sprintf("%s by %s: %s", of.what, v.share(of.by[why]), why))
		}
	}
	return strings.Join(parts, "; ")
}

// share says how many of the scanners n is.
func (v Verdict) share(n int) string {
	switch {
	case n < v.Live:
		return fmt.Sprintf("%d of %d scanners", n, v.Live)
	case n == 1:
		return "1 scanner"
	}
	return fmt.Sprintf("%d scanners", n)
}

// Patience is how long to wait for scanners to report whether they apply a document. They
// report every second; a killed scanner counts as live for 3 s.
const Patience = 6 * time.Second

// Fleet asks Redis about the scanners that share it. It implements topicconfig.Fleet.
type Fleet struct{ Store *shard.Store }

// Written is a document that was written: its topic, and its index in Consul.
type Written struct {
	Topic string
	Index uint64
}

// Await reads verdicts on written documents until all are final, ctx ends, or Patience is
// over. It returns the last ones, in the order of the documents.
func (f Fleet) Await(ctx context.Context, written ...Written) (last []Verdict, err error) {
	last = make([]Verdict, len(written))
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for asked := false; ; asked = true {
		members, err := balance.Members(ctx, f.Store)
		if err != nil {
			if asked && errors.Is(err, context.DeadlineExceeded) {
				return last, nil
			}
			return last, err
		}
		final := true
		for i, w := range written {
			last[i] = ReadVerdict(members, w.Topic, w.Index)
			final = final && last[i].Final()
		}
		if final {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, nil
		case <-time.After(lookEvery):
		}
	}
}

// Applied implements topicconfig.Fleet.
func (f Fleet) Applied(ctx context.Context, topic string, index uint64) (why string, err error) {
	last, err := f.Await(ctx, Written{topic, index})
	if v := last[0]; err == nil && (v.Applied == 0 || v.Applied < v.Live+v.Elsewhere) {
		why = v.Text()
	}
	return why, err
}

// InForce implements topicconfig.Fleet.
func (f Fleet) InForce(ctx context.Context, topic string) ([]byte, error) {
	return f.Store.Registry().Document(ctx, topic)
}

// Older implements topicconfig.Fleet.
func (f Fleet) Older(ctx context.Context, format int) (now time.Time, names []string, err error) {
	ms, err := f.Store.Now(ctx)
	if err != nil {
		return now, nil, err
	}
	members, err := balance.Members(ctx, f.Store)
	for _, m := range balance.Live(members) {
		if m.Refused == "" && m.Format < format {
			names = append(names, m.Instance)
		}
	}
	return time.UnixMilli(ms), names, err
}

const (
	// lookEvery is the time between two looks at what is waited for.
	lookEvery = 250 * time.Millisecond
	// beginWithin is how long a live scanner may take to begin a change of the shard count.
	beginWithin = 15 * time.Second
)

// Waiting waits for a change of a topic's shard count.
type Waiting struct {
	Store  *shard.Store
	Topic  string
	Shards int
	// Superseded returns an error if the topic shall no longer have Shards shards.
	Superseded func(context.Context) error
	// Show is called with the topic while it changes, and with nil while no scanner runs.
	Show func(*TopicStatus)

	idle  time.Time // the earliest time at which a scanner could begin the change
	begun bool      // a change of this topic was seen
}

// Run waits until the topic has Shards shards. It fails if the change is superseded, or if
// live scanners don't begin it within 15 s. It also fails after timeout (0 means never) and
// when ctx ends; in these cases the change itself goes on.
func (w *Waiting) Run(ctx context.Context, timeout time.Duration) error {
	w.idle = time.Now()
	var over <-chan time.Time // never, without a timeout
	if timeout > 0 {
		over = time.After(timeout)
	}
	stopped := func(why string) error {
		return fmt.Errorf("topic %s: %s; the change goes on, see `scanner status --topic %s`", w.Topic, why, w.Topic)
	}
	for {
		done, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return stopped("waiting was interrupted")
		case done || err != nil:
			return err
		}
		select {
		case <-ctx.Done():
		case <-over:
			return stopped(fmt.Sprintf("the change is not over within %s", timeout))
		case <-time.After(lookEvery):
		}
	}
}

// look shows the progress of the change and reports whether it is over.
func (w *Waiting) look(ctx context.Context) (done bool, err error) {
	status, err := ReadStatus(ctx, w.Store, w.Topic)
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return false, err
	}
	known := err == nil
	if known && status.Topics[0].Change == nil && status.Topics[0].Shards == w.Shards {
		return true, nil
	}
	if err := w.Superseded(ctx); err != nil {
		return false, err
	}
	if len(balance.Live(status.Fleet)) == 0 {
		w.idle = time.Now()
		w.Show(nil)
		return false, nil
	}
	if known && status.Topics[0].Change != nil {
		w.begun = true
		w.Show(&status.Topics[0])
		return false, nil
	}
	if !w.begun && time.Since(w.idle) > beginWithin {
		return false, fmt.Errorf("topic %s: no scanner has begun the change within %s; see `scanner status`", w.Topic,
			beginWithin)
	}
	return false, nil
}
