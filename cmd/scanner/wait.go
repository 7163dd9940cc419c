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
	"github.com/duefleet/duefleet/internal/livepage"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicdocs"
	"github.com/duefleet/duefleet/task"
)

const (
	// waitBeat is the time between two looks at a change of the shard count.
	waitBeat = 250 * time.Millisecond
	// waitBegin is how long a live scanner may take to begin the change.
	waitBegin = 15 * time.Second
	// waitSay is the time between two lines of progress, without a bar.
	waitSay = 5 * time.Second
	// waitTimeout is the default of --timeout.
	waitTimeout = 10 * time.Minute
)

// awaitShards follows a topic's placement until it has the document's shard count. It
// fails if the document is changed to ask for another one. It also fails after timeout (0
// means never) and when it is interrupted; in these cases the change itself goes on.
func awaitShards(cmd *cobra.Command, s *settings, c topicdocs.Documents, doc config.Document,
	timeout time.Duration) error {
	rdb, store, err := s.open()
	if err != nil {
		return err
	}
	defer rdb.Close()
	w := waiting{topic: doc.Name, shards: doc.Topic.Shards, documents: c, store: store, idle: time.Now(),
		out: cmd.ErrOrStderr()}
	if err := w.follow(cmd.Context(), timeout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s has %d shards, stable\n", w.topic, w.shards)
	return err
}

// waiting follows one change of the shard count.
type waiting struct {
	topic     string
	shards    int
	documents config.Source
	store     *shard.Store
	idle      time.Time // the earliest time at which a scanner could begin the change
	out       io.Writer
	bar       *progressbar.ProgressBar
	said      time.Time
	begun     bool // a change of this topic was seen
}

// follow waits until the change is over, or until waiting for it makes no sense.
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

// look shows the progress of the change and reports whether it is over. It fails if the
// change is superseded, or if live scanners don't begin it within waitBegin.
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
		return false, fmt.Errorf("topic %s: no scanner has begun the change within %s; see `scanner status`", w.topic,
			waitBegin)
	}
	return false, nil
}

// superseded returns an error if the topic's document was removed or asks for another
// shard count now. It returns nil if Consul doesn't answer: scanners then go on with the
// document that they know.
func (w *waiting) superseded(ctx context.Context) error {
	doc, there, err := w.documents.Read(ctx, w.topic)
	switch {
	case err == nil && !there:
		return fmt.Errorf("topic %s: the change to %d shards was superseded: the topic's document was removed", w.topic,
			w.shards)
	case err == nil && doc.Err == nil && doc.Topic.Shards != w.shards:
		return fmt.Errorf("topic %s: the change to %d shards was superseded: the topic's document says %d shards now "+
			"(index %d)",
			w.topic, w.shards, doc.Topic.Shards, doc.Index)
	default:
		return nil
	}
}

// say prints a line about the topic, at most one every five seconds.
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
			w.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w.out),
				progressbar.OptionSetDescription("moving "+w.topic),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("tasks"),
				progressbar.OptionClearOnFinish())
		}
		w.bar.ChangeMax64(max(total, 1))
		_ = w.bar.Set64(t.Change.Moved) // it only draws
		return
	}
	w.say(fmt.Sprintf("migrating from %d: %s", t.Previous, livepage.Progress(t, time.Now())))
}

func (w *waiting) finish() {
	if w.bar != nil {
		_ = w.bar.Finish() // it only draws
	}
}
