package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// player plays one transcript.
type player struct {
	fixture *fixture
	proxy   *proxy
	program *program
	result  *Result

	mu   sync.Mutex // steps are executed by the player, and by the proxy during a fault
	asks []asked
	ops  map[string]int // op -> the request it was used for
}

// asked is an answered request.
type asked struct {
	answer        map[string]any
	before, after int64 // Redis's time in ms
}

func (p *player) fail(format string, args ...any) {
	p.result.Failures = append(p.result.Failures, fmt.Sprintf(format, args...))
}

// play executes the steps, and then compares the state. It stops at the first failure,
// since later ones would say nothing. It returns only the kit's own errors.
func (p *player) play(ctx context.Context, t Transcript) error {
	p.ops = map[string]int{}
	for i, s := range t.Steps {
		err := p.step(ctx, s)
		var possible stepError
		if errors.As(err, &possible) {
			p.fail("step %d, %v", i+1, err)
		} else if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		// The refused commands come first: they explain the other failures.
		p.result.Failures = append(p.proxy.found(), p.result.Failures...)
		if len(p.result.Failures) > 0 {
			return nil
		}
	}
	for _, f := range p.proxy.pending() {
		p.fail("no command met the fault %s", f)
	}
	return p.compareState(ctx, t.After)
}

func (p *player) step(ctx context.Context, s Step) error {
	switch {
	case s.Ask != nil:
		return p.ask(ctx, s.Ask)
	case s.Fault != nil:
		f := *s.Fault
		if len(f.Do) > 0 {
			f.meanwhile = func(ctx context.Context) error { return p.doAll(ctx, f.Do) }
		}
		p.proxy.arm(&f)
		return nil
	case s.Deliver != "":
		answer, err := p.proxy.deliver(ctx)
		if err == nil && answer != s.Deliver {
			p.fail("the script that was kept was answered %q, want %q", answer, s.Deliver)
		}
		return err
	}
	return p.doAll(ctx, []Step{s})
}

func (p *player) doAll(ctx context.Context, steps []Step) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range steps {
		if err := p.fixture.do(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a request, and compares the answer and the scripts that were sent for it.
func (p *player) ask(ctx context.Context, a *Ask) error {
	line, err := p.line(a)
	if err != nil {
		return err
	}
	first := len(p.proxy.since(0))
	before, err := p.now(ctx)
	if err != nil {
		return err
	}
	answer, failed := p.program.ask(ctx, line)
	if err := ctx.Err(); err != nil {
		return err
	}
	after, err := p.now(ctx)
	if err != nil {
		return err
	}
	got := p.proxy.since(first)
	for _, s := range got {
		select {
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	about := fmt.Sprintf("request %d, %.300s: ", p.program.line, line)
	if failed != nil {
		p.fail("%s%v%s", about, failed, listing(got))
		return nil
	}
	p.asks = append(p.asks, asked{answer, before, after})
	for _, wrong := range p.compareAnswer(a, answer) {
		text, _ := json.Marshal(answer) // it was decoded from JSON
		p.fail("%s%s; the answer is %.600s%s", about, wrong, text, listing(got))
	}
	for _, wrong := range append(compareScripts(a.Scripts, got), p.habits(got)...) {
		p.fail("%s%s", about, wrong)
	}
	return nil
}

func (p *player) now(ctx context.Context) (int64, error) {
	now, err := p.fixture.rdb.Time(ctx).Result()
	return now.UnixMilli(), err
}

// line returns a request as one line.
func (p *player) line(a *Ask) (line string, err error) {
	if a.Line != "" {
		return a.Line, nil
	}
	request := map[string]any{}
	for name, v := range a.Request {
		if request[name], err = spread(v); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if _, named := request["topic"]; !named {
		request["topic"] = p.fixture.topic
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err = enc.Encode(request)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// spread replaces {"repeat": text, "times": n} with the repeated text.
func spread(v any) (any, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return v, nil
	}
	if text, ok := object["repeat"].(string); ok {
		times, _ := object["times"].(json.Number)
		n, err := times.Int64()
		return strings.Repeat(text, int(n)), err
	}
	whole := map[string]any{}
	for name, v := range object {
		var err error
		if whole[name], err = spread(v); err != nil {
			return nil, err
		}
	}
	return whole, nil
}

// compareState compares the contents of the shards with the transcript's.
func (p *player) compareState(ctx context.Context, want State) error {
	got, problems, err := p.fixture.state(ctx)
	if err != nil {
		return err
	}
	for _, text := range problems {
		p.fail("in the end %s", text)
	}
	for _, w := range want.Tasks {
		i := slices.IndexFunc(got.Tasks, func(t Task) bool { return t.ID == w.ID && t.Shard == w.Shard })
		if i < 0 {
			p.fail("in the end %q is not in shard %d%s", w.ID, w.Shard, whereIs(got, w.ID))
			continue
		}
		for _, wrong := range p.compareTask(w, got.Tasks[i]) {
			p.fail("in the end %q in shard %d has %s", w.ID, w.Shard, wrong)
		}
		got.Tasks = slices.Delete(got.Tasks, i, i+1)
	}
	for _, t := range got.Tasks {
		p.fail("in the end %q, with the payload %.60q, is in shard %d, and should not be", t.ID, t.Payload, t.Shard)
	}
	for n := range p.fixture.shards {
		at := fmt.Sprint(n)
		if !slices.Equal(want.Handled[at], got.Handled[at]) {
			p.fail("in the end the handled IDs of shard %s holds %q, want %q", at, got.Handled[at], want.Handled[at])
		}
	}
	return nil
}

func whereIs(s State, id string) string {
	for _, t := range s.Tasks {
		if t.ID == id {
			return fmt.Sprintf(", but in shard %d", t.Shard)
		}
	}
	return ", nor anywhere else"
}

func (p *player) compareTask(want, got Task) (wrong []string) {
	if want.Unreadable || got.Unreadable {
		if want.Unreadable != got.Unreadable {
			wrong = append(wrong, fmt.Sprintf("a record that can be read: %t, want %t", !got.Unreadable, !want.Unreadable))
		}
		return wrong
	}
	check := func(what string, got, want any) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s %.200q, want %.200q", what, fmt.Sprint(got), fmt.Sprint(want)))
		}
	}
	check("the state", got.State, want.State)
	check("the payload", got.Payload, want.payload())
	check("the content type", got.ContentType, want.ContentType)
	check("the headers", fmt.Sprint(got.Headers), fmt.Sprint(want.Headers))
	check("the attempts", got.Attempts, want.Attempts)
	if due, isNumber := got.Due.(int64); want.Due != nil && isNumber {
		if problem := p.compareTime(want.Due, due); problem != "" {
			wrong = append(wrong, "the due time "+problem)
		}
	}
	return wrong
}
