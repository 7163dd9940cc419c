package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/livepage"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

// waitTimeout is the default of --timeout.
const waitTimeout = 10 * time.Minute

// awaitShards waits until a topic has its document's shard count, and shows the progress.
func awaitShards(cmd *cobra.Command, s *settings, c topicdocs.Documents, doc config.Document,
	timeout time.Duration) error {
	rdb, store, err := s.open()
	if err != nil {
		return err
	}
	defer rdb.Close()
	progress := cli.Progress{Out: cmd.ErrOrStderr(), Name: "moving " + doc.Name}
	w := operate.Waiting{
		Store: store, Topic: doc.Name, Shards: doc.Topic.Shards,
		Superseded: func(ctx context.Context) error { return c.Superseded(ctx, doc) },
		Show: func(t *operate.TopicStatus) {
			if t == nil {
				progress.Say(func() string { return fmt.Sprintf("topic %s: no scanner runs; the change waits for one", doc.Name) })
				return
			}
			progress.Show(t.Change.Moved, t.Change.Moved+t.Change.Misplaced, func() string {
				return fmt.Sprintf("topic %s: migrating from %d: %s", doc.Name, t.Previous, livepage.Progress(*t, time.Now()))
			})
		},
	}
	err = w.Run(cmd.Context(), timeout)
	progress.Finish()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s has %d shards, stable\n", doc.Name, doc.Topic.Shards)
	return err
}
