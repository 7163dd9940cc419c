package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/task"
)

// The answers of the verbs. The command producer prints the same fields with -o json.
type (
	nameAnswer struct {
		Topic string `json:"topic"`
		ID    string `json:"id"`
	}
	dueAnswer struct {
		nameAnswer
		Due       string `json:"due"`
		DueMillis int64  `json:"due_ms"`
	}
	cancelAnswer struct {
		nameAnswer
		Cancelled bool `json:"cancelled"`
	}
	taskAnswer struct {
		nameAnswer
		View
	}
)

// carryOut does what a request asks, and returns its answer.
func (h *handler) carryOut(w http.ResponseWriter, r *request) (status int, answer any, err error) {
	name := nameAnswer{r.topic, r.id}
	if r.verb == "schedule" {
		return h.schedule(w, r)
	}
	when, err := r.bare()
	if err != nil {
		return 0, nil, err
	}
	switch r.verb {
	case "reschedule":
		due, err := h.tasks.Reschedule(r.Context(), r.topic, r.id, when)
		answer, err := dueOf(name, due, err)
		return http.StatusOK, answer, err
	case "cancel":
		return http.StatusOK, cancelAnswer{name, true}, h.tasks.Cancel(r.Context(), r.topic, r.id)
	default:
		stored, err := h.tasks.Get(r.Context(), r.topic, r.id)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, taskAnswer{name, NewView(stored)}, nil
	}
}

// schedule stores a task. With a condition that isn't met the status is 412.
func (h *handler) schedule(w http.ResponseWriter, r *request) (status int, answer any, err error) {
	wanted, err := r.task()
	if err != nil {
		return 0, nil, err
	}
	// A bad request is refused before its body arrives.
	if err := wanted.Check(h.maxPayload, time.Now()); err != nil {
		return 0, nil, err
	}
	var free func()
	if wanted.Payload, free, err = h.body(w, r); err != nil {
		return 0, nil, err
	}
	defer free()
	due, err := h.tasks.Schedule(r.Context(), wanted)
	answer, err = dueOf(nameAnswer{r.topic, r.id}, due, conditional(err))
	if wanted.IfAbsent {
		return http.StatusCreated, answer, err
	}
	return http.StatusOK, answer, err
}

// conditional returns the error of a call that schedules. There, no such task means that
// the condition isn't met.
func conditional(err error) error {
	if !errors.Is(err, task.ErrNotFound) {
		return err
	}
	p := problemOf(err)
	p.Status, p.Title = http.StatusPreconditionFailed, http.StatusText(http.StatusPreconditionFailed)
	return p
}

// dueOf returns the answer with a due time, which may come with task.ErrReplicas too.
func dueOf(name nameAnswer, due time.Time, err error) (dueAnswer, error) {
	return dueAnswer{name, duetime.Text(due), due.UnixMilli()}, dueProblem(due, err)
}

// dueProblem returns the problem of an error, with the due time of a task that is stored.
func dueProblem(due time.Time, err error) error {
	if err == nil {
		return nil
	}
	p := problemOf(err)
	if !due.IsZero() {
		p.Due, p.DueMillis = duetime.Text(due), due.UnixMilli()
	}
	return p
}

// body reads the payload. It waits for its share of the memory of all bodies; free gives
// the share back. The time for the answer begins after it.
func (h *handler) body(w http.ResponseWriter, r *request) (payload []byte, free func(), err error) {
	size := r.ContentLength
	if size > int64(h.maxPayload) {
		return nil, nil, h.tooLarge(fmt.Sprintf("%d bytes", size))
	}
	share := size
	if size < 0 {
		share = int64(h.maxPayload)
	}
	ctl := http.NewResponseController(w)
	if err := h.reserve(r.Context(), ctl, share); err != nil {
		return nil, nil, err
	}
	free = func() { h.bodies.Release(share) }
	limited := http.MaxBytesReader(w, r.Body, int64(h.maxPayload))
	if size >= 0 {
		payload = make([]byte, size)
		var n int
		n, err = io.ReadFull(limited, payload)
		payload = payload[:n]
	} else {
		payload, err = io.ReadAll(limited)
	}
	if err == nil {
		_ = ctl.SetWriteDeadline(time.Now().Add(writeTimeout)) // the client hung up
		return payload, free, nil
	}
	free()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		err = h.tooLarge(fmt.Sprintf("more than %d bytes", h.maxPayload))
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = problem(http.StatusRequestTimeout, "slow", fmt.Sprintf("the body took more than %s", bodyTimeout))
	default:
		err = badRequest("body", "must be complete").sized(fmt.Sprintf("%d bytes", len(payload)))
	}
	return nil, nil, err
}

// reserve takes a body's share of the memory of all bodies. If the body must wait for it, the time
// to arrive begins after that.
func (h *handler) reserve(ctx context.Context, ctl *http.ResponseController, share int64) error {
	if h.bodies.TryAcquire(share) {
		return nil
	}
	ctx, end := context.WithTimeout(ctx, h.room)
	defer end()
	if err := h.bodies.Acquire(ctx, share); err != nil {
		return problem(http.StatusServiceUnavailable, "busy", "other bodies have the memory of all bodies").later(1)
	}
	_ = ctl.SetReadDeadline(time.Now().Add(bodyTimeout)) // the client hung up
	return nil
}

func (h *handler) tooLarge(got string) error {
	return &task.RuleError{Field: "payload", Rule: fmt.Sprintf("must be at most %d bytes (max_payload)", h.maxPayload),
		Got: got}
}
