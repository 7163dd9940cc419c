package scanner

import (
	"bytes"
	"context"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/internal/shard"
)

// hold notes the document in force.
func (t *topic) hold(document []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.document = document
	t.change()
}

func (t *topic) held() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.document
}

// keep keeps the document in force in Redis until ctx ends, for a fleet that starts
// without the place where it came from; and the topic among those that are known.
// It writes one after the other, so that the newest is what stays. It writes anew
// with each placement: the removal of a topic may end after the topic was made anew.
func (t *topic) keep(ctx context.Context) error {
	var pause retry.Backoff
	var kept []byte
	var under shard.Placement
	for ctx.Err() == nil {
		changed := t.changes()
		document := t.held()
		p, removed := t.known()
		if document == nil || p.Epoch == 0 || removed || p == under && bytes.Equal(document, kept) {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if err := t.store.Keep(ctx, document); err != nil {
			t.all.Error("document")
			if t.denied.note("document", err) && ctx.Err() == nil {
				t.log.WarnContext(ctx, "redis does not keep the topic's document", "error", redisText(err))
			}
			pause.Wait(ctx)
			continue
		}
		t.denied.note("document", nil)
		pause.Reset()
		kept, under = document, p
	}
	return nil
}
