package scanner

import (
	"context"
	"reflect"
	"sync/atomic"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/documents"
	"github.com/duefleet/duefleet/internal/forward"
)

// routing gives the publisher the route of the settings in force.
type routing struct {
	publisher *forward.Publisher
	inForce   *documents.InForce
	routed    atomic.Pointer[config.Document] // the one whose route the publisher was last given.
}

// stale reports whether the publisher wasn't given the route in force.
func (r *routing) stale() bool {
	routed := r.routed.Load()
	if routed == r.inForce.Document() {
		return false
	}
	return !reflect.DeepEqual(routeOf(routed.Topic), routeOf(*r.inForce.Settings()))
}

// apply gives the publisher the route in force. It may have to wait for the broker; nothing
// else of the topic waits for it.
func (r *routing) apply(context.Context) {
	doc := r.inForce.Document()
	r.publisher.SetRoute(routeOf(doc.Topic))
	r.routed.Store(doc)
}

// applying reports whether RabbitMQ still has to accept or refuse the settings in force.
func (r *routing) applying() bool {
	if r.stale() {
		return true
	}
	_, judged := r.publisher.Blocked()
	return !judged
}

func routeOf(s config.Topic) forward.Route {
	r := forward.Route{
		Exchange: s.Exchange, RoutingKey: s.RoutingKey, Lean: s.Headers == config.LeanHeaders, Window: s.Window,
		ConfirmTimeout: s.Lease / 2, IntakeHeaders: s.Intake != nil && s.Intake.Headers,
	}
	if s.Declare != nil {
		d := s.Declare
		r.Declare = &forward.Declare{Type: d.Type, Queue: d.Queue, QueueType: d.QueueType, DeadLetter: d.DeadLetter}
	}
	return r
}
