package main

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"strconv"
	"strings"
	"time"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/task"
)

// The steps of an order's task, as in its payload.
const (
	stepCancel = "cancel"
	stepRemind = "remind"
)

// timeouts handles due tasks. Tests replace its fields.
type timeouts struct {
	orders interface {
		find(ctx context.Context, id string) (order, error)
		cancelUnpaid(ctx context.Context, id string) (order, error)
	}
	mails interface {
		send(ctx context.Context, key, address, text string) error
	}
	remindAfter time.Duration
}

// handle does one step of a task. If it fails, the consumer retries it by its policy.
func (t timeouts) handle(ctx context.Context, d task.Delivery) error {
	switch step := string(d.Payload); step {
	case stepCancel:
		return t.cancel(ctx, d)
	case stepRemind:
		return t.remind(ctx, d)
	default:
		return consumer.Park(fmt.Errorf("the payload %q is no step of an order", step))
	}
}

// cancel asks the database, not the task, because a paid order may still have a task.
func (t timeouts) cancel(ctx context.Context, d task.Delivery) error {
	o, err := t.orders.cancelUnpaid(ctx, d.ID)
	switch {
	case errors.Is(err, errNoOrder):
		return nil // its request ended before the commit
	case err != nil:
		return err
	case o.State == paid:
		return nil
	}
	// A repeat finds the order cancelled, and asks for the next step again: the first
	// delivery may have ended before the step was stored.
	return d.NextWhen(task.In(t.remindAfter), []byte(stepRemind))
}

func (t timeouts) remind(ctx context.Context, d task.Delivery) error {
	o, err := t.orders.find(ctx, d.ID)
	if errors.Is(err, errNoOrder) {
		return consumer.Drop(err) // somebody removed the order
	}
	if err != nil {
		return err
	}
	address, err := mail.ParseAddress(o.Mail)
	if err != nil {
		// Another attempt doesn't help. Somebody corrects the order and replays the task.
		return consumer.Park(fmt.Errorf("the order's mail address: %w", err))
	}
	return t.mails.send(ctx, key(d), address.Address, "Order "+o.ID+" was cancelled, since it wasn't paid. Order again?")
}

// key returns the idempotency key of a step. It is the same in all deliveries of the
// step, retries included: Scheduled doesn't change, but Due does. All steps of a chain
// have the same Scheduled, so the payload is part of the key.
func key(d task.Delivery) string {
	scheduled := strconv.FormatInt(d.Scheduled.UnixMilli(), 10)
	return strings.Join([]string{d.Topic, d.ID, scheduled, string(d.Payload)}, "/")
}
