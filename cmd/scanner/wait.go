package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

const (
	// waitBeat is how often a change of the shard count is looked at.
	waitBeat = 250 * time.Millisecond
	// waitBegin is how long it may take until a scanner begins the change.
	waitBegin = 15 * time.Second
)

// awaitShards follows a topic's placement until it is what its document says.
func awaitShards(cmd *cobra.Command, s *settings, c consulTopics, topic string) error {
	doc, err := document(cmd.Context(), c, topic)
	if err != nil {
		return err
	}
	rdb, store, err := s.open()
	if err != nil {
		return err
	}
	defer rdb.Close()
	w := waiting{topic: topic, shards: doc.Topic.Shards, store: store, began: time.Now(), out: cmd.ErrOrStderr()}
	for {
		done, err := w.look(cmd.Context())
		if err != nil {
			return err
		}
		if done {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s has %d shards, stable\n", topic, w.shards)
			return err
		}
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-time.After(waitBeat):
		}
	}
}

// waiting is one change that is being followed.
type waiting struct {
	topic  string
	shards int
	store  *shard.Store
	began  time.Time
	out    io.Writer
	bar    *progressbar.ProgressBar
	said   time.Time
}

// look reports whether the change is over, and shows how far it has come.
func (w *waiting) look(ctx context.Context) (done bool, err error) {
	status, err := operate.ReadStatus(ctx, w.store, w.topic)
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return false, err
	}
	if err == nil {
		t := status.Topics[0]
		if t.Change != nil {
			w.show(t)
			return false, nil
		}
		if t.Shards == w.shards {
			w.finish()
			return true, nil
		}
	}
	if time.Since(w.began) > waitBegin && w.bar == nil && w.said.IsZero() {
		return false, fmt.Errorf("topic %s: no scanner has begun the change within %s; see `scanner status`", w.topic, waitBegin)
	}
	return false, nil
}

// show draws a bar on a terminal, and prints a line every five seconds elsewhere.
func (w *waiting) show(t operate.TopicStatus) {
	total := t.Change.Moved + t.Change.Misplaced
	if file, ok := w.out.(*os.File); ok && term.IsTerminal(int(file.Fd())) { //nolint:gosec // a file descriptor is small
		if w.bar == nil {
			w.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w.out), progressbar.OptionSetDescription("moving "+w.topic),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("tasks"), progressbar.OptionClearOnFinish())
		}
		w.bar.ChangeMax64(max(total, 1))
		_ = w.bar.Set64(t.Change.Moved) // drawing is all it does
		return
	}
	if time.Since(w.said) >= 5*time.Second {
		w.said = time.Now()
		_, _ = fmt.Fprintf(w.out, "topic %s: %s\n", w.topic, migrating(t, time.Now()))
	}
}

func (w *waiting) finish() {
	if w.bar != nil {
		_ = w.bar.Finish() // drawing is all it does
	}
}
