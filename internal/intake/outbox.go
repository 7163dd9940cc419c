package intake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/duefleet/duefleet/internal/amqpconn"
	"github.com/duefleet/duefleet/internal/amqpframe"
	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/amqptypes"
	"github.com/duefleet/duefleet/task"
)

// The headers of a refused message. It keeps its own headers, too.
const (
	// HeaderRefused is the reason.
	HeaderRefused = task.ReservedHeaderPrefix + "refused"
	// HeaderRefusedClass is the reason in one word, as metrics have it.
	HeaderRefusedClass = task.ReservedHeaderPrefix + "refused-class"
	// HeaderRefusedExchange is the exchange that the message was published to.
	HeaderRefusedExchange = task.ReservedHeaderPrefix + "refused-exchange"
	// HeaderUserID is the property user_id, which RabbitMQ accepts only from that user.
	HeaderUserID = task.ReservedHeaderPrefix + "user-id"
	// HeaderExpiration is the property expiration. A refused message doesn't expire.
	HeaderExpiration = task.ReservedHeaderPrefix + "expiration"
	// HeaderLeftOut says that the message's own headers were too large for one more.
	HeaderLeftOut = task.ReservedHeaderPrefix + "headers-left-out"
)

// frameRest is the most bytes that a frame with headers needs for the rest: seven short strings and
// numbers.
const frameRest = 2 << 10

// confirmTimeout bounds the wait for RabbitMQ's confirms.
const confirmTimeout = 10 * time.Second

// outbox sends refused messages and answers, on a channel that it opens when needed.
type outbox struct {
	broker  Broker
	channel *amqp.Channel
	closes  chan *amqp.Error
	returns chan amqp.Return
}

// refuse sends messages to the exchange for refused ones, except those to reject: the queue sends
// them there. They are then refused for good.
func (in *Intake) refuse(ctx context.Context, refused batch, exchange string) error {
	refused = refused.only(func(it *item) bool { return it.code == "" })
	if len(refused) == 0 {
		return nil
	}
	sent := refused.only(func(it *item) bool { return !it.rejects })
	err := in.outbox.refuse(ctx, sent, exchange)
	for _, it := range refused {
		if !it.kept && !it.rejects {
			continue
		}
		it.code = codeRefused
		in.logs.refused.Log(ctx, "reason", it.refusal.why, "message_id", it.delivery.MessageId, "exchange",
			it.delivery.Exchange, "routing_key", it.delivery.RoutingKey)
	}
	if err != nil {
		return fmt.Errorf("send refused messages to exchange %q: %w", exchange, err)
	}
	return nil
}

