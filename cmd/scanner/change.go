package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// changeVerb has what all verbs share that change stored tasks.
type changeVerb struct {
	name, done  string // as in "replay" and "replayed"
	short, long string // help; long is for this verb only
	confirm     cli.Confirmation

	limit, rate int
	dry         bool
	format      cli.FormatFlag
}

// change is the change that the flags of a verb describe.
type change interface {
	// count returns the tasks that run would change.
	count(ctx context.Context) (counted, error)
	run(ctx context.Context, bar *cli.Progress) (bulk.Counts, error)
	// print prints the result of run, and returns its error with a hint.
	print(out io.Writer, n bulk.Counts, err error) error
}

// counted says which tasks a verb would change.
type counted struct {
	tasks   int64
	meant   string         // as in "all that is in topic orders: 3 tasks"
	skipped string         // of a dry run, after that: "" or "; 2 skipped"
	fields  map[string]any // of a dry run as JSON
}

// registerMany adds the flags of a verb that changes many tasks. does is a word for its
// work, as in "change".
func (v *changeVerb) registerMany(cmd *cobra.Command, does string) {
	f := cmd.Flags()
	f.IntVar(&v.limit, "limit", 0, "at most this many tasks (default all)")
	f.IntVar(&v.rate, "rate", 0, "at most this many tasks a second (default no limit)")
	f.BoolVar(&v.dry, "dry-run", false, fmt.Sprintf("print how many tasks it would %s; %[1]s none", does))
}

// check validates these flags and the topic.
func (v *changeVerb) check(cmd *cobra.Command, topic string) error {
	if topic == "" {
		return cli.UsageError("name a topic")
	}
	for name, value := range map[string]int{"limit": v.limit, "rate": v.rate} {
		if cmd.Flags().Changed(name) && value < 1 {
			return cli.UsageError(fmt.Sprintf("--%s %d: must be at least 1", name, value))
		}
	}
	return task.CheckTopic(topic)
}

// carryOut carries out a change after a question, or prints what it would do in a dry run.
// It doesn't ask if the user named the tasks. e is the audit entry.
func (v *changeVerb) carryOut(cmd *cobra.Command, s *settings, store *shard.Store, c change, e bulk.Entry,
	named bool) error {
	if v.dry || !named && !v.confirm.Yes {
		n, err := c.count(cmd.Context())
		if err != nil {
			return err
		}
		if v.dry {
			return v.tell(cmd.OutOrStdout(), n)
		}
		if err := v.confirm.Ask(cmd, v.would(n)); err != nil {
			return err
		}
	}
	bar := &cli.Progress{Out: cmd.ErrOrStderr(), Name: v.name, Said: time.Now()} // a short change prints no line
	n, err := s.audited(cmd, store, e, func() (bulk.Counts, error) { return c.run(cmd.Context(), bar) })
	bar.Finish()
	if cmd.Context().Err() != nil {
		err = errors.New("interrupted; what was " + v.done + " stays so")
	}
	var left *admin.LeftError // it has a result to print, although nothing was changed
	if err != nil && n == (bulk.Counts{}) && !errors.As(err, &left) {
		return err
	}
	return c.print(cmd.OutOrStdout(), n, err)
}

// would says what the verb would do, and at a rate how long that takes.
func (v *changeVerb) would(n counted) string {
	text := v.confirm.Does() + " " + n.meant
	if v.rate > 0 && n.tasks > 0 {
		took := time.Duration(float64(n.tasks) / float64(v.rate) * float64(time.Second))
		text += fmt.Sprintf(", in about %s", took.Round(time.Second))
	}
	return text
}

// tell prints the result of a dry run.
func (v *changeVerb) tell(out io.Writer, n counted) error {
	if v.format.Format == cli.JSON {
		return cli.PrintJSON(out, n.fields, "")
	}
	_, err := fmt.Fprintf(out, "would %s%s; a dry run, nothing was %s\n", v.would(n), n.skipped, v.done)
	return err
}
