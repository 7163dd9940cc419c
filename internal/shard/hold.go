package shard

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

func (s *Store) holdsKey() string { return s.prefix + ":holds" }

// Holds returns the holds by topic, also those that have ended by themselves. A hold that
// can't be read is one without an end.
func (s *Store) Holds(ctx context.Context) (map[string]Hold, error) {
	texts, err := s.Client(ctx).HGetAll(ctx, s.holdsKey()).Result()
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

// Hold pauses the topic in Redis, or replaces the end and the reason.
func (t *Topic) Hold(ctx context.Context, h Hold) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	err = t.store.Client(ctx).HSet(ctx, t.store.holdsKey(), t.name, text).Err()
	return wrapIf(err, "pause topic %s in Redis", t.name)
}

// EndHold ends the topic's hold. It reports whether there was one.
func (t *Topic) EndHold(ctx context.Context) (bool, error) {
	n, err := t.store.Client(ctx).HDel(ctx, t.store.holdsKey(), t.name).Result()
	return n > 0, wrapIf(err, "resume topic %s in Redis", t.name)
}
