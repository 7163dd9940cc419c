package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Hold pauses a topic in Redis alone, whatever its document says.
type Hold struct {
	// Until is when it ends by itself, by Redis's clock; zero: when somebody ends it.
	Until time.Time `json:"until,omitzero"`
	// Reason is one line for people; "" for none.
	Reason string `json:"reason,omitempty"`
}

// Ended reports whether the hold has ended by itself, at now by Redis's clock.
func (h Hold) Ended(now time.Time) bool { return !h.Until.IsZero() && !now.Before(h.Until) }

// Holds returns the holds by topic, also those that have ended by themselves. A hold that
// can't be read is one without an end.
func (r *Registry) Holds(ctx context.Context) (map[string]Hold, error) {
	texts, err := r.client(ctx).HGetAll(ctx, r.key("holds")).Result()
	if err != nil {
		return nil, fmt.Errorf("read which topics are paused in Redis: %w", err)
	}
	holds := make(map[string]Hold, len(texts))
	for topic, text := range texts {
		var h Hold
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			h = Hold{Reason: "its reason and end can't be read"}
		}
		holds[topic] = h
	}
	return holds, nil
}

// Hold pauses a topic in Redis, or replaces the end and the reason.
func (r *Registry) Hold(ctx context.Context, topic string, h Hold) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	err = r.client(ctx).HSet(ctx, r.key("holds"), topic, text).Err()
	return wrapIf(err, "pause topic %s in Redis", topic)
}

// EndHold ends a topic's hold. It reports whether there was one.
func (r *Registry) EndHold(ctx context.Context, topic string) (bool, error) {
	n, err := r.client(ctx).HDel(ctx, r.key("holds"), topic).Result()
	return n > 0, wrapIf(err, "resume topic %s in Redis", topic)
}
