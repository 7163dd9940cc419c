package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
)

const batchPath = "/v1/topics/orders/tasks"

// batch sends lines and returns the answers.
func (d *door) batch(body io.Reader, headers ...string) (answers []map[string]any, err error) {
	err = d.stream(body, func(line map[string]any) { answers = append(answers, line) }, headers...)
	return answers, err
}

// stream sends lines and calls each for each answer.
func (d *door) stream(body io.Reader, each func(line map[string]any), headers ...string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, d.url+batchPath, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	described().check(d.t, http.MethodPost, batchPath, answer{status: resp.StatusCode, header: resp.Header})
	for dec := json.NewDecoder(resp.Body); ; {
		var line map[string]any
		if err = dec.Decode(&line); err != nil {
			break
		}
		each(line)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// TestDueLinesAreWhatTheLibraryWrites: the answers that are written without it say the same.
func TestDueLinesAreWhatTheLibraryWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		head := lineHead{Line: rapid.Int().Draw(t, "line"), Verb: "schedule", Status: http.StatusOK}
		name := nameAnswer{Topic: rapid.String().Draw(t, "topic"), ID: rapid.String().Draw(t, "ID")}
		due := time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "due"))
		answer, err := dueOf(name, due, nil)
		check.OK(t, err)
		type line struct {
			lineHead
			dueAnswer
		}
		want, err := json.Marshal(line{head, answer})
		check.OK(t, err)
		var got, library any
		check.OK(t, errors.Join(json.Unmarshal(appendDue(nil, head, name, due), &got), json.Unmarshal(want, &library)))
		check.Equal(t, "answer", fmt.Sprint(got), fmt.Sprint(library))
	})
}

// TestABatchAnswersEachLine in their order, and does the lines of an ID in their order.
func TestABatchAnswersEachLine(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	answers, err := d.batch(strings.NewReader(`{"verb":"schedule","id":"a","in":"1h","payload":{"n":1}}
{"verb":"schedule","id":"b","in":"1h","if_present":true}
{"verb":"schedule","id":"a","in":"1h","if_absent":true}
{"verb":"get","id":"a"}

{"verb":"reschedule","id":"a","at":"2099-12-01T10:00:00Z"}
{"verb":"cancel","id":"a"}
{"verb":"cancel","id":"a"}
{"verb":"schedule","id":"","in":"1h"}
{"verb":"schedule","id":"c","topic":"mail","in":"1h"}
not JSON
{"verb":"schedule","id":"d","in":"1h","amqp":{"routing_key":"k"}}
{"verb":"schedule","id":"last","in":"1h"}`))
	check.OK(t, err)
	want := []string{"1 schedule 200 <nil>", "2 schedule 412 not_found", "3 schedule 412 exists", "4 get 200 <nil>",
		"6 reschedule 200 <nil>", "7 cancel 200 <nil>", "8 cancel 404 not_found", "9 schedule 422 invalid",
		"10 schedule 400 bad_request", "11 <nil> 400 bad_request", "12 schedule 400 bad_request",
		"13 schedule 200 <nil>"}
	check.Equal(t, "answers", len(answers), len(want))
	for i, a := range answers {
		got := fmt.Sprintf("%v %v %v %v", a["line"], a["verb"], a["status"], a["code"])
		check.Equal(t, "answer", got, want[i])
		if a["status"] != 200.0 && a["done"] != "no" {
			t.Errorf("%v", a)
		}
	}
	check.Equal(t, "due", answers[4]["due"], any("2099-12-01T10:00:00.000Z"))
	check.Equal(t, "payload", answers[3]["payload"], any(`{"n":1}`))
	check.Equal(t, "field", answers[7]["field"], any("id"))
	for id, want := range map[string]bool{"a": false, "b": false, "c": false, "d": false, "last": true} {
		if _, there := d.stored(id); there != want {
			t.Errorf("%s stored: %v", id, there)
		}
	}
}

