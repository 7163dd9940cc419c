package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

const (
	// grace is how long a part may take to end after its time is over.
	grace = 300 * time.Millisecond
	// askedAtOnce is how many topics are examined at the same time.
	askedAtOnce = 8
)

// errInterrupted is why a question has no answer after a signal.
var errInterrupted = errors.New("interrupted")

// limited returns a context that ends after a time. Its cause is the text for NotChecked.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// report collects findings in order. It is safe for concurrent use until together returns.
type report struct {
	mu       sync.Mutex
	findings []Finding
	asking   string    // the check whose answer is waited for
	topics   []*report // of eachTopic; their findings come behind the others
	over     bool      // nothing more is accepted
}

func (r *report) ok(check, format string, args ...any)   { r.add(check, OK, "", format, args...) }
func (r *report) info(check, format string, args ...any) { r.add(check, Info, "", format, args...) }

func (r *report) warn(check, fix, format string, args ...any) {
	r.add(check, Warn, fix, format, args...)
}

func (r *report) fail(check, fix, format string, args ...any) {
	r.add(check, Fail, fix, format, args...)
}

// unchecked reports that a check could not be made, and why.
func (r *report) unchecked(check, format string, args ...any) {
	r.add(check, NotChecked, "", format, args...)
}

// failErr reports a server's refusal as a failure. Without an answer it reports that the
// check could not be made.
func (r *report) failErr(ctx context.Context, err error, check, fix, format string, args ...any) {
	if why := unanswered(ctx, err); why != "" {
		r.unchecked(check, "%s", why)
		return
	}
	r.fail(check, fix, format, args...)
}

func (r *report) add(check string, s State, fix, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := Finding{check, s, fmt.Sprintf(format, args...), fix}
	if !r.over && (s != NotChecked || !slices.Contains(r.findings, f)) {
		r.findings = append(r.findings, f)
	}
}

// ask notes which check is about to wait for an answer.
func (r *report) ask(check string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = check
}

// close ends the report. why is the reason if its work goes on, otherwise "".
func (r *report) close(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over = true; why != "" && r.asking != "" {
		r.findings = append(r.findings, Finding{r.asking, NotChecked, why, ""})
	}
	for _, t := range r.topics {
		t.close("")
		r.findings = append(r.findings, t.findings...)
	}
}

// addReport adds the findings of a report that is complete.
func (r *report) addReport(other *report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.findings = append(r.findings, other.findings...)
	}
}

// failed reports whether a check with this prefix failed.
func (r *report) failed(check string) bool { return r.has(Fail, check) }

// has reports whether a check with this prefix has a state.
func (r *report) has(s State, check string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.findings, func(f Finding) bool {
		return f.State == s && strings.HasPrefix(f.Check, check)
	})
}

// unanswered returns why there was no answer; "" if err is one.
func unanswered(ctx context.Context, err error) string {
	var timeout net.Error
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return cause(ctx)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return "no answer within " + askLimit.String()
	case errors.Is(err, amqp.ErrClosed):
		return "the connection was lost"
	}
	return ""
}

// cause returns why a context is over.
func cause(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errInterrupted.Error()
	}
	return context.Cause(ctx).Error()
}

// part is a group of checks that run one after another. check names what isn't checked if
// nothing answers.
type part struct {
	check  string
	report *report
	// run returns what to do with its results, or nil. That isn't called if run is late.
	run func(ctx context.Context, r *report) (keep func())
}

// together runs parts at the same time. It waits until ctx is over, and a grace. Then it
// keeps what the late parts have found so far. These end later, without a result: some
// requests can't be interrupted.
func together(ctx context.Context, parts ...part) {
	kept := make([]chan func(), len(parts))
	for i, p := range parts {
		kept[i] = make(chan func(), 1)
		p.report.ask(p.check)
		go func() { kept[i] <- p.run(ctx, p.report) }()
	}
	late := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })()
	for i, p := range parts {
		var keep func()
		select {
		case keep = <-kept[i]:
			p.report.close("")
		case <-late:
			p.report.close(cause(ctx))
		}
		if keep != nil {
			keep()
		}
	}
}

// eachTopic examines topics, several at the same time. The findings are in the order of
// names. what names the checks in the line about the topics for which ctx left no time.
func (r *report) eachTopic(ctx context.Context, what string, names []string, examine func(r *report, name string)) {
	topics, left := make([]*report, len(names)), make([]bool, len(names))
	for i := range topics {
		topics[i] = &report{}
	}
	r.mu.Lock()
	r.topics, r.asking = append(r.topics, topics...), what
	r.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for i, name := range names {
		group.Go(func() error {
			if left[i] = ctx.Err() != nil; !left[i] {
				examine(topics[i], name)
			}
			return nil
		})
	}
	_ = group.Wait() // no error is returned
	var unasked []string
	for i, name := range names {
		if left[i] {
			unasked = append(unasked, name)
		}
	}
	if len(unasked) > 0 {
		r.unchecked(what+" of "+named(unasked), "%s", cause(ctx))
	}
}
