package topicconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/duetime"
)

const (
	// writtenAtOnce is how many documents are written at the same time.
	writtenAtOnce = 16
	// topicsNamed is how many topics an error names. It gives the number of the others.
	topicsNamed = 3
)

// Plan is a change of one topic's document. It was checked and isn't written yet.
type Plan struct {
	// Notes say, in sentences about the topic, what the plan does besides changing settings.
	Notes []string
	// Found is the document in Consul, without an index if there is none. After is the one
	// to write.
	Found, After config.Document
	Changes      []config.Change
	// LeftIntakes are the intakes that no scanner serves any more after the change.
	LeftIntakes []LeftIntake
	// Fixed: Found has mistakes, and the change fixes them.
	Fixed bool
	// Same: there is nothing to write.
	Same bool
}

// LeftBindings returns the bindings that the change leaves at the broker. Scanners bind
// the new queue but don't unbind the old one, so each task arrives in both.
func (p Plan) LeftBindings() []Binding {
	if p.Found.Err != nil || p.After.Err != nil {
		return nil
	}
	return LeftBindings([]config.Topic{p.Found.Topic}, p.After.Topic)
}

// Fleet answers what a change asks about the scanners.
type Fleet interface {
	// InForce returns the document that scanners applied last to a topic, nil if none did.
	InForce(ctx context.Context, topic string) ([]byte, error)
	// Older returns Redis's time, and the live scanners that read only an older format of
	// documents.
	Older(ctx context.Context, format int) (now time.Time, names []string, err error)
	// Applied waits for some seconds. It returns why not all live scanners have applied the
	// document that was written at index. It returns "" if all have, and there is one.
	Applied(ctx context.Context, topic string, index uint64) (why string, err error)
}

// Plan applies an edit to a topic's document. It returns the errors of Edit.Of, with a way
// to fix a document that was broken before. It also returns NoDocumentError, LikelyTypoError and
// errors of the servers.
func (d Documents) Plan(ctx context.Context, topic string, e Edit) (Plan, error) {
	found, there, err := d.Read(ctx, topic)
	if err == nil && !there && e.Fleet != nil {
		err = NoDocumentError(topic)
	}
	if err == nil && !there && e.Likely {
		err = d.RefuseLikelyTypo(ctx, topic)
	}
	if err != nil {
		return Plan{Found: found}, err
	}
	p, err := e.Of(topic, found)
	if err != nil && found.Err != nil && e.Fleet != nil {
		p, err = e.ofForce(ctx, topic, found, err)
		if err == nil && !p.Same {
			p.Notes = []string{fmt.Sprintf("its document has mistakes, and `scanner topic history %s -o json` keeps it: the "+
				"last good one, which is in force, takes its place", topic)}
		}
	}
	if err != nil {
		return p, e.explain(err, topic, found)
	}
	if p.Same || e.Fleet != nil { // a topic in a conflict can be paused
		return p, nil
	}
	return p, d.CheckTogether(ctx, &p)
}

// ofForce edits the last good document, which scanners use and which replaces the broken
// one found. It returns broken if there is no such document.
func (e Edit) ofForce(ctx context.Context, topic string, found config.Document, broken error) (p Plan, err error) {
	good, err := e.Fleet.InForce(ctx, topic)
	if err != nil {
		return p, fmt.Errorf("%w; the last good one can't be read from Redis: %w", broken, err)
	}
	if good == nil {
		return p, broken // no scanner has served the topic
	}
	p, err = e.from(topic, good)
	p.Found, p.Same = found, len(p.Changes) == 0
	return p, err
}

// explain adds to the error of an edit how to fix a document that was broken before.
func (e Edit) explain(err error, topic string, before config.Document) error {
	var exists ExistsError
	if errors.As(err, &exists) || before.Err == nil || e.Replace {
		return err
	}
	if e.Fleet != nil {
		return fmt.Errorf("topic %s: scanners would not read it: its document has mistakes, and no good one is known to "+
			"begin from; fix it in the same step, "+
			"`scanner topic set %s KEY=VALUE... %s` (KEY= removes a line), or begin from an empty one with --replace: %w",
			topic, topic, e.Assignments[0], err)
	}
	return fmt.Errorf("%w\nthe document has mistakes: KEY=VALUE fixes a line, KEY= removes it, and --replace begins "+
		"from an empty one", err)
}

// PlanDocument plans to replace a topic's document by raw. It returns config.Errors with
// every mistake of raw, NoDocumentError if the topic has no document, the conflicts with
// other topics, and errors of Consul. A plan may change no setting, only the text.
func (d Documents) PlanDocument(ctx context.Context, topic string, raw []byte) (p Plan, err error) {
	if p.Found, err = d.Find(ctx, topic); err != nil {
		return p, err
	}
	p.After = config.ParseDocument(topic, raw, 0)
	if p.After.Err != nil {
		return p, p.After.Err
	}
	p.Changes, p.Fixed = difference(p.Found, p.After), p.Found.Err != nil
	if p.Same = bytes.Equal(raw, p.Found.Raw); p.Same {
		return p, nil
	}
	return p, d.CheckTogether(ctx, &p)
}

