package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
)

// DataLoss says which data scanners expect and Redis doesn't have.
type DataLoss struct {
	// Expected has the identities that live scanners expect, in order; empty if Redis has
	// the data that they expect.
	Expected []string
	// Found is the identity of the data that is there; zero if it has none.
	Found registry.Identity
}

// ErrNoScanner: no scanner runs, so nobody says which data is expected.
var ErrNoScanner = errors.New("no scanner runs, and only a scanner knows which data is expected: start one first")

// ReadDataLoss returns what live scanners report about the data in Redis. It returns
// ErrNoScanner if there are none.
func ReadDataLoss(ctx context.Context, store *shard.Store) (loss DataLoss, err error) {
	members, err := balance.Members(ctx, store)
	if err != nil {
		return loss, err
	}
	if len(balance.Live(members)) == 0 {
		return loss, ErrNoScanner
	}
	if loss.Found, err = store.Registry().Identity(ctx); err != nil {
		return loss, err
	}
	for _, p := range balance.Problems(members) {
		// a scanner may not have seen so far that its data was given up
		if expected := p.Facts["expected"]; p.Kind == problem.DataLost && !loss.Found.Continues(expected) {
			loss.Expected = append(loss.Expected, expected)
		}
	}
	slices.Sort(loss.Expected)
	loss.Expected = slices.Compact(loss.Expected)
	return loss, nil
}

// Accept gives up the expected data for the data that is there, which gets an identity if
// it has none. Scanners expect that identity from then on. Accept returns it.
func (l DataLoss) Accept(ctx context.Context, store *shard.Store) (string, error) {
	accepted := registry.Identity{ID: l.Found.ID, Replaces: slices.Concat(l.Found.Replaces, l.Expected)}
	if accepted.ID == "" {
		accepted.ID = rand.Text()
	}
	done, err := store.Registry().AcceptIdentity(ctx, l.Found, accepted)
	if err == nil && !done {
		err = errors.New("the data in redis was replaced meanwhile; nothing was written, try again")
	}
	return accepted.ID, err
}
