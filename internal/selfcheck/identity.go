package selfcheck

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/telemetry"
)

const (
	// identityInterval is the time between two looks at the identity of the data in Redis.
	identityInterval = 5 * time.Second
	// expectedInterval is the time between two looks at the one that Consul expects, while
	// Redis has it.
	expectedInterval = time.Minute
	// identityTimeout bounds one call to Redis or to Consul.
	identityTimeout = 5 * time.Second
)

// Identities keeps the identity of the data that a fleet expects in Redis. fleet is the
// fleet's prefix in Redis. Index 0 means that there is no identity. SaveIdentity returns
// false if the index has changed.
type Identities interface {
	Identity(ctx context.Context, fleet string) (id string, index uint64, err error)
	SaveIdentity(ctx context.Context, fleet, id string, index uint64) (bool, error)
}

// Identity checks whether Redis has the data that the fleet expects. A Redis that was replaced by
// an empty one answers as before, and its tasks are gone. The check expects the identity in
// Consul, or the one that this scanner saw last.
type Identity struct {
	Registry *registry.Registry
	Kept     Identities // nil without Consul
	Fleet    string     // the prefix in Redis
	Log      *slog.Logger
	Every    time.Duration // between two looks; 0: 5 s
	// Lost is called when a check finds a loss, once for each.
	Lost func()

	found   atomic.Pointer[problem.Problem] // nil: Redis has the data, or nothing is known
	refusal atomic.Pointer[string]          // why Consul refuses this scanner the key; nil: it doesn't

	// Only Watch uses these.
	expected string    // "": not known
	asked    time.Time // when Consul last answered
	failure  string    // what was last logged about a check that failed
}

// Watch runs the check until ctx ends.
func (k *Identity) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.check(ctx)
		failure := ""
		if err != nil { // heartbeats report that Redis is away
			failure = connect.Advised("redis", err)
		}
		if failure != k.failure && failure != "" && ctx.Err() == nil {
			k.Log.DebugContext(ctx, "not known whether redis has the data of the fleet", "error", failure)
		}
		k.failure = failure
		retry.Sleep(ctx, cmp.Or(k.Every, identityInterval))
	}
}

// check compares the identity in Redis with the expected one. It makes an identity only if
// it knows that none is expected.
func (k *Identity) check(ctx context.Context) error {
	there, unread := k.read(ctx)
	if unread != nil {
		return unread
	}
	if there.ID != "" && there.ID == k.expected && time.Since(k.asked) < expectedInterval {
		k.record(ctx, registry.Identity{ID: k.expected})
		return nil
	}
	kept, index, err := k.ask(ctx)
	k.expected = cmp.Or(kept, k.expected)
	// An identity that Consul has was in Redis before, so Redis is read after Consul.
	if there, unread = k.read(ctx); unread != nil {
		return unread
	}
	if there.ID == "" && k.expected == "" {
		if err != nil && !consul.Forbidden(err) {
			return err // Consul may expect one
		}
		if there, unread = k.begin(ctx); unread != nil {
			return unread
		}
	}
	k.record(ctx, there)
	if k.expected == "" || there.Continues(k.expected) {
		k.expected = there.ID
		if err == nil && k.Kept != nil && kept != there.ID {
			err = k.keep(ctx, index)
		}
	}
	return k.refused(ctx, err)
}

// read returns the identity in Redis.
func (k *Identity) read(ctx context.Context) (registry.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	return k.Registry.Identity(ctx)
}

// begin makes the identity of new data.
func (k *Identity) begin(ctx context.Context) (registry.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	return k.Registry.MakeIdentity(ctx, registry.Identity{ID: rand.Text()})
}

// ask returns the identity that Consul expects; "" if there is none.
func (k *Identity) ask(ctx context.Context) (id string, index uint64, err error) {
	if k.Kept != nil {
		ctx, cancel := context.WithTimeout(ctx, identityTimeout)
		defer cancel()
		id, index, err = k.Kept.Identity(ctx, k.Fleet)
	}
	if err == nil {
		k.asked = time.Now()
	}
	return id, index, err
}

// keep writes the identity that Redis has to Consul. If another scanner was faster, the
// next check compares again.
func (k *Identity) keep(ctx context.Context, index uint64) error {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	ok, err := k.Kept.SaveIdentity(ctx, k.Fleet, k.expected, index)
	if !ok {
		k.asked = time.Time{}
	}
	return err
}

// refused notes and logs whether Consul refuses the key to this scanner's token, and
// returns any other error. Without the right, a scanner remembers what it expects itself.
func (k *Identity) refused(ctx context.Context, err error) error {
	switch {
	case consul.Forbidden(err):
		k.asked = time.Now()
		why := err.Error()
		if k.refusal.Swap(&why) == nil {
			k.Log.WarnContext(ctx, "consul does not keep the identity of the data", "error", why)
		}
		return nil
	case err == nil && k.refusal.Swap(nil) != nil:
		k.Log.InfoContext(ctx, "consul keeps the identity of the data again")
	}
	return err
}

// record notes and logs whether the identity in Redis continues the expected one.
func (k *Identity) record(ctx context.Context, there registry.Identity) {
	before := k.found.Load()
	if k.expected == "" || there.Continues(k.expected) {
		k.found.Store(nil)
		if before != nil {
			k.Log.InfoContext(ctx, "redis has the data that the fleet expects", "expected", k.expected, "found", there.ID)
		}
		return
	}
	p := problem.OtherData(k.expected, there.ID)
	k.found.Store(&p)
	if before == nil || before.Text != p.Text {
		k.Log.ErrorContext(ctx, "redis lost the data of the fleet", "expected", k.expected, "found", there.ID)
	}
	if before == nil {
		k.Lost()
	}
}

// Problems returns that Redis doesn't have the data that the fleet expects.
func (k *Identity) Problems() []problem.Problem { return one(k.found.Load()) }

// Holds fails while Redis doesn't have the data that the fleet expects. The scanner delivers what
// is there, and all others have the same problem, so the check isn't required.
func (k *Identity) Holds() telemetry.Result {
	return telemetry.Probed("redis has the fleet's data", k.Problems()...)
}

// Refused returns why Consul doesn't keep the identity of the data.
func (k *Identity) Refused() []problem.Problem {
	why := k.refusal.Load()
	if why == nil {
		return nil
	}
	return []problem.Problem{problem.New(problem.ConsulRefuses, "",
		fmt.Sprintf("consul does not keep the identity of the data: %s", *why))}
}
