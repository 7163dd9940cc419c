package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// api handles the requests of clients. A client may repeat each request, because it
// chooses the order's ID.
type api struct {
	orders    orders
	tasks     *producer.Client
	payWithin time.Duration
	log       *slog.Logger
}

// place replies with the stored order. A repeat gets the order of the first request.
func (a api) place(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&o); err != nil {
		answer(w, http.StatusBadRequest, failure{Error: err.Error()})
		return
	}
	stored, err := a.orders.find(r.Context(), o.ID)
	if errors.Is(err, errNoOrder) {
		stored, err = a.create(r.Context(), o)
	}
	switch {
	case err != nil:
		a.fail(w, r, err)
	case stored.Mail != o.Mail:
		answer(w, http.StatusConflict, failure{Error: "this ID is another order's"})
	default:
		answer(w, http.StatusOK, stored)
	}
}

// create schedules the order's timeout first, and then commits the order. If it stops in
// between, the task finds no order and does nothing. If it committed first, a stop in
// between would leave an order that stays unpaid for ever. A second try replaces the task
// of the first.
func (a api) create(ctx context.Context, o order) (order, error) {
	_, err := a.tasks.Schedule(ctx, producer.Request{
		Topic: topic, ID: o.ID, When: producer.In(a.payWithin), Payload: []byte(stepCancel),
	})
	if err != nil {
		return order{}, err
	}
	return a.orders.insert(ctx, o)
}

// pay commits the payment first, and then cancels the task. A failed cancel does no harm:
// the task is delivered and finds the order paid.
func (a api) pay(w http.ResponseWriter, r *http.Request) {
	stored, err := a.orders.pay(r.Context(), r.PathValue("id"))
	switch {
	case err != nil:
		a.fail(w, r, err)
		return
	case stored.State != paid:
		answer(w, http.StatusConflict, stored)
		return
	}
	if err := a.tasks.Cancel(r.Context(), topic, stored.ID); err != nil && !errors.Is(err, task.ErrNotFound) {
		a.log.WarnContext(r.Context(), "the task of a paid order is left to its handler", "order", stored.ID, "error", err)
	}
	answer(w, http.StatusOK, stored)
}

// fail replies with a status that says what the client should do.
func (a api) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errNoOrder):
		answer(w, http.StatusNotFound, failure{Error: err.Error()})
	case errors.Is(err, task.ErrInvalid): // the client's ID is invalid
		answer(w, http.StatusBadRequest, failure{Error: err.Error()})
	case errors.Is(err, task.ErrUnavailable), errors.Is(err, task.ErrUncertain), errors.Is(err, task.ErrRedisFull):
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, failure{Error: "no order was placed: repeat the request with the same ID"})
	default:
		a.log.ErrorContext(r.Context(), "a request failed", "path", r.URL.Path, "error", err)
		answer(w, http.StatusInternalServerError, failure{Error: "repeat the request with the same ID"})
	}
}

type failure struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
