package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// lookEvery is the time between two looks at what is waited for.
	lookEvery = 250 * time.Millisecond
	// beginWithin is how long a live scanner may take to begin a change of the shard count.
	beginWithin = 15 * time.Second
)

// Waiting waits for a change of a topic's shard count.
type Waiting struct {
	Store  *shard.Store
	Topic  string
	Shards int
	// Superseded returns an error if the topic shall no longer have Shards shards.
	Superseded func(context.Context) error
	// Show is called with the topic while it changes, and with nil while no scanner runs.
	Show func(*TopicStatus)

	idle  time.Time // the earliest time at which a scanner could begin the change
	begun bool      // a change of this topic was seen
}

// Run waits until the topic has Shards shards. It fails if the change is superseded, or if
// live scanners don't begin it within 15 s. It also fails after timeout (0 means never) and
// when ctx ends; in these cases the change itself goes on.
func (w *Waiting) Run(ctx context.Context, timeout time.Duration) error {
	w.idle = time.Now()
	var over <-chan time.Time // never, without a timeout
	if timeout > 0 {
		over = time.After(timeout)
	}
	stopped := func(why string) error {
		return fmt.Errorf("topic %s: %s; the change goes on, see `scanner status --topic %s`", w.Topic, why, w.Topic)
	}
	for {
		done, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return stopped("waiting was interrupted")
		case done || err != nil:
			return err
		}
		select {
		case <-ctx.Done():
		case <-over:
			return stopped(fmt.Sprintf("the change is not over within %s", timeout))
		case <-time.After(lookEvery):
		}
	}
}

// look shows the progress of the change and reports whether it is over.
func (w *Waiting) look(ctx context.Context) (done bool, err error) {
	status, err := ReadStatus(ctx, w.Store, w.Topic)
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return false, err
	}
	known := err == nil
	if known && status.Topics[0].Change == nil && status.Topics[0].Shards == w.Shards {
		return true, nil
	}
	if err := w.Superseded(ctx); err != nil {
		return false, err
	}
	if !slices.ContainsFunc(status.Fleet, func(m balance.Member) bool { return m.Alive }) {
		w.idle = time.Now()
		w.Show(nil)
		return false, nil
	}
	if known && status.Topics[0].Change != nil {
		w.begun = true
		w.Show(&status.Topics[0])
		return false, nil
	}
	if !w.begun && time.Since(w.idle) > beginWithin {
		return false, fmt.Errorf("topic %s: no scanner has begun the change within %s; see `scanner status`", w.Topic,
			beginWithin)
	}
	return false, nil
}
