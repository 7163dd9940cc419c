package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/duefleet/duefleet/internal/problem"
)

// probeTimeout bounds one probe, so that /readyz answers within a second, a kubelet's
// default timeout. Otherwise an optional check that hangs would make the pod unready.
const probeTimeout = 800 * time.Millisecond

// Check is one dependency of a scanner, or a state of its own such as shutting down.
type Check struct {
	// Name is the check's name in /readyz, unique and in snake_case.
	Name string
	// Required makes the scanner not ready while the check fails. Other checks are only
	// shown.
	Required bool
	// Probe returns what is wrong. It should only read a state that other code keeps. A
	// probe that takes longer than 800 ms has failed. It isn't called again until it
	// returned.
	Probe func() Result
}

// Result is the outcome of a probe.
type Result struct {
	OK bool
	// Detail is one line without secrets: what is wrong, or the peer it is connected to.
	Detail string
	// Problems has the reasons why it isn't OK. A check that is OK may have notices.
	Problems []problem.Problem
}

// Probed returns the result of a probe that found problems. It is OK if they are only
// notices. good is the detail of a result without problems.
func Probed(good string, found ...problem.Problem) Result {
	r := Result{OK: problem.Verdict(found) == problem.Healthy, Problems: found}
	var lines []string
	if r.OK {
		lines = append(lines, good)
	}
	for _, p := range found {
		lines = append(lines, p.String())
	}
	r.Detail = strings.Join(lines, "; ")
	return r
}

// readiness is the answer of /readyz. The JSON names are an interface.
type readiness struct {
	Ready    bool          `json:"ready"`
	Instance string        `json:"instance,omitempty"`
	Checks   []checkResult `json:"checks"`
}

type checkResult struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
	OK       bool   `json:"ok"`
	Detail   string `json:"detail,omitempty"`

	Problems []problem.Problem `json:"problems,omitempty"`
}

// health runs all checks at once, each through a shared call of its own.
type health struct {
	instance string
	checks   []Check
	probes   []*shared[checkResult]
}

func newHealth(instance string, checks []Check) (*health, error) {
	h := &health{instance: instance, checks: checks}
	seen := map[string]bool{}
	for _, c := range checks {
		if c.Name == "" || c.Probe == nil {
			return nil, fmt.Errorf("check %q: name and probe are required", c.Name)
		}
		if seen[c.Name] {
			return nil, fmt.Errorf("check %q: given twice", c.Name)
		}
		seen[c.Name] = true
		h.probes = append(h.probes, &shared[checkResult]{ask: c.ask, timeout: probeTimeout})
	}
	return h, nil
}

func (c Check) ask(context.Context) (checkResult, error) {
	r := c.Probe()
	return checkResult{c.Name, c.Required, r.OK, strings.Join(strings.Fields(r.Detail), " "), r.Problems}, nil
}

func (h *health) readiness() readiness {
	r := readiness{Ready: true, Instance: h.instance, Checks: make([]checkResult, len(h.checks))}
	var wg sync.WaitGroup
	for i, p := range h.probes {
		wg.Go(func() {
			result, err := p.get()
			if err != nil {
				result = checkResult{Name: h.checks[i].Name, Required: h.checks[i].Required, Detail: slowProbe(err)}
			}
			r.Checks[i] = result
		})
	}
	wg.Wait()
	for _, c := range r.Checks {
		r.Ready = r.Ready && (c.OK || !c.Required)
	}
	return r
}

func slowProbe(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", probeTimeout)
	}
	return err.Error()
}

func (h *health) serveReady(w http.ResponseWriter, req *http.Request) {
	r := h.readiness()
	if asked := req.URL.Query().Get("instance"); asked != "" && h.instance != "" && asked != h.instance {
		r.Ready = false
		r.Checks = append(r.Checks, checkResult{Name: "instance", Required: true, Detail: "this is " + h.instance})
	}
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Cache-Control", "no-store")
	if wantsJSON(req) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(r) // the client hung up
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, r.text())
}

// text returns one line for the whole and one for each check, as in "redis: down
// (required): dial tcp 127.0.0.1:6379: connection refused".
func (r readiness) text() string {
	var b strings.Builder
	b.WriteString(word(r.Ready, "ready\n", "not ready\n"))
	for _, c := range r.Checks {
		b.WriteString(c.Name + ": " + word(c.OK, "ok", "down"))
		if !c.OK {
			b.WriteString(word(c.Required, " (required)", " (optional)"))
		}
		if c.Detail != "" {
			b.WriteString(": " + c.Detail)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func wantsJSON(req *http.Request) bool {
	switch req.URL.Query().Get("format") {
	case "json":
		return true
	case "text":
		return false
	}
	return strings.Contains(req.Header.Get("Accept"), "application/json")
}

// serveLive says that the process runs and serves. It checks no dependency, because a
// restart fixes none.
func serveLive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, "ok\n")
}

func word(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}

// maxAnswer limits the part of an answer that NotReadyError has, in bytes.
const maxAnswer = 4 << 10

// NotReadyError says why a scanner isn't ready, or doesn't answer. Its text has the advice.
type NotReadyError struct{ text string }

func (e *NotReadyError) Error() string { return e.text }

// Ask returns nil if the scanner whose admin.listen is listen answers path with status 200,
// else most likely a *NotReadyError.
func Ask(ctx context.Context, listen, path string) error {
	addr, err := dialable(listen)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path+"?format=text", nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return &NotReadyError{fmt.Sprintf("ask the scanner at %s: %v; check that a scanner runs there, and admin.listen",
			addr, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // a part is enough
	return &NotReadyError{fmt.Sprintf("scanner at %s: %s", addr, strings.TrimSpace(string(answer)))}
}

// dialable returns the address at which this machine reaches a server that listens at
// listen: localhost, if it listens on every interface.
func dialable(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("admin.listen %q: %w", listen, err)
	}
	if port == "0" {
		return "", fmt.Errorf("admin.listen %q: give it a port of its own, so that it can be asked", listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}
