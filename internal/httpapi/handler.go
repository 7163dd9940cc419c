package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/duefleet/duefleet/internal/ratelog"
	"github.com/duefleet/duefleet/task"
)

// handler answers every request.
type handler struct {
	tasks      Tasks
	many       Batches
	batches    slots
	pause      time.Duration   // lineTimeout; shorter in tests
	whole      time.Duration   // wholeTimeout; shorter in tests
	room       time.Duration   // memoryTimeout; shorter in tests
	readers    sync.Pool       // *bufio.Reader for a batch
	writers    sync.Pool       // *bufio.Writer for a batch
	stopping   context.Context // ends when the server stops
	stop       context.CancelFunc
	maxPayload int
	tokens     *tokens             // nil: every local program may do everything
	anyone     *client             // the client without tokens
	bodies     *semaphore.Weighted // bytes of bodies that are being received
	log        *slog.Logger
	failed     *ratelog.Logger
	refused    *ratelog.Logger

	active   atomic.Int64
	requests *prometheus.CounterVec
	lines    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newHandler(cfg Config) (*handler, error) {
	h := &handler{
		tasks: cfg.Tasks, many: cfg.Batches, pause: lineTimeout, whole: wholeTimeout,
		room:       memoryTimeout,
		maxPayload: cfg.MaxPayload, anyone: anyone(),
		bodies: semaphore.NewWeighted(cfg.MaxBodyBytes), log: cfg.Log,
		failed:  ratelog.New(cfg.Log, slog.LevelWarn, "request failed"),
		refused: ratelog.New(cfg.Log, slog.LevelWarn, "client refused"),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "duefleet_http_requests_total",
			Help: "Requests by client, verb and status."}, []string{"client", "verb", "status"}),
		lines: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "duefleet_http_lines_total",
			Help: "Lines of batches by client, verb and status."}, []string{"client", "verb", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "duefleet_http_request_seconds",
			Help: "How long requests take, the body included.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"verb"}),
	}
	active := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "duefleet_http_active_requests",
		Help: "Requests that are being answered."}, func() float64 { return float64(h.active.Load()) })
	err := errors.Join(cfg.Registerer.Register(h.requests), cfg.Registerer.Register(h.seconds),
		cfg.Registerer.Register(h.lines), cfg.Registerer.Register(active))
	h.stopping, h.stop = context.WithCancel(context.Background())
	if err != nil {
		return nil, fmt.Errorf("http server: register metrics: %w", err)
	}
	if cfg.Tokens != "" {
		if h.tokens, err = newTokens(cfg.Tokens, cfg.Log); err != nil {
			return nil, fmt.Errorf("http server: %w", err)
		}
	}
	return h, nil
}

// request is a request for one task, and what is known about it for log and metrics.
type request struct {
	*http.Request
	client    *client // nil: not known
	verb      string  // "" if the method has none
	topic, id string
	began     time.Time
}

// ServeHTTP answers one request. Its order matters: the server reads no body, and answers
// nothing about a path, before it knows the client.
func (h *handler) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	h.active.Add(1)
	defer h.active.Add(-1)
	r := &request{Request: hr, began: time.Now()}
	status, err := h.answer(w, r)
	var p *Problem
	if err != nil {
		p = problemOf(err)
		status = p.Status
		p.write(w)
	}
	h.record(r, status, p)
}

// answer carries out a request and writes its answer, unless it returns an error. A panic
// is an error.
func (h *handler) answer(w http.ResponseWriter, r *request) (status int, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = h.defect(r, panicked)
		}
	}()
	if r.URL.Path == documentPath && r.Method == http.MethodGet {
		return r.document(w)
	}
	if err := h.identify(r); err != nil {
		return 0, err
	}
	if err := r.name(); err != nil {
		return 0, err
	}
	if r.verb == verbBatch {
		return h.serveBatch(w, r)
	}
	if !r.client.may(r.verb, r.topic) {
		return 0, forbidden(r.client, r.verb)
	}
	status, value, err := h.carryOut(w, r)
	if err != nil {
		return 0, err
	}
	writeJSON(w, status, "application/json", value)
	return status, nil
}

// defect logs a panic and its place, and returns its answer. Its value may be a payload.
func (h *handler) defect(r *request, panicked any) *Problem {
	name := ""
	if r.client != nil {
		name = r.client.Name
	}
	h.log.ErrorContext(r.Context(), "request panicked", "client", name, "verb", r.verb, "topic", r.topic,
		"panic", fmt.Sprintf("%T", panicked), "stack", string(debug.Stack()))
	p := problem(http.StatusInternalServerError, "internal", "a defect of the server; its log has the place")
	p.Done = Maybe
	return p
}

