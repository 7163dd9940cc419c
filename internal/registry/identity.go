package registry

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Identity names the data of a fleet in Redis. The first scanner makes it. A Redis without
// it, or with another one, doesn't have the fleet's data.
type Identity struct {
	// ID is random; "" means that there is no identity.
	ID string
	// Replaces has the IDs of lost data that an operator gave up for this data.
	Replaces []string
}

// replaces stands between an identity and those that it replaces.
const replaces = " replaces "

// String returns the form that Redis holds: "ID", or "ID replaces ID ID"; "" for none.
func (i Identity) String() string {
	if len(i.Replaces) == 0 {
		return i.ID
	}
	return i.ID + replaces + strings.Join(i.Replaces, " ")
}

func parseIdentity(text string) Identity {
	id, lost, _ := strings.Cut(text, replaces)
	return Identity{id, strings.Fields(lost)}
}

// Continues reports whether this is the data with that ID, or replaces it.
func (i Identity) Continues(id string) bool {
	return i.ID != "" && (i.ID == id || slices.Contains(i.Replaces, id))
}

// Identity returns the identity of the data; a zero one if there is none.
func (r *Registry) Identity(ctx context.Context) (Identity, error) {
	text, err := r.client(ctx).HGet(ctx, r.key("identity"), "value").Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return parseIdentity(text), wrapIf(err, "read the identity of the data")
}

// MakeIdentity gives data without an identity this one, and returns the identity that the
// data has afterwards.
func (r *Registry) MakeIdentity(ctx context.Context, i Identity) (Identity, error) {
	if _, err := r.AcceptIdentity(ctx, Identity{}, i); err != nil {
		return Identity{}, err
	}
	return r.Identity(ctx)
}

// AcceptIdentity replaces the identity of the data. It returns false if it isn't from any
// more; then nothing was done.
func (r *Registry) AcceptIdentity(ctx context.Context, from, to Identity) (bool, error) {
	call := luascript.Call{Script: "accept_identity", Keys: []string{r.key("identity")},
		Args: []any{from.String(), to.String()}}
	done, err := r.scripts.Run(ctx, call).Int()
	return done == 1, wrapIf(err, "replace the identity of the data")
}
