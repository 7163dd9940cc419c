package scanner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// FileSource names the source of documents that is a configuration file: each scanner has
// its own.
const FileSource = "file"

// ConsulSource names the source that is Consul's folder of a prefix, at whatever address.
func ConsulSource(prefix string) string { return "consul:" + prefix }

const (
	// admissionInterval is how often a scanner that is not admitted asks again.
	admissionInterval = time.Second
	// admissionCheck is how often one that is looks whether the fleet still has its source.
	admissionCheck = 10 * time.Second
)

// errOtherSource is what a scanner is refused with.
var errOtherSource = errors.New("the fleet takes its topics from another source")

// admission lets a scanner work in a fleet that takes its topics' documents from the same
// source as it does. Redis records which one that is. A fleet of files goes over to Consul
// when none of its scanners that take theirs from files lives any more. The other way an
// operator removes the record: one scanner that was started without Consul's address must
// not take a fleet over that is just restarted.
type admission struct {
	source string // "": nothing is checked
	store  *shard.Store
	fleet  func(ctx context.Context) ([]balance.Member, error)
	log    *slog.Logger

	open     chan struct{} // closed by whoever awaited it
	admitted atomic.Bool
	refused  atomic.Pointer[string] // why it isn't admitted; nil: it is, or was not asked yet
}

// works returns the source that this scanner works by, "" before it does.
func (a *admission) works() string {
	if a.admitted.Load() {
		return a.source
	}
	return ""
}

// why returns why the scanner is refused, "" if it isn't.
func (a *admission) why() string {
	if why := a.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// await returns true once the scanner is admitted, or false when ctx ends.
func (a *admission) await(ctx context.Context) bool {
	var pause retry.Backoff
	for ctx.Err() == nil {
		err := a.ask(ctx)
		switch {
		case err == nil || a.source == "":
			a.admitted.Store(true)
			return true
		case errors.Is(err, errOtherSource):
			pause.Reset()
			retry.Sleep(ctx, admissionInterval)
		default: // heartbeats tell that Redis is away
			pause.Wait(ctx)
		}
	}
	return false
}

// watch tells when the fleet's source becomes another one, until ctx ends.
func (a *admission) watch(ctx context.Context) {
	for ctx.Err() == nil {
		retry.Sleep(ctx, admissionCheck)
		_ = a.ask(ctx) // it keeps and logs what matters
	}
}

// ask records the scanner's source if there is none, and keeps whether it may work by it.
func (a *admission) ask(ctx context.Context) error {
	if a.source == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, balance.Silence)
	defer cancel()
	recorded, err := a.store.TakeSource(ctx, a.source, "")
	if err == nil && recorded != a.source {
		recorded, err = a.takeOver(ctx, recorded)
	}
	switch {
	case err != nil:
		return err
	case recorded == a.source:
		if a.refused.Swap(nil) != nil {
			a.log.InfoContext(ctx, "the fleet takes its topics from this scanner's source now", "source", a.source)
		}
		return nil
	}
	why := fmt.Sprintf("this scanner takes its topics from %s, and the fleet from %s: a fleet has one source; set the same one here, or see \"One source of topics\" in docs/operations.md", a.source, recorded)
	if a.refused.Swap(&why) == nil {
		a.log.ErrorContext(ctx, "scanner refused: the fleet takes its topics from another source", "source", a.source, "fleet", recorded)
	}
	return errOtherSource
}

// takeOver records Consul in the place of files that no living scanner works by. It returns
// what is recorded then.
func (a *admission) takeOver(ctx context.Context, recorded string) (string, error) {
	if recorded != FileSource || !strings.HasPrefix(a.source, ConsulSource("")) {
		return recorded, nil
	}
	members, err := a.fleet(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range members {
		if m.Alive && m.Source == recorded {
			return recorded, nil
		}
	}
	return a.store.TakeSource(ctx, a.source, recorded)
}
