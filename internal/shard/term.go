package shard

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Term numbers the sessions that take messages from a topic's intake; a later one is
// higher. A shard that has seen a term refuses the calls of earlier ones. Callers other
// than the intake have none: 0.
type Term int64

// String returns the form that scripts and keys hold.
func (t Term) String() string {
	if t == 0 {
		return ""
	}
	return strconv.FormatInt(int64(t), 10)
}

var (
	// ErrSuperseded says that a later term of the topic's intake has begun. The call did
	// nothing, and no call of this term will.
	ErrSuperseded = errors.New("another scanner took over the queue of the intake")
	// ErrStale says that a term began which the caller doesn't know. So it can't tell whether it still
	// has the queue. The call did nothing.
	ErrStale = errors.New("another term began, maybe after another session got the queue")
	// ErrUnraised says that a shard has not seen the term of the call, and did nothing. The
	// caller must raise the term if it is still the topic's latest.
	ErrUnraised = errors.New("the shard has not seen the term of this intake")
)

// BeginTerm begins a new term of the topic's intake and reads the placement, with the
// errors of Topic.Placement. The error is ErrStale if another term than latest is the
// latest. If the answer is lost, nobody has the new term.
func (t *Topic) BeginTerm(ctx context.Context, latest Term) (Term, Placement, error) {
	call := luascript.Call{Script: "begin_term", Keys: []string{t.placementKey()}, Args: []any{latest.String()}}
	reply := t.store.scripts.Run(ctx, call).Values()
	text, there := reply.TextIf()
	if !there && reply.Err() == nil {
		return 0, Placement{}, unknownTopic(t.name)
	}
	if text == "stale" {
		return 0, Placement{}, ErrStale
	}
	value := reply.Text()
	if err := reply.Err(); err != nil {
		return 0, Placement{}, fmt.Errorf("begin a term of the intake of topic %s: %w", t.name, err)
	}
	term, err := parseTerm(text)
	if err != nil {
		return 0, Placement{}, err
	}
	p, err := t.placementFrom(value, nil)
	return term, p, err
}

// LatestTerm returns the latest term of the topic's intake, 0 if none has begun, and the placement.
// It returns the errors of Topic.Placement.
func (t *Topic) LatestTerm(ctx context.Context) (Term, Placement, error) {
	var there struct {
		Value  *string `redis:"value"`
		Intake string  `redis:"intake"`
	}
	err := t.store.Client(ctx).HMGet(ctx, t.placementKey(), "value", "intake").Scan(&there)
	if err == nil && there.Value == nil {
		err = redis.Nil
	}
	if err != nil {
		_, err = t.placementFrom("", err)
		return 0, Placement{}, err
	}
	p, err := t.placementFrom(*there.Value, nil)
	if err != nil || there.Intake == "" {
		return 0, p, err
	}
	term, err := parseTerm(there.Intake)
	return term, p, err
}

// PlacementIn returns the placement as Topic.Placement does, if term is the latest of the
// topic's intake; otherwise ErrSuperseded.
func (t *Topic) PlacementIn(ctx context.Context, term Term) (Placement, error) {
	latest, p, err := t.LatestTerm(ctx)
	if err == nil && latest != term {
		return Placement{}, ErrSuperseded
	}
	return p, err
}

// RaiseTerm shows a term to all shards of a placement, in one round trip. latest is the one that it
// followed. The error is ErrSuperseded if one of the shards has seen a later term. It is ErrStale if
// one has seen a term between the two, which a failover lost. Shards that can't be reached are left
// out; if none can, it returns the first one's error.
func (t *Topic) RaiseTerm(ctx context.Context, term, latest Term, p Placement) error {
	calls := make([]luascript.Call, p.Scanned())
	for i := range calls {
		calls[i] = luascript.Call{Script: "raise_term", Keys: []string{t.Shard(i).fence()}, Args: []any{
			term.String(), latest.String()}}
	}
	var failed error
	raised := false
	for i, reply := range t.store.scripts.RunAll(ctx, calls) {
		_, _, err := answer(reply)
		if errors.Is(err, ErrSuperseded) || errors.Is(err, ErrStale) {
			return err
		}
		raised = raised || err == nil
		if failed == nil {
			failed = wrapIf(err, "raise the term of the intake in shard %d of topic %s", i, t.name)
		}
	}
	if raised {
		return nil
	}
	return failed
}

func parseTerm(text string) (Term, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	return Term(n), wrapIf(err, "term of the intake")
}
