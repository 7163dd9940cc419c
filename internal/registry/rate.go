package registry

import (
	"context"
	"time"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Grant asks for want tasks of a topic's rate, in tasks a second over the whole fleet; a
// negative want gives unused tasks back. burst is how much of the rate may leave at once.
// If nothing is granted, wait is the time until one more task is available.
func (r *Registry) Grant(ctx context.Context, topic string, rate, want int, burst time.Duration) (granted int,
	wait time.Duration, err error) {
	l := r.scripts.Run(ctx, luascript.Call{Script: "rate", Keys: []string{r.rateKey(topic)},
		Args: []any{rate, want, burst.Microseconds()}}).Values()
	granted, wait = int(l.Int()), time.Duration(l.Int())*time.Microsecond
	return granted, wait, wrapIf(l.Err(), "ask for the rate of topic %s", topic)
}
