package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// talk is a batch that stays open, with one answer at a time.
type talk struct {
	d        *door
	lines    *io.PipeWriter
	answered chan map[string]any
	ended    chan error
}

func (d *door) talk(headers ...string) *talk {
	d.t.Helper()
	body, lines := io.Pipe()
	c := &talk{d: d, lines: lines, answered: make(chan map[string]any), ended: make(chan error, 1)}
	go func() { c.ended <- d.stream(body, func(line map[string]any) { c.answered <- line }, headers...) }()
	d.t.Cleanup(func() { _ = lines.Close() })
	return c
}

// status sends a line and returns the status and the code of its answer.
func (c *talk) status(line string) string {
	c.d.t.Helper()
	_, err := io.WriteString(c.lines, line+"\n")
	check.OK(c.d.t, err)
	a := check.Receive(c.d.t, "the answer to "+line, c.answered)
	return fmt.Sprint(a["status"], " ", a["code"])
}

// TestAnOpenBatchLosesItsRights when the file of tokens takes them away. Without the token, or
// without the topic, the batch ends, though its client would go on.
func TestAnOpenBatchLosesItsRights(t *testing.T) {
	t.Parallel()
	const get, cancel = `{"verb":"get","id":"none"}`, `{"verb":"cancel","id":"none"}`
	const nextToken = "next-0123456789-0123456789-0123456789"
	for name, c := range map[string]struct{ entry, want string }{
		"no token": {entry("shop", nextToken, "orders", "get, cancel"), "401 unauthorized"},
		"no topic": {entry("shop", shopToken, "mail-*", "get, cancel"), "403 forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "tokens.yaml")
			writeTokens(t, file, entry("shop", shopToken, "orders", "get, cancel"))
			d := open(t, func(c *Config) { c.Tokens = file })
			batch := d.talk(bearer(shopToken))
			check.Equal(t, "at first", batch.status(get), "404 not_found")
			writeTokens(t, file, entry("shop", shopToken, "orders", "cancel"))
			check.Until(t, "the verb's end", func() bool { return batch.status(get) == "403 forbidden" })
			check.Equal(t, "another verb", batch.status(cancel), "404 not_found")
			writeTokens(t, file, c.entry)
			check.Until(t, "the end", func() bool { return batch.status(cancel) == c.want })
			check.OK(t, check.Receive(t, "the end of the answers", batch.ended))
			check.Until(t, "room for a batch", func() bool {
				return d.server.http.Handler.(*handler).batches.running() == 0
			})
			if log := d.log.String(); !strings.Contains(log, "client refused") || !strings.Contains(log, "verb=batch") {
				t.Errorf("the log doesn't name the batch:\n%s", log)
			}
		})
	}
}

// TestANewRateHoldsForAnOpenBatch from its next lines on.
func TestANewRateHoldsForAnOpenBatch(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	writeTokens(t, file, entry("shop", shopToken, "orders", "get"))
	d := open(t, func(c *Config) { c.Tokens = file })
	batch := d.talk(bearer(shopToken))
	const get = `{"verb":"get","id":"none"}`
	check.Equal(t, "at first", batch.status(get), "404 not_found")
	writeTokens(t, file, entry("shop", shopToken, "orders", "get")+"    rate: 0.001\n")
	check.Until(t, "the rate", func() bool { return batch.status(get) == "429 rate_limited" })
	check.OK(t, check.Receive(t, "the end of the answers", batch.ended))
}

// TestABatchAboveItsRateEnds: it waits for its rate, but not for long, so that others get its
// place. Lines that are no requests count, too. Each line before the last one has its answer.
func TestABatchAboveItsRateEnds(t *testing.T) {
	t.Parallel()
	const lines, pause = 400, time.Second
	for name, c := range map[string]struct {
		rate        float64
		line        string
		status      float64
		least, most int // answers
	}{
		"good lines":   {rate: 20, line: `{"verb":"get","id":"none"}`, status: 404, least: 36, most: 100},
		"bad lines":    {rate: 20, line: `no JSON`, status: 400, least: 36, most: 100},
		"a small rate": {rate: 0.001, line: `{"verb":"get","id":"none"}`, least: 1, most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "tokens.yaml")
			writeTokens(t, file, entry("shop", shopToken, "orders", "get")+fmt.Sprintf("    rate: %g\n", c.rate))
			d := patience(t, pause, time.Hour, func(c *Config) { c.Tokens = file })
			answers, err := d.batch(strings.NewReader(strings.Repeat(c.line+"\n", lines)), bearer(shopToken))
			check.OK(t, err)
			if n := len(answers); n < c.least || n > c.most {
				t.Fatalf("%d answers, want %d to %d", n, c.least, c.most)
			}
			for n, a := range answers[:len(answers)-1] {
				check.Equal(t, "line and status", fmt.Sprint(a["line"], " ", a["status"]), fmt.Sprint(n+1, " ", c.status))
			}
			last := answers[len(answers)-1]
			check.Equal(t, "its line", last["line"], any(float64(len(answers))))
			check.Equal(t, "the last", fmt.Sprint(last["status"], last["code"], last["done"], last["retry"]),
				"429rate_limitednotrue")
			if after, _ := last["retry_after"].(float64); after < 1 || c.rate < 1 && (after < 900 || after > 1000) {
				t.Errorf("retry_after %v at a rate of %g", after, c.rate)
			}
			check.Until(t, "room for a batch", func() bool {
				return d.server.http.Handler.(*handler).batches.running() == 0
			})
		})
	}
}

// TestABatchThatEndsEarlyEndsItsConnection: the rest of its body is no request.
func TestABatchThatEndsEarlyEndsItsConnection(t *testing.T) {
	t.Parallel()
	d := patience(t, 200*time.Millisecond, time.Hour, nil)
	conn, err := net.Dial("tcp", d.server.Addr())
	check.OK(t, err)
	defer conn.Close()
	check.OK(t, conn.SetDeadline(time.Now().Add(check.Hang)))
	_, err = io.WriteString(conn, "POST "+batchPath+" HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n{\"verb\":\"get\",\"id\":\"none\"}\n")
	check.OK(t, err)
	replies := bufio.NewReader(conn)
	resp, err := http.ReadResponse(replies, nil)
	check.OK(t, err)
	defer resp.Body.Close()
	answers, err := io.ReadAll(resp.Body)
	check.OK(t, err)
	if !strings.Contains(string(answers), `"code":"slow"`) {
		t.Fatalf("answers %s", answers)
	}
	_, err = io.WriteString(conn, "GET "+documentPath+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	check.OK(t, err)
	if rest, err := io.ReadAll(replies); len(rest) > 0 {
		t.Errorf("the rest of the body got an answer: %.100s, %v", rest, err)
	}
}