// TestABatchStreams: a line is answered before the next one is sent. A stop answers what
// the server has read, and ends the answers.
func TestABatchStreams(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	body, lines := io.Pipe()
	req, err := http.NewRequestWithContext(check.Context(t), http.MethodPost, d.url+batchPath, body)
	check.OK(t, err)
	req.Header.Set("Content-Type", "application/x-ndjson")
	go func() { _, _ = io.WriteString(lines, `{"verb":"schedule","id":"0","in":"1h"}`+"\n") }()
	resp, err := d.client.Do(req)
	check.OK(t, err)
	defer resp.Body.Close()
	answers := bufio.NewScanner(resp.Body)
	for n := 1; n <= 3; n++ {
		if !answers.Scan() || !strings.Contains(answers.Text(), fmt.Sprintf(`"line":%d,"verb":"schedule","status":200`, n)) {
			t.Fatalf("answer %d: %q, %v", n, answers.Text(), answers.Err())
		}
		_, err := fmt.Fprintf(lines, `{"verb":"schedule","id":"%d","in":"1h"}`+"\n", n)
		check.OK(t, err)
	}
	check.Equal(t, "a fourth answer", answers.Scan(), true)
	d.end()
	check.Equal(t, "a fifth answer", answers.Scan(), false)
	_ = lines.Close()
	for n := range 4 {
		if _, there := d.stored(fmt.Sprint(n)); !there {
			t.Errorf("%d isn't stored", n)
		}
	}
}

// TestABatchNeedsItsTypeAndItsVerbs: a page in a browser can't send one unasked, and each
// line needs the right to its verb.
func TestABatchNeedsItsTypeAndItsVerbs(t *testing.T) {
	t.Parallel()
	file := tokensFile(t)
	writeTokens(t, file, entry("shop", shopToken, "orders", "schedule"))
	d := open(t, func(c *Config) { c.Tokens = file })
	const lines = `{"verb":"schedule","id":"a","in":"1h"}` + "\n" + `{"verb":"cancel","id":"a"}`
	d.do("POST", batchPath, lines, bearer(shopToken), "Content-Type: text/plain").want(t, "a form", 415, "content_type")
	d.do("POST", batchPath, lines, "Content-Type: application/x-ndjson").want(t, "no token", 401, "unauthorized")
	d.do("GET", batchPath, "", bearer(shopToken)).want(t, "a list", 405, "method")
	answers, err := d.batch(strings.NewReader(lines), bearer(shopToken))
	check.OK(t, err)
	check.Equal(t, "answers", len(answers), 2)
	check.Equal(t, "schedule", answers[0]["status"], any(200.0))
	check.Equal(t, "cancel", answers[1]["code"], any("forbidden"))
	if _, there := d.stored("a"); !there {
		t.Error("the task isn't stored")
	}
}

// defective is a library whose batches panic.
type defective struct{ Batches }

func (defective) ScheduleMany(context.Context, []producer.Request) []producer.Result { panic(secret) }

// TestADefectInABatchIsAnAnswer for its lines alone.
func TestADefectInABatchIsAnAnswer(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *Config) { c.Batches, c.Tokens = defective{c.Batches}, tokensFile(t) })
	answers, err := d.batch(strings.NewReader(`{"verb":"schedule","id":"a","in":"1h"}`+"\n"+`{"verb":"get","id":"a"}`),
		bearer(shopToken))
	check.OK(t, err)
	check.Equal(t, "answers", len(answers), 2)
	check.Equal(t, "schedule", fmt.Sprintf("%v %v", answers[0]["code"], answers[0]["done"]), "internal maybe")
	check.Equal(t, "get", answers[1]["code"], any("not_found"))
	lines := d.log.Lines("request panicked")
	check.Equal(t, "lines of the log", len(lines), 1)
	for _, want := range []string{"client=shop", "verb=batch", "topic=orders"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("the log lacks %s: %s", want, lines[0])
		}
	}
}
