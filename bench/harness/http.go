package harness

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/duefleet/duefleet/test/fleet"
)

// requestLimit ends a request that hangs.
const requestLimit = time.Minute

// HTTP is a running `producer serve` of a fleet, and a client that keeps its connections. The
// client shares the processor with the server, so it does as little as it can. It writes lines
// itself, and counts the answers that say that a task is stored.
type HTTP struct {
	fleet  *Fleet
	cmd    *exec.Cmd
	url    string
	client *fasthttp.HostClient
	live   string               // the page of the same process that does nothing
	admin  *fasthttp.HostClient // for it
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
	h := &HTTP{fleet: f, cmd: cmd, url: "http://" + listen,
		client: &fasthttp.HostClient{Addr: listen, MaxConns: connections, ReadBufferSize: 64 << 10},
		live:   "http://" + admin + "/livez", admin: &fasthttp.HostClient{Addr: admin, MaxConns: connections}}
	f.run.Defer(h.stop)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return h, Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		code, _, err := fasthttp.GetTimeout(nil, "http://"+admin+"/readyz", requestLimit)
		return err == nil && code == fasthttp.StatusOK, ctx.Err() // at first it doesn't listen
	})
}

// PID returns the server's process ID.
func (h *HTTP) PID() int { return h.cmd.Process.Pid }

func (h *HTTP) stop() error {
	h.client.CloseIdleConnections()
	h.admin.CloseIdleConnections()
	return errors.Join(h.cmd.Process.Signal(os.Interrupt), h.cmd.Wait())
}

// Schedule sends one task as a PUT, and more as a batch. Each must be stored.
func (h *HTTP) Schedule(ctx context.Context, tasks []Task) error {
	if len(tasks) > 1 {
		return h.batch(ctx, tasks)
	}
	t := tasks[0]
	path := "/v1/topics/" + h.fleet.topic(t.Number) + "/tasks/" + url.PathEscape(t.ID()) + "?at=" +
		strconv.FormatInt(t.Due.UnixMilli(), 10)
	return h.send(ctx, http.MethodPut, path, "", t.Payload, func([]byte) error { return nil })
}

// send sends a request, and passes the body of its answer to read.
func (h *HTTP) send(ctx context.Context, method, path, contentType string, body []byte,
	read func(answer []byte) error) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(h.url + path)
	req.Header.SetMethod(method)
	req.Header.SetContentType(contentType)
	req.SetBodyRaw(body)
	if err := answered(h.client.DoTimeout(req, resp, requestLimit), resp); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return read(resp.Body())
}

// answered returns the error of a request, or of an answer whose status isn't 200.
func answered(err error, resp *fasthttp.Response) error {
	if err != nil {
		return fmt.Errorf("over HTTP: %w", err)
	}
	if code := resp.StatusCode(); code != http.StatusOK {
		return fmt.Errorf("over HTTP: %d %s", code, resp.Body())
	}
	return nil
}

// Live sends a request to the server's program that stores nothing: net/http answers it alone.
func (h *HTTP) Live(ctx context.Context, _ []Task) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(h.live)
	return errors.Join(answered(h.admin.DoTimeout(req, resp, requestLimit), resp), ctx.Err())
}

// batch sends tasks of one topic.
func (h *HTTP) batch(ctx context.Context, tasks []Task) error {
	var body []byte
	for _, t := range tasks {
		body = append(body, `{"verb":"schedule","id":"`...)
		body = append(body, t.ID()...)
		body = append(body, `","at":`...)
		body = strconv.AppendInt(body, t.Due.UnixMilli(), 10)
		body = append(body, `,"payload_base64":"`...)
		body = base64.StdEncoding.AppendEncode(body, t.Payload)
		body = append(body, "\"}\n"...)
	}
	path := "/v1/topics/" + h.fleet.topic(0) + "/tasks"
	return h.send(ctx, http.MethodPost, path, "application/x-ndjson", body, func(answer []byte) error {
		if stored := bytes.Count(answer, []byte(`,"status":200,`)); stored != len(tasks) {
			return fmt.Errorf("schedule over HTTP: %d of %d tasks are stored", stored, len(tasks))
		}
		return nil
	})
}