// PlanAll returns plans for the topics whose documents in Consul differ from docs.
func (d Documents) PlanAll(ctx context.Context, docs []config.Document) ([]Plan, error) {
	list, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]config.Document{}
	for _, doc := range list {
		found[doc.Name] = doc
	}
	var plans []Plan
	for _, doc := range docs {
		there := found[doc.Name]
		note := "changes"
		switch {
		case there.Name == "":
			note = "new"
		case there.Err != nil:
			note = "its document has mistakes, and is replaced"
		case len(config.Diff(there.Topic, doc.Topic)) == 0:
			continue
		}
		plans = append(plans, Plan{Notes: []string{note}, Found: there, After: doc, Changes: difference(there, doc)})
	}
	all := make([]*Plan, len(plans))
	for i := range plans {
		all[i] = &plans[i]
	}
	return plans, checkTogether(list, all)
}

// CommitAll writes the plans, several at the same time, and returns those that are written,
// in the order of plans. After the first error it begins no other, and the error names topics
// that are written and topics that aren't. It calls wrote after each document, one call at a
// time.
func (d Documents) CommitAll(ctx context.Context, plans []Plan, by Author, wrote func()) ([]Committed, error) {
	by.Name = d.author(ctx, by.Name) // once for all
	read := d.readTogether(ctx, len(plans))
	all, done := make([]Committed, len(plans)), make([]bool, len(plans))
	var mu sync.Mutex
	group, failed := errgroup.WithContext(ctx)
	group.SetLimit(writtenAtOnce)
	for i, p := range plans {
		group.Go(func() (err error) {
			if failed.Err() != nil {
				return ctx.Err() // nil: another document failed
			}
			if all[i], err = d.commit(ctx, p, by, read); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			done[i] = true
			wrote()
			return nil
		})
	}
	err := group.Wait()
	var written []Committed
	var names, left []string
	for i, p := range plans {
		if !done[i] {
			left = append(left, p.After.Name)
			continue
		}
		written, names = append(written, all[i]), append(names, p.After.Name)
	}
	if err != nil {
		err = fmt.Errorf("written: %s; not written: %s: %w", named(names), named(left), err)
	}
	return written, err
}

// named names topics, and counts those after the third.
func named(topics []string) string {
	switch more := len(topics) - topicsNamed; {
	case len(topics) == 0:
		return "no topic"
	case len(topics) == 1:
		return "topic " + topics[0]
	case more > 0:
		return fmt.Sprintf("topics %s and %d more", strings.Join(topics[:topicsNamed], ", "), more)
	}
	return "topics " + strings.Join(topics, ", ")
}

// RefuseOlder fails if the plan adds a setting that live scanners don't know, such as
// declare.dead_letter or an intake. They would refuse the document and go on by the one
// before. So they would declare the queue without the argument, or leave the intake's tasks
// alone. If the scanners can't be asked, it returns a warning.
func (p Plan) RefuseOlder(ctx context.Context, fleet Fleet) (warning string, err error) {
	key, format := p.added()
	if key == "" {
		return "", nil
	}
	_, old, err := fleet.Older(ctx, format)
	if err != nil {
		return fmt.Sprintf("it isn't known whether all scanners support %s: %v", key, err), nil
	}
	if len(old) > 0 {
		return "", fmt.Errorf("topic %s: scanners of an older version, which would refuse %s: %s; "+
			"nothing was written: upgrade them first", p.After.Name, key, strings.Join(old, ", "))
	}
	return "", nil
}

// added returns the newest setting that the plan adds and that some versions refuse, with
// the format that has it; "" if there is none.
func (p Plan) added() (key string, format int) {
	if p.After.Err != nil {
		return "", 0
	}
	var before map[string]int
	if p.Found.Err == nil {
		before = config.Newer(p.Found.Topic)
	}
	after := config.Newer(p.After.Topic)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] == 0 && after[name] > format {
			key, format = name, after[name]
		}
	}
	return key, format
}

// pauseFormat is the config.Format that has paused_until and paused_reason.
const pauseFormat = 1

// Pause is a pause of a topic, or its end.
type Pause struct {
	Paused bool
	// Until returns when the pause ends by itself, from Redis's time. Nil: it doesn't.
	Until func(now time.Time) (time.Time, error)
	// Reason of the pause, on one line; may be empty.
	Reason string
}

// Assignments returns the settings for an Edit. It fails if a live scanner doesn't know
// paused_until: such a scanner would refuse the document and go on delivering. If not all
// scanners are known to support a reason, it is left out, and warning says so.
func (p Pause) Assignments(ctx context.Context, fleet Fleet, topic string) (all []string, warning string, err error) {
	var end time.Time
	reason := p.Reason
	if p.Until != nil || reason != "" {
		now, old, asked := fleet.Older(ctx, pauseFormat)
		switch {
		case p.Until != nil && asked != nil:
			return nil, "", fmt.Errorf("it isn't known whether all scanners support --until, nothing was written; without "+
				"--until the topic can be paused: %w", asked)
		case p.Until != nil && len(old) > 0:
			return nil, "", fmt.Errorf("topic %s: scanners of an older version, which would refuse a pause with --until and "+
				"go on delivering: %s; nothing was written: upgrade them first, or pause without --until", topic,
				strings.Join(old, ", "))
		case asked != nil || len(old) > 0:
			reason, warning = "", "it isn't known whether all scanners support --reason: it is only in the history"
		case p.Until != nil:
			if end, err = p.Until(now); err != nil {
				return nil, "", err
			}
		}
	}
	return []string{fmt.Sprintf("paused=%t", p.Paused), "paused_until=" + duetime.Text(end), "paused_reason=" + reason},
		warning, nil
}
