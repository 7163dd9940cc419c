//go:build chaos

package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestHTTP: the load goes through producer serve. The server is killed in the middle of batches and
// PUTs, and each is sent again. Then Redis is killed, stopped and full, and M changes. Each answer
// says whether the task is stored or removed, and the ledger agrees.
func TestHTTP(t *testing.T) {
	r := newHarness(t, options{})
	c := r.beginHTTP()
	const kills = 4
	for range kills {
		r.lasts(time.Second)
		c.kill()
		r.lasts(300 * time.Millisecond)
		c.start()
	}
	check.OK(t, r.redis.Kill())
	r.lasts(7 * time.Second) // longer than a call may take, with the calls that gathered before
	check.OK(t, r.redis.Restart(t.Context()))
	r.flows("tasks after Redis was killed")
	check.OK(t, r.redis.Pause())
	r.lasts(7 * time.Second)
	check.OK(t, r.redis.Resume())
	r.flows("tasks after Redis was stopped")
	check.OK(t, r.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	r.lasts(2 * time.Second)
	check.OK(t, r.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	r.flows("tasks once Redis has room")
	for _, shards := range []int{13, 3} {
		r.settings.Topics["orders"] = r.settings.Topics["orders"].With(fleet.Topic{"shards": shards})
		check.OK(t, fleet.WriteConfig(r.config, r.settings.Document()))
		r.await("the change to end", func() bool {
			s := r.status().Topic("orders")
			return s.Shards == shards && s.Phase == "stable"
		})
	}
	r.load.stop()
	c.judge()
	r.verdict("HTTP: server kill -9 in batches, Redis killed, stopped and full, M 4 -> 13 -> 3",
		allowance{repeats: 2*3*inFlight + (kills+2)*loadBatch, unmarked: (kills + 2) * loadBatch})
}

// httpClient makes the calls of a load by requests to producer serve. It enters into the ledger what
// each answer says. A batch without all its answers is sent again.
type httpClient struct {
	r             *harness
	client        http.Client
	listen, admin string

	mu      sync.Mutex
	server  *exec.Cmd
	again   int            // batches that were sent again
	puts    int            // orders that were sent alone
	retried int            // of these, again
	answers map[string]int // by code and done of an error; "" without one
}

// httpAnswer is an answer, or one line of a batch's.
type httpAnswer struct {
	Line   int    `json:"line"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Done   string `json:"done"`
	Due    int64  `json:"due_ms"`
}

// beginHTTP starts producer serve and a load that goes through it. It returns once tasks arrive.
func (r *harness) beginHTTP() *httpClient {
	r.t.Helper()
	c := &httpClient{r: r, answers: map[string]int{},
		client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: loadBatch}}}
	r.t.Cleanup(c.client.CloseIdleConnections)
	for _, address := range []*string{&c.listen, &c.admin} {
		free, err := fleet.FreeAddress(r.t.Context())
		check.OK(r.t, err)
		*address = free
	}
	c.start()
	r.t.Cleanup(c.kill)
	r.beginWith(&load{calls: c, later: 20 * time.Second, topics: []string{"orders"}})
	return c
}

// start starts the server, and returns once it is ready.
func (c *httpClient) start() {
	c.r.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.r.dir, "http.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check.OK(c.r.t, err)
	defer log.Close()
	server := exec.CommandContext(context.WithoutCancel(c.r.t.Context()), programs.Producer, "serve",
		"--config", c.r.config, "--listen", c.listen, "--admin-listen", c.admin,
		"--timeout", "2s") // the load waits for 5 s
	server.Stderr = log
	check.OK(c.r.t, server.Start())
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	c.r.await("the server to be ready", func() bool {
		status, _, err := c.request(c.r.t.Context(), http.MethodGet, "http://"+c.admin+"/readyz", nil, nil)
		return err == nil && status == http.StatusOK
	})
}

// kill ends the server with kill -9.
func (c *httpClient) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.server.Process.Kill()
	_ = c.server.Wait()
}

// request sends a request. It returns what came of the body, with an error if that isn't all.
func (c *httpClient) request(ctx context.Context, method, url string, header http.Header,
	body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header = header
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

func (c *httpClient) tasks() string { return "http://" + c.listen + "/v1/topics/orders/tasks" }

// Schedule sends every tenth order alone, half of these with If-None-Match, and the others as one batch.
func (c *httpClient) Schedule(ctx context.Context, orders ...fleet.Order) error {
	var together []fleet.Order
	var alone sync.WaitGroup
	errs := make([]error, len(orders)+1)
	for i, o := range orders {
		if i%10 == 9 {
			alone.Go(func() { errs[i] = c.put(ctx, o, i%20 == 9) })
		} else {
			together = append(together, o)
		}
	}
	errs[len(orders)] = c.batches(ctx, together)
	alone.Wait()
	return errors.Join(errs...)
}

// put sends an order alone, until it has an answer or ctx ends.
func (c *httpClient) put(ctx context.Context, o fleet.Order, absent bool) error {
	for tries := 0; ; tries++ {
		c.mu.Lock()
		c.puts++
		c.retried += min(tries, 1)
		c.mu.Unlock()
		answered, err := c.putOnce(ctx, o, absent, tries > 0)
		if answered || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(loadBeat):
		}
	}
}

// putOnce sends an order alone once, and enters its answer. The condition fails only if an earlier
// try, which got no answer, stored the task. Its entry is in the ledger.
func (c *httpClient) putOnce(ctx context.Context, o fleet.Order, absent, tried bool) (answered bool, err error) {
	header := http.Header{}
	if absent {
		header.Set("If-None-Match", "*")
	}
	url := c.tasks() + "/" + o.ID + "?at=" + strconv.FormatInt(o.Due.UnixMilli(), 10)
	status, body, err := c.request(ctx, http.MethodPut, url, header, o.Payload)
	a := httpAnswer{Status: status}
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err != nil {
		c.r.recorder.Ledger.MaybeScheduled(fleet.Key{Topic: o.Topic, ID: o.ID}, o.Due, o.Payload)
		return false, err
	}
	if err = c.enter(a, o); a.Code != "exists" {
		return true, err
	}
	if !tried && a.Done == "no" {
		c.r.t.Errorf("PUT %s: a task is stored, which no earlier try may have stored", o.ID)
	}
	return true, nil
}

// batches sends a batch, until each line has an answer or ctx ends.
func (c *httpClient) batches(ctx context.Context, orders []fleet.Order) error {
	for {
		answered, err := c.batch(ctx, orders)
		var left []fleet.Order
		for i, o := range orders {
			if !answered[i] {
				left = append(left, o)
			}
		}
		if len(left) == 0 || ctx.Err() != nil {
			return err
		}
		c.mu.Lock()
		c.again++
		c.mu.Unlock()
		orders = left
		select {
		case <-ctx.Done():
			return err
		case <-time.After(loadBeat):
		}
	}
}

// batch sends a batch once, and enters its answers.
func (c *httpClient) batch(ctx context.Context, orders []fleet.Order) (answered []bool, err error) {
	var lines bytes.Buffer
	for _, o := range orders {
		line, err := json.Marshal(map[string]any{"verb": "schedule", "id": o.ID, "at": o.Due.UnixMilli(),
			"payload": string(o.Payload)})
		check.OK(c.r.t, err)
		lines.Write(append(line, '\n'))
	}
	answered = make([]bool, len(orders))
	status, body, err := c.request(ctx, http.MethodPost, c.tasks(),
		http.Header{"Content-Type": {"application/x-ndjson"}}, lines.Bytes())
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a batch got %d: %s", status, body)
		var a httpAnswer
		if json.Unmarshal(body, &a) == nil && a.Done == "no" {
			return answered, err // nothing was done
		}
	}
	for text := range bytes.Lines(body) {
		var a httpAnswer
		if json.Unmarshal(text, &a) != nil || a.Line < 1 || a.Line > len(orders) {
			continue // cut off
		}
		o := orders[a.Line-1]
		answered[a.Line-1] = true
		if failed := c.enter(a, o); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	for i, o := range orders {
		if !answered[i] {
			c.r.recorder.Ledger.MaybeScheduled(fleet.Key{Topic: o.Topic, ID: o.ID}, o.Due, o.Payload)
		}
	}
	return answered, err
}

// enter enters the answer to a schedule.
func (c *httpClient) enter(a httpAnswer, o fleet.Order) error {
	ledger, k := c.r.recorder.Ledger, fleet.Key{Topic: o.Topic, ID: o.ID}
	switch c.count(a); {
	case a.Status < http.StatusMultipleChoices:
		if a.Due > o.Due.UnixMilli() { // an earlier try may have taken effect
			ledger.MaybeScheduled(k, o.Due, o.Payload)
		}
		ledger.Scheduled(k, time.UnixMilli(a.Due), o.Payload)
		return nil
	case a.Done != "no":
		ledger.MaybeScheduled(k, o.Due, o.Payload)
	}
	return fmt.Errorf("%s: %d %s", o.ID, a.Status, a.Code)
}

func (c *httpClient) count(a httpAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[strings.TrimSpace(a.Code+" "+a.Done)]++
}

// Cancel sends a DELETE. It never returns task.ErrNotFound: after 404, done says whether an earlier
// copy of the request may have removed the task.
func (c *httpClient) Cancel(ctx context.Context, k fleet.Key) error {
	done, _, err := c.single(ctx, http.MethodDelete, k, "")
	switch ledger := c.r.recorder.Ledger; {
	case err == nil:
		ledger.Cancelled(k)
	case done != "no":
		ledger.MaybeCancelled(k)
	}
	return err
}

// Reschedule sends a PATCH.
func (c *httpClient) Reschedule(ctx context.Context, k fleet.Key, due time.Time) error {
	done, got, err := c.single(ctx, http.MethodPatch, k, "?at="+strconv.FormatInt(due.UnixMilli(), 10))
	switch ledger := c.r.recorder.Ledger; {
	case err == nil:
		ledger.Rescheduled(k, got)
	case done != "no":
		ledger.MaybeRescheduled(k, due.Truncate(time.Millisecond))
	}
	return err
}

// single sends a request about one task. done is "" if no answer came.
func (c *httpClient) single(ctx context.Context, method string, k fleet.Key, query string) (done string, due time.Time,
	err error) {
	status, body, err := c.request(ctx, method, c.tasks()+"/"+k.ID+query, nil, nil)
	if err != nil {
		return "", due, err
	}
	var a httpAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return "", due, fmt.Errorf("%s %s got %d: %q", method, k.ID, status, body)
	}
	if c.count(a); status < http.StatusMultipleChoices {
		return "", time.UnixMilli(a.Due), nil
	}
	return a.Done, due, fmt.Errorf("%s %s: %d %s", method, k.ID, status, a.Code)
}

// judge fails the test if a fault didn't meet the requests.
func (c *httpClient) judge() {
	c.r.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.r.t.Logf("%d batches were sent again, and %d of %d single PUTs; answers by code and done: %v", c.again, c.retried,
		c.puts, c.answers)
	for _, code := range []string{"", "unavailable no", "uncertain maybe", "redis_full no"} {
		if c.answers[code] == 0 {
			c.r.t.Errorf("no answer has the code %q", code)
		}
	}
	if c.again == 0 || c.retried == 0 {
		c.r.t.Error("no batch was sent again, or no single PUT")
	}
}
