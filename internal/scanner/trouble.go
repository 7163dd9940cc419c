package scanner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/duefleet/duefleet/internal/shard"
)

// troubles are the shards of a topic that Redis answers for with errors that no
// repeat mends: a key of the wrong type, a right that is missing. The other shards
// are served beside them.
type troubles struct {
	mu  sync.Mutex
	why map[trouble]reason
}

// trouble is what can't be done in a shard.
type trouble struct {
	shard     int
	operation string // claim or move
}

type reason struct {
	text   string
	denied bool // for who asks
	said   bool // in the log
}

// troublesSaid is how many troubles of a topic are logged one by one: all of 4,096
// shards may lack the same right.
const troublesSaid = 10

// begin notes a trouble, and reports whether it is a new one, and one to be logged.
func (t *troubles) begin(at trouble, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why == nil {
		t.why = map[trouble]reason{}
	}
	before, there := t.why[at]
	said := before.said || !there && len(t.why) < troublesSaid
	t.why[at] = reason{redisText(err), shard.Denied(err), said}
	return !there && said
}

// end forgets a trouble, and reports whether the log knows of it.
func (t *troubles) end(at trouble) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.why[at]
	delete(t.why, at)
	return before.said
}

// text names the troubled shards among the first n, and why the first of them isn't
// served; "" if none is. Denied reports whether one is for a right or a password.
func (t *troubles) text(n int) (text string, denied bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []trouble
	for at, r := range t.why {
		if at.shard < n { // else M is less by now
			all = append(all, at)
			denied = denied || r.denied
		}
	}
	if len(all) == 0 {
		return "", false
	}
	slices.SortFunc(all, func(a, b trouble) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.operation, b.operation))
	})
	shards := make([]int, len(all))
	for i, at := range all {
		shards[i] = at.shard
	}
	return fmt.Sprintf("%s not served by Redis: %s", shard.ShardNames(slices.Compact(shards)), t.why[all[0]].text), denied
}

// fails notes that Redis refuses an operation in one shard: in the log when that
// begins, in a metric each time.
func (t *topic) fails(ctx context.Context, at int, operation string, err error) {
	t.metrics.ShardError(at)
	if t.troubles.begin(trouble{at, operation}, err) {
		t.log.WarnContext(ctx, "redis does not serve this shard", "shard", at, "operation", operation, "error", redisText(err))
	}
}

// works notes that an operation in one shard was carried out.
func (t *topic) works(ctx context.Context, at int, operation string) {
	if t.troubles.end(trouble{at, operation}) {
		t.log.InfoContext(ctx, "redis serves this shard again", "shard", at, "operation", operation)
	}
}

// denials are what Redis denies this scanner for a right or a password, by operation,
// until it carries that out. A worker's claims and moves are told by troubles.
type denials struct {
	mu  sync.Mutex
	why map[string]string
}

// note keeps why an operation was denied; any other outcome forgets it. It reports
// whether that is news.
func (d *denials) note(operation string, err error) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, there := d.why[operation]
	if !shard.Denied(err) {
		delete(d.why, operation)
		return there
	}
	if d.why == nil {
		d.why = map[string]string{}
	}
	d.why[operation] = redisText(err)
	return !there
}

// text is what is denied, "" if nothing is.
func (d *denials) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for operation, why := range d.why {
		all = append(all, operation+" denied: "+why)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// listens notes whether Redis lets this scanner listen for new tasks; nil means it
// does. Without that a task that is due soon may wait for a tick.
func (t *topic) listens(err error) {
	ctx := context.Background()
	if err != nil {
		t.all.Error("listen")
	}
	switch news := t.denied.note("listen", err); {
	case news && err != nil:
		t.log.WarnContext(ctx, "redis does not let this scanner listen for new tasks", "error", redisText(err))
	case news:
		t.log.InfoContext(ctx, "redis lets this scanner listen for new tasks again")
	}
}

// shardsServed fails while shards can't be served for what is stored in them, and names
// them. Other scanners fare the same with these: that is no reason to send this one
// away.
func (s *Scanner) shardsServed() (bool, string) {
	var all []string
	for _, t := range s.all() {
		if text, _ := t.troubles.text(t.scanned()); text != "" {
			all = append(all, "topic "+t.name+": "+text)
		}
	}
	slices.Sort(all)
	if len(all) > 0 {
		return false, strings.Join(all, "; ")
	}
	return true, "served"
}
