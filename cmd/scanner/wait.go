package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
)

// waitTimeout is the default of --timeout.
const waitTimeout = 10 * time.Minute

// awaitShards waits until a topic has its document's shard count, and shows the progress.
func (w topicWork) awaitShards(cmd *cobra.Command, doc config.Document, timeout time.Duration) error {
	progress := cli.Progress{Out: cmd.ErrOrStderr(), Name: "moving " + doc.Name}
	waiting := operate.Waiting{
		Store: w.fleet.Store, Topic: doc.Name, Shards: doc.Topic.Shards,
		Superseded: func(ctx context.Context) error { return w.docs.Superseded(ctx, doc) },
		Show: func(t *operate.TopicStatus) {
			if t == nil {
				progress.Say(func() string { return fmt.Sprintf("topic %s: no scanner runs; the change waits for one", doc.Name) })
				return
			}
			progress.Show(t.Change.Moved, t.Change.Moved+t.Change.Misplaced, func() string {
				return fmt.Sprintf("topic %s: migrating from %d: %s", doc.Name, t.Previous, changeText(*t, time.Now()))
			})
		},
	}
	err := waiting.Run(cmd.Context(), timeout)
	progress.Finish()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s has %d shards, stable\n", doc.Name, doc.Topic.Shards)
	return err
}

// verdict reports whether scanners apply the document that a verb wrote.
type verdict struct {
	skip    bool
	pausing bool // a topic that can't be delivered is no failure
	// until is when to stop waiting; zero: after operate.Patience.
	until time.Time
}

func (v *verdict) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&v.skip, "no-wait", false, "return once it is written; don't check whether scanners apply it")
}

// await waits until all live scanners have applied a document, for operate.Patience at
// most, and prints the result. It fails if one of them refuses the document or can't
// deliver the topic with it. Scanners that can't be asked, or don't report in time, are
// no failure: await mentions them on standard error, and they read the document later.
func (v verdict) await(cmd *cobra.Command, fleet operate.Fleet, doc config.Document) error {
	if v.skip {
		return nil
	}
	found, err := fleet.Await(cmd.Context(), doc.Name, doc.Index, v.until)
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("topic %s: written; interrupted before scanners reported whether they apply it", doc.Name)
	case err != nil:
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: written; it isn't known whether scanners apply it: %v\n", doc.Name,
			err)
		return err
	case found.Bad(v.pausing):
		return fmt.Errorf("topic %s: %s", doc.Name, found.Text())
	case !found.Final():
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: %s; see `scanner status --topic %s`\n", doc.Name, found.Text(),
			doc.Name)
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s: %s\n", doc.Name, found.Text())
	return err
}
