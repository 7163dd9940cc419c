package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
)

// waitTimeout is the default of --timeout.
const waitTimeout = 10 * time.Minute

// awaitShards waits until a topic has its document's shard count, and shows the progress.
func (w topicWork) awaitShards(cmd *cobra.Command, doc config.Document, timeout time.Duration) error {
	progress := cli.Progress{Out: cmd.ErrOrStderr(), Name: "moving " + doc.Name}
	waiting := admin.Waiting{
		Store: w.fleet.Store, Topic: doc.Name, Shards: doc.Topic.Shards,
		Superseded: func(ctx context.Context) error { return w.docs.Superseded(ctx, doc) },
		Show: func(t *admin.TopicStatus) {
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
}

func (v *verdict) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&v.skip, "no-wait", false, "return once it is written; don't check whether scanners apply it")
}

// await waits until all live scanners have applied documents, for admin.Patience at most,
// and prints the results. It fails if one of them refuses a document or can't deliver the
// topic with it. Scanners that can't be asked, or don't report in time, are no failure:
// await mentions them on standard error, and they read the document later.
func (v verdict) await(cmd *cobra.Command, fleet admin.Fleet, docs ...config.Document) error {
	if v.skip {
		return nil
	}
	written := make([]admin.Written, len(docs))
	for i, doc := range docs {
		written[i] = admin.Written{Topic: doc.Name, Index: doc.Index}
	}
	found, err := fleet.Await(cmd.Context(), written...)
	var good, open, bad remarks
	for i, f := range found {
		topic := docs[i].Name
		switch {
		case cmd.Context().Err() != nil:
			bad.add(topic, "written; interrupted before scanners reported whether they apply it", "")
		case err != nil:
			open.add(topic, fmt.Sprintf("written; it isn't known whether scanners apply it: %v", err), "")
		case f.Bad(v.pausing):
			bad.add(topic, f.Text(), "")
		case !f.Final():
			open.add(topic, f.Text(), fmt.Sprintf("; see `scanner status --topic %s`", topic))
		default:
			good.add(topic, f.Text(), "")
		}
	}
	const hint = "see `scanner status --all`"
	return errors.Join(printLines(cmd.OutOrStdout(), good.lines(hint)), printLines(cmd.ErrOrStderr(), open.lines(hint)),
		asError(bad.lines(hint)))
}