func unauthorized() *Problem {
	return broken(http.StatusUnauthorized, "unauthorized", "Authorization", "must be Bearer and a known token")
}

func forbidden(c *client, verb string) *Problem {
	return problem(http.StatusForbidden, "forbidden", fmt.Sprintf("client %s may not %s in this topic", c.Name, verb))
}

// tooFast is the answer to a request for which the client's rate has room after some time.
func (c *client) tooFast(after time.Duration) *Problem {
	return problem(http.StatusTooManyRequests, "rate_limited",
		fmt.Sprintf("client %s: must be at most %g requests a second", c.Name, c.Rate)).later(int(math.Ceil(after.Seconds())))
}

// lookup returns the client with the token of a request, or nil.
func (h *handler) lookup(ctx context.Context, r *request) *client {
	if h.tokens == nil {
		return h.anyone
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil
	}
	return h.tokens.find(ctx, strings.TrimSpace(token))
}

// identify finds the client by its token, and takes the request from its rate.
func (h *handler) identify(r *request) error {
	if h.tokens == nil {
		// A page in a browser of this machine can reach the server by a name of its own.
		if host := hostOf(r.Host); !Loopback(host) {
			return broken(http.StatusForbidden, "forbidden", "Host", "must be localhost or a loopback address, without tokens")
		}
	}
	if r.client = h.lookup(r.Context(), r); r.client == nil {
		return unauthorized()
	}
	if !r.client.bucket.take(time.Now()) {
		return r.client.tooFast(r.client.bucket.after())
	}
	return nil
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

// name reads verb, topic and ID from method and path. An ID may have an escaped slash.
func (r *request) name() error {
	const beginning = "/v1/topics/"
	rest, found := strings.CutPrefix(r.URL.EscapedPath(), beginning)
	parts := strings.Split(rest, "/")
	if found && len(parts) == 2 && parts[1] == "tasks" {
		return r.nameBatch(parts[0])
	}
	if !found || len(parts) != 3 || parts[1] != "tasks" || parts[2] == "" {
		return broken(http.StatusNotFound, "no_such_path", "path",
			"must be /v1/topics/TOPIC/tasks/ID, with a slash in ID as %2F")
	}
	var err error
	if r.topic, err = url.PathUnescape(parts[0]); err == nil {
		r.id, err = url.PathUnescape(parts[2])
	}
	if err != nil {
		return badRequest("path", "must have valid escapes")
	}
	if r.verb = methods()[r.Method]; r.verb == "" {
		p := broken(http.StatusMethodNotAllowed, "method", "method", "must be GET, PUT, PATCH or DELETE")
		p.allow = "GET, PUT, PATCH, DELETE"
		return p
	}
	return nil
}

// methods returns the methods for a task, each with its verb.
func methods() map[string]string {
	return map[string]string{http.MethodPut: "schedule", http.MethodGet: "get", http.MethodPatch: "reschedule",
		http.MethodDelete: "cancel"}
}

// verbBatch is the verb of a request with lines, which have verbs of their own.
const verbBatch = "batch"

// nameBatch reads the topic of a batch.
func (r *request) nameBatch(topic string) (err error) {
	if r.Method != http.MethodPost {
		p := broken(http.StatusMethodNotAllowed, "method", "method", "must be POST, for a batch")
		p.allow = "POST"
		return p
	}
	if r.topic, err = url.PathUnescape(topic); err != nil {
		return badRequest("path", "must have valid escapes")
	}
	r.verb = verbBatch
	return task.CheckTopic(r.topic)
}

// record counts and logs a request.
func (h *handler) record(r *request, status int, p *Problem) {
	ctx := context.WithoutCancel(r.Context())
	name, verb, took := "", r.verb, time.Since(r.began)
	if r.client != nil {
		name = r.client.Name
	}
	h.requests.WithLabelValues(name, verb, strconv.Itoa(status)).Inc()
	h.seconds.WithLabelValues(verb).Observe(took.Seconds())
	if p == nil && !h.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	line := []any{"client", name, "remote", r.RemoteAddr, "verb", verb, "topic", r.topic, "id", r.id, "status", status,
		"took", took}
	if p != nil {
		line = append(line, "code", p.Code)
		if p.cause != nil {
			line = append(line, "error", p.cause)
		}
	}
	switch {
	case status >= http.StatusInternalServerError:
		h.failed.Log(ctx, line...)
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests:
		h.refused.Log(ctx, line...)
	default:
		h.log.DebugContext(ctx, "request", line...)
	}
}

// writeJSON writes an answer. If the client hung up, nobody gets it.
func writeJSON(w http.ResponseWriter, status int, contentType string, value any) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // the client hung up
}