// refuse publishes messages and waits until RabbitMQ has confirmed that each is in a queue. If
// it returns an error, those that are in a queue have kept set.
func (o *outbox) refuse(ctx context.Context, refused batch, exchange string) error {
	if len(refused) == 0 {
		return nil
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	var failed error
	frame := o.broker.FrameMax()
	sent := make([]refusing, 0, len(refused))
	for _, it := range refused {
		p := it.refused(frame)
		confirm, err := o.channel.PublishWithDeferredConfirm(exchange, it.delivery.RoutingKey, true, false, p)
		if err != nil {
			failed = err
			break
		}
		sent = append(sent, refusing{it, p, confirm})
	}
	for _, r := range sent {
		select {
		case <-r.confirm.Done():
		case <-ctx.Done():
		}
		if !r.confirm.Acked() {
			failed = cmp.Or(failed, errors.Join(errors.New("not confirmed"), ctx.Err()))
		}
	}
	if failed = cmp.Or(o.keep(sent), failed); failed != nil {
		return o.failed(failed)
	}
	return nil
}

// refusing is a refused message on its way.
type refusing struct {
	item    *item
	message amqp.Publishing
	confirm *amqp.DeferredConfirmation
}

// keep sets kept for the messages that are in a queue: RabbitMQ confirmed them and didn't return
// them. It returns why messages came back. If one that came back isn't known again, kept isn't
// set for any.
func (o *outbox) keep(sent []refusing) (why error) {
	acked := slices.DeleteFunc(sent, func(r refusing) bool { return !r.confirm.Acked() })
	for {
		var back amqp.Return
		select { // a return comes before its confirm
		case back = <-o.returns:
		default:
		}
		if back.ReplyCode == 0 { // there is none, or the channel is closed
			break
		}
		why = fmt.Errorf("returned: %d %s", back.ReplyCode, back.ReplyText)
		n := slices.IndexFunc(acked, func(r refusing) bool { return r.is(&back) })
		if n < 0 {
			return why
		}
		acked = slices.Delete(acked, n, n+1) // an equal message may stand for it
	}
	for _, r := range acked {
		r.item.kept = true
	}
	return why
}

// is reports whether a message that came back equals this one.
func (r refusing) is(back *amqp.Return) bool {
	sent := r.message
	sent.Body = nil
	return back.RoutingKey == r.item.delivery.RoutingKey && bytes.Equal(back.Body, r.message.Body) &&
		reflect.DeepEqual(sent, amqp.Publishing{
			Headers: back.Headers, ContentType: back.ContentType, ContentEncoding: back.ContentEncoding,
			DeliveryMode: back.DeliveryMode, Priority: back.Priority, CorrelationId: back.CorrelationId,
			ReplyTo: back.ReplyTo, Expiration: back.Expiration, MessageId: back.MessageId, Timestamp: back.Timestamp,
			Type: back.Type, UserId: back.UserId, AppId: back.AppId,
		})
}

// refused returns the message as it was published, with the reason. It leaves out the message's
// own headers if they don't fit into a frame of RabbitMQ.
func (it *item) refused(frame int) amqp.Publishing {
	d := it.delivery
	p := amqp.Publishing{
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
	own := map[string]string{HeaderRefused: it.refusal.why.Error(), HeaderRefusedClass: it.refusal.class,
		HeaderRefusedExchange: d.Exchange, HeaderUserID: d.UserId, HeaderExpiration: d.Expiration}
	if it.refusal.class == refusedUnreadable {
		own[amqpframe.HeaderUnreadable] = own[HeaderRefused] // so it is refused again if it comes back
		if d.Headers[amqpframe.HeaderTable] == nil {
			own[HeaderLeftOut] = own[HeaderRefused]
		}
	}
	p.Headers = with(d.Headers, own)
	if err := fit(p.Headers, frame); err != nil {
		own[HeaderLeftOut] = err.Error()
		p.Headers = with(nil, own)
	}
	return p
}

// fit returns an error for headers that RabbitMQ or its clients can't read. They are in one frame
// with the properties. frame is its limit in bytes; 0 is none.
func fit(headers amqp.Table, frame int) error {
	b, err := amqpmsg.Encode(amqpmsg.Message{Headers: amqptypes.Headers(headers)})
	if err == nil && frame > 0 && len(b) > frame-frameRest {
		return fmt.Errorf("headers: take %d bytes, and the frame_max of RabbitMQ is %d", len(b), frame)
	}
	return err
}

// with returns a copy of headers with some of its own that aren't empty.
func with(headers amqp.Table, own map[string]string) amqp.Table {
	all := make(amqp.Table, len(headers)+len(own))
	for key, v := range headers {
		all[key] = v
	}
	for key, v := range own {
		if v != "" {
			all[key] = v
		}
	}
	return all
}

// reply is the body of an answer. The JSON names are an interface.
type reply struct {
	// Code is ok, not_found, exists or refused.
	Code string `json:"code"`
	// Due is the task's due time in Unix ms, after a schedule or a move.
	Due int64 `json:"due,omitempty"`
	// Done is maybe if Code is not_found or exists, and a copy whose reply was lost may have taken
	// effect.
	Done string `json:"done,omitempty"`
	// Reason says why the message was refused.
	Reason string `json:"reason,omitempty"`
}

const doneMaybe = "maybe"

// answer sends answers, except those that an earlier call sent and RabbitMQ confirmed. Those
// that no queue gets are dropped. It waits for no confirms: a client may name a queue that
// never confirms.
func (o *outbox) answer(ctx context.Context, wanted batch) error {
	if err := o.open(ctx); err != nil {
		return err
	}
	for _, it := range wanted {
		if it.answer != nil && it.answer.Acked() {
			continue
		}
		r := reply{Code: it.code, Due: it.dueAt}
		if it.maybe {
			r.Done = doneMaybe
		}
		if it.refusal != nil {
			r.Reason = it.refusal.why.Error()
		}
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		it.answer, err = o.channel.PublishWithDeferredConfirm("", it.delivery.ReplyTo, false, false, amqp.Publishing{
			ContentType: "application/json", CorrelationId: it.delivery.CorrelationId, AppId: "duefleet", Body: body,
		})
		if err != nil {
			return o.failed(err)
		}
	}
	return nil
}

// open opens the channel if there is none. The error says why nothing can be published.
func (o *outbox) open(ctx context.Context) (err error) {
	if _, blocked, why := o.broker.State(); blocked {
		return errors.New("RabbitMQ blocks publishers: " + why)
	}
	if o.channel != nil && !o.channel.IsClosed() {
		return nil
	}
	closes, returns := make(chan *amqp.Error, 1), make(chan amqp.Return, batchItems)
	o.channel, err = o.broker.Channel(ctx, func(ch *amqp.Channel) error {
		ch.NotifyClose(closes)
		ch.NotifyReturn(returns)
		return ch.Confirm(false)
	})
	o.closes, o.returns = closes, returns
	return err
}

// failed closes the channel, so that no late confirm or return is taken for a later one's.
// It returns the broker's reason for an error, if there is one.
func (o *outbox) failed(err error) error {
	if why := o.lost(); why != nil {
		err = why
	}
	o.close()
	return err
}

// lost returns why the broker closed the channel, once; nil if it didn't.
func (o *outbox) lost() error {
	select {
	case e := <-o.closes:
		if e != nil {
			return amqpconn.Brief(e)
		}
	default:
	}
	return nil
}

// close closes the channel, without waiting for the broker.
func (o *outbox) close() {
	if o.channel != nil {
		go func(ch *amqp.Channel) { _ = ch.Close() }(o.channel) // may be closed already
		o.channel = nil
	}
}
