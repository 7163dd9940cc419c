package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/balance"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicdocs"
	"github.com/duefleet/duefleet/task"
)

const (
	// waitBeat is how often a change of the shard count is looked at.
	waitBeat = 250 * time.Millisecond
	// waitBegin is how long it may take until a scanner begins the change.
	waitBegin = 15 * time.Second
	// waitSay is how often it is said where there is no bar.
	waitSay = 5 * time.Second
	// waitTimeout is for how long a change is followed unless --timeout says otherwise.
	waitTimeout = 10 * time.Minute
)

// awaitShards follows a topic's placement until it is what the document says. It fails
// when the document is changed to ask for another shard count, and after timeout, unless
// that is 0; the change goes on then, as it does when the command is interrupted.
func awaitShards(cmd *cobra.Command, s *settings, c topicdocs.Documents, doc config.Document, timeout time.Duration) error {
	rdb, store, err := s.open()
	if err != nil {
		return err
	}
	defer rdb.Close()
	w := waiting{topic: doc.Name, shards: doc.Topic.Shards, documents: c, store: store, idle: time.Now(), out: cmd.ErrOrStderr()}
	if err := w.follow(cmd.Context(), timeout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s has %d shards, stable\n", w.topic, w.shards)
	return err
}

// waiting is one change that is being followed.
type waiting struct {
	topic     string
	shards    int
	documents config.Source
	store     *shard.Store
	idle      time.Time // when a scanner could begin the change at the earliest
	out       io.Writer
	bar       *progressbar.ProgressBar
	said      time.Time
	begun     bool // a change of this topic was seen
}

// follow returns when the change is over, or has to be waited for no more.
func (w *waiting) follow(ctx context.Context, timeout time.Duration) error {
	defer w.finish()
	var over <-chan time.Time // never, without a timeout
	if timeout > 0 {
		over = time.After(timeout)
	}
	stopped := func(why string) error {
		return fmt.Errorf("topic %s: %s; the change goes on, see `scanner status --topic %s`", w.topic, why, w.topic)
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
		case <-time.After(waitBeat):
		}
	}
}

// look reports whether the change is over, and shows how far it has come. It fails where
// the change is not desired any more.
func (w *waiting) look(ctx context.Context) (done bool, err error) {
	status, err := operate.ReadStatus(ctx, w.store, w.topic)
	if err != nil && !errors.Is(err, task.ErrUnknownTopic) {
		return false, err
	}
	known := err == nil
	if known && status.Topics[0].Change == nil && status.Topics[0].Shards == w.shards {
		return true, nil
	}
	if err := w.superseded(ctx); err != nil {
		return false, err
	}
	if !slices.ContainsFunc(status.Fleet, func(m balance.Member) bool { return m.Alive }) {
		w.idle = time.Now()
		w.say("no scanner runs; the change waits for one")
		return false, nil
	}
	if known && status.Topics[0].Change != nil {
		w.begun = true
		w.show(status.Topics[0])
		return false, nil
	}
	if !w.begun && time.Since(w.idle) > waitBegin {
		return false, fmt.Errorf("topic %s: no scanner has begun the change within %s; see `scanner status`", w.topic, waitBegin)
	}
	return false, nil
}

// superseded is an error that says by what, if the topic's document asks for another
// shard count by now. A Consul that doesn't answer has nobody stop waiting: scanners go
// on with what they know.
func (w *waiting) superseded(ctx context.Context) error {
	doc, there, err := w.documents.Read(ctx, w.topic)
	switch {
	case err == nil && !there:
		return fmt.Errorf("topic %s: the change to %d shards was superseded: the topic's document was removed", w.topic, w.shards)
	case err == nil && doc.Err == nil && doc.Topic.Shards != w.shards:
		return fmt.Errorf("topic %s: the change to %d shards was superseded: the topic's document says %d shards now (index %d)",
			w.topic, w.shards, doc.Topic.Shards, doc.Index)
	default:
		return nil
	}
}

// say prints a line about the topic at once, and then every five seconds.
func (w *waiting) say(what string) {
	if time.Since(w.said) >= waitSay {
		w.said = time.Now()
		_, _ = fmt.Fprintf(w.out, "topic %s: %s\n", w.topic, what)
	}
}

// show draws a bar on a terminal, and prints a line every five seconds elsewhere.
func (w *waiting) show(t operate.TopicStatus) {
	total := t.Change.Moved + t.Change.Misplaced
	if cli.OnTerminal(w.out) {
		if w.bar == nil {
			w.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w.out), progressbar.OptionSetDescription("moving "+w.topic),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("tasks"), progressbar.OptionClearOnFinish())
		}
		w.bar.ChangeMax64(max(total, 1))
		_ = w.bar.Set64(t.Change.Moved) // drawing is all it does
		return
	}
	w.say(migrating(t) + ": " + progress(t, time.Now()))
}

func (w *waiting) finish() {
	if w.bar != nil {
		_ = w.bar.Finish() // drawing is all it does
	}
}
