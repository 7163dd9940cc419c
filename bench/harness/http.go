package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/duefleet/duefleet/test/fleet"
)

// HTTP is a running `producer serve` of a fleet, and a client that keeps its connections.
type HTTP struct {
	fleet  *Fleet
	cmd    *exec.Cmd
	url    string
	client *http.Client
}

// StartHTTP starts the server and waits until it is ready. The run's Close stops it.
func (f *Fleet) StartHTTP(ctx context.Context, connections int) (*HTTP, error) {
	listen, err := fleet.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	admin, err := fleet.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(f.run.Dir, "http.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	program := filepath.Join(f.run.Root(), "bin", "producer")
	cmd := exec.Command(program, "serve", "--config", f.config, "--listen", listen, "--admin-listen", admin) //nolint:gosec,noctx // our own program, which Close ends
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	h := &HTTP{fleet: f, cmd: cmd, url: "http://" + listen, client: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: connections}}}
	f.run.Defer(h.stop)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return h, Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		resp, err := h.send(ctx, http.MethodGet, "http://"+admin+"/readyz", "", nil)
		if err != nil {
			return false, ctx.Err() // it doesn't listen until now
		}
		return resp.StatusCode == http.StatusOK, errors.Join(drainBody(resp), ctx.Err())
	})
}

// PID returns the server's process ID.
func (h *HTTP) PID() int { return h.cmd.Process.Pid }

func (h *HTTP) stop() error {
	h.client.CloseIdleConnections()
	return errors.Join(h.cmd.Process.Signal(os.Interrupt), h.cmd.Wait())
}

func (h *HTTP) send(ctx context.Context, method, url, contentType string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return h.client.Do(req)
}

func drainBody(resp *http.Response) error {
	_, err := io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// Schedule sends one task as a PUT, and more as a batch. Each must be stored.
func (h *HTTP) Schedule(ctx context.Context, tasks []Task) error {
	if len(tasks) > 1 {
		return h.batch(ctx, tasks)
	}
	t := tasks[0]
	target := h.url + "/v1/topics/" + h.fleet.topic(t.Number) + "/tasks/" + url.PathEscape(t.ID()) + "?at=" +
		strconv.FormatInt(t.Due.UnixMilli(), 10)
	resp, err := h.send(ctx, http.MethodPut, target, "", bytes.NewReader(t.Payload))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("schedule over HTTP: %s", resp.Status)
	}
	return errors.Join(err, drainBody(resp))
}

// line is a request in a batch.
type line struct {
	Verb    string `json:"verb"`
	ID      string `json:"id"`
	At      int64  `json:"at"`
	Payload []byte `json:"payload_base64"`
}

// batch sends tasks of one topic.
func (h *HTTP) batch(ctx context.Context, tasks []Task) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	for _, t := range tasks {
		if err := enc.Encode(line{"schedule", t.ID(), t.Due.UnixMilli(), t.Payload}); err != nil {
			return err
		}
	}
	resp, err := h.send(ctx, http.MethodPost, h.url+"/v1/topics/"+h.fleet.topic(0)+"/tasks", "application/x-ndjson", &body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec, stored := json.NewDecoder(resp.Body), 0
	for {
		var answer struct {
			Status int
			Detail string
		}
		if err := dec.Decode(&answer); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if answer.Status != http.StatusOK {
			return fmt.Errorf("schedule over HTTP: %d %s", answer.Status, answer.Detail)
		}
		stored++
	}
	if stored != len(tasks) {
		return fmt.Errorf("schedule over HTTP: %d answers for %d lines", stored, len(tasks))
	}
	return nil
}
