package scanner

import (
	"context"
	"reflect"
	"sync/atomic"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/forward"
)

// routing gives the publisher the route of the settings in force.
type routing struct {
	publisher *forward.Publisher
	inForce   *inForce
	routed    atomic.Pointer[config.Document] // the one whose route the publisher was last given.
}

// run follows the settings until ctx ends. It may have to wait for the broker; nothing else
// of the topic waits for it.
func (r *routing) run(ctx context.Context) {
	for ctx.Err() == nil {
		doc := r.inForce.document.Load()
		route := routeOf(doc.Topic)
		r.publisher.SetRoute(route)
		r.routed.Store(doc)
		r.inForce.await(ctx, func() bool { return !reflect.DeepEqual(routeOf(*r.inForce.settings()), route) })
	}
}

// applying reports whether RabbitMQ still has to accept or refuse the settings in force.
func (r *routing) applying() bool {
	routed := r.routed.Load()
	if routed == nil || !reflect.DeepEqual(routeOf(routed.Topic), routeOf(*r.inForce.settings())) {
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
