package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// batches are open batches of a test.
type batches struct {
	d      *door
	bodies []*io.PipeWriter
	ended  chan error
}

// open opens a batch that sends nothing, and waits until it runs.
func (b *batches) open(headers ...string) {
	b.d.t.Helper()
	body, lines := io.Pipe()
	b.bodies = append(b.bodies, lines)
	go func() { _, err := b.d.batch(body, headers...); b.ended <- err }()
	running := &b.d.server.http.Handler.(*handler).batches
	check.Until(b.d.t, "the batch", func() bool { return running.running() == len(b.bodies) })
}

// end ends all batches.
func (b *batches) end() {
	b.d.t.Helper()
	for _, lines := range b.bodies {
		check.OK(b.d.t, lines.Close())
	}
	for range b.bodies {
		check.OK(b.d.t, check.Receive(b.d.t, "the end", b.ended))
	}
	b.bodies = nil
}

// TestAFifthBatchWaitsItsTurn: the answer has the time to wait. A compressed batch is refused.
func TestAFifthBatchWaitsItsTurn(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.do("POST", batchPath, "{}", "Content-Type: application/x-ndjson", "Content-Encoding: gzip").
		want(t, "compressed", 415, "encoding")
	all := batches{d: d, ended: make(chan error, mostBatches)}
	for range mostBatches {
		all.open()
	}
	a := d.do("POST", batchPath, "{}", "Content-Type: application/x-ndjson")
	a.want(t, "a fifth batch", http.StatusServiceUnavailable, "busy")
	all.end()
}

// TestAClientHasTwoBatches at most, so that other clients have room. A client that sends too many
// requests opens none.
func TestAClientHasTwoBatches(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	const all = "schedule, get, reschedule, cancel"
	const slowToken = "slow-0123456789-0123456789-0123456789"
	writeTokens(t, file, entry("shop", shopToken, "orders", all)+entry("mail", mailToken, "orders", all)+
		entry("slow", slowToken, "*", "get")+"    rate: 0.001\n")
	d := open(t, func(c *Config) { c.Tokens = file })
	open := batches{d: d, ended: make(chan error, mostBatches)}
	third := func(token string) answer {
		return d.do("POST", batchPath, "{}", bearer(token), "Content-Type: application/x-ndjson")
	}
	for range mostOfOne {
		open.open(bearer(shopToken))
	}
	a := third(shopToken)
	a.want(t, "a third batch", 429, "too_many_batches")
	check.Equal(t, "Retry-After", a.header.Get("Retry-After"), "1")
	check.Equal(t, "retry", fmt.Sprint(a.body["retry"], a.body["retry_after"], a.body["done"]), "true 1no")
	d.do("PUT", path("a")+"?in=1h", "", bearer(shopToken)).want(t, "a single request", 200, nil)
	open.open(bearer(mailToken))
	open.end()
	open.open(bearer(shopToken))
	open.end()
	d.do("GET", path("none"), "", bearer(slowToken)).want(t, "the first", 404, "not_found")
	third(slowToken).want(t, "a batch above the rate", 429, "rate_limited")
}

// patience makes a server that doesn't wait long for lines; change may change its configuration.
func patience(t *testing.T, pause, whole time.Duration, change func(*Config)) *door {
	t.Helper()
	return patient(t, change, func(_ *Server, h *handler) { h.pause, h.whole = pause, whole })
}

// drip writes a text again and again until the batch or ctx ends.
func drip(ctx context.Context, lines *io.PipeWriter, text string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := io.WriteString(lines, text); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// TestASlowBatchEnds: a client that is silent, or sends no whole line, loses its place among the
// batches. The last answer says so. The lines before it are done.
func TestASlowBatchEnds(t *testing.T) {
	t.Parallel()
	const short = time.Second
	const line = `{"verb":"schedule","id":"a","in":"1h"}` + "\n"
	for name, c := range map[string]struct {
		pause, whole     time.Duration
		begin, then, end string // what the client sends, and the line of the last answer
	}{
		"silent":              {pause: short, whole: time.Hour, begin: line, end: "2"},
		"silent in a line":    {pause: short, whole: time.Hour, begin: line + `{"verb":`, end: "2"},
		"a byte now and then": {pause: time.Hour, whole: short, begin: line + "\n", then: "x", end: "3"},
		"empty lines":         {pause: time.Hour, whole: short, begin: line, then: " \n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := patience(t, c.pause, c.whole, nil)
			body, lines := io.Pipe()
			defer lines.Close()
			go func() {
				_, _ = io.WriteString(lines, c.begin)
				if c.then != "" {
					drip(t.Context(), lines, c.then)
				}
			}()
			answers, err := d.batch(body)
			check.OK(t, err)
			check.Equal(t, "answers", len(answers), 2)
			check.Equal(t, "the first", answers[0]["status"], any(200.0))
			last := answers[1]
			check.Equal(t, "the last", fmt.Sprint(last["status"], last["code"], last["done"]), "408slowno")
			if c.end != "" {
				check.Equal(t, "its line", fmt.Sprint(last["line"]), c.end)
			}
			check.Until(t, "room for a batch", func() bool {
				return d.server.http.Handler.(*handler).batches.running() == 0
			})
		})
	}
}

// TestALineNowAndThenIsEnough: a batch goes on for longer than a line may take.
func TestALineNowAndThenIsEnough(t *testing.T) {
	t.Parallel()
	d := patience(t, time.Hour, time.Second, nil)
	body, lines := io.Pipe()
	answered := make(chan map[string]any)
	ended := make(chan error, 1)
	go func() { ended <- d.stream(body, func(line map[string]any) { answered <- line }) }()
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond; {
		_, err := io.WriteString(lines, `{"verb":"get","id":"none"}`+"\n")
		check.OK(t, err)
		check.Equal(t, "status", check.Receive(t, "the answer", answered)["status"], any(404.0))
	}
	check.OK(t, lines.Close())
	check.OK(t, check.Receive(t, "the end", ended))
}

// TestHeadersAreLimited: a task's own largest headers fit, and larger ones are refused.
func TestHeadersAreLimited(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for size, want := range map[int]int{80 << 10: http.StatusUnprocessableEntity, maxHeaderBytes + 8<<10: 431} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, d.url+path("a")+"?in=1h", nil)
		check.OK(t, err)
		req.Header.Set("X-Duefleet-Header-A", strings.Repeat("x", size))
		resp, err := d.client.Do(req)
		check.OK(t, err)
		check.Equal(t, fmt.Sprint(size, " bytes"), resp.StatusCode, want)
		check.OK(t, resp.Body.Close())
	}
	if _, there := d.stored("a"); there {
		t.Error("a refused request stored a task")
	}
}
