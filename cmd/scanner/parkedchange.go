package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
)

// parkedVerb is a verb that changes parked tasks.
type parkedVerb struct {
	how    changeVerb
	change func(p admin.Parked, ctx context.Context, id string) (int, error)

	sel    selection
	parked admin.Parked // made of the flags
}

func parkedReplay(s *settings) *cobra.Command {
	v := &parkedVerb{change: admin.Parked.Replay, how: changeVerb{
		name: "replay", done: "replayed", short: "Makes parked tasks due now and resets their attempts; asks before it " +
			"replays more than one",
		long: `
--limit ends the pass after N tasks. --rate replays at most N tasks a second, so that
consumers aren't flooded. Ctrl-C ends the pass; replayed tasks stay replayed. --dry-run
prints how many tasks it would replay, and replays none.
`,
		confirm: cli.Confirmation{Deed: cli.Replays()},
	}}
	cmd := v.command(s)
	v.how.registerMany(cmd, "replay")
	return cmd
}

func parkedPurge(s *settings) *cobra.Command {
	v := &parkedVerb{change: admin.Parked.Purge, how: changeVerb{
		name: "purge", done: "purged", short: "Removes parked tasks for good; asks before it removes more than one",
	}}
	return v.command(s)
}

func (v *parkedVerb) command(s *settings) *cobra.Command {
	v.sel.format = cli.NewFormatFlag(cli.Text)
	cmd := &cobra.Command{
		Use:   v.how.name + " TOPIC (--id ID | --all | --reason TEXT | --no-reason | --older-than D)",
		Short: v.how.short,
		Long: strings.TrimSpace(v.how.short + `.

With --all, --reason, --no-reason, --parked-before or --older-than it makes one pass over
the topic. A task that is parked when the pass reaches its shard is visited once, even if it is
parked again at once. --parked-before and --older-than leave out tasks whose time of
parking is unknown. It asks on a terminal; elsewhere it needs --yes. Exit code 3: no
such task or topic.
` + v.how.long),
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return v.do(cmd, s) }),
	}
	cmd.Flags().StringVar(&v.sel.topic, "topic", "", "the topic; the same as TOPIC")
	cmd.Flags().BoolVar(&v.sel.all, "all", false, "all parked tasks of the topic that the other flags select")
	v.sel.register(cmd)
	v.how.confirm.Register(cmd)
	registerAs(cmd)
	return cmd
}

func (v *parkedVerb) do(cmd *cobra.Command, s *settings) error {
	if err := v.check(cmd, time.Now()); err != nil {
		return err
	}
	return s.withStore(func(store *shard.Store) error {
		v.how.format = v.sel.format
		v.parked = admin.Parked{Topic: store.Topic(v.sel.topic), Filter: v.sel.filter, Limit: v.how.limit, Rate: v.how.rate}
		e := bulk.Entry{Topic: v.sel.topic, Filter: cmp.Or(strings.TrimSpace(v.sel.filter.String()), "all")}
		if v.sel.id != "" {
			e.Filter = named(v.sel.id)
		}
		return v.how.carryOut(cmd, s, store, v, e, v.sel.id != "")
	})
}

// check validates the command line.
func (v *parkedVerb) check(cmd *cobra.Command, now time.Time) error {
	if err := cmp.Or(v.how.check(cmd, v.sel.topic), v.sel.check(now)); err != nil {
		return err
	}
	switch some := v.sel.all || v.sel.filtered(); {
	case v.sel.id == "" && !some:
		return cli.UsageError("give either --id or --all, or --reason, --no-reason, --parked-before or --older-than")
	case v.sel.id == "":
		return nil
	case some:
		return cli.UsageError("--id stands alone: it names one task")
	case cmd.Flags().Changed("limit") || cmd.Flags().Changed("rate"):
		return cli.UsageError("--id stands alone: it names one task, and --limit and --rate are for many")
	case v.how.dry:
		return cli.UsageError("--id stands alone: `scanner parked ls` shows that task, and --dry-run is for many")
	}
	return nil
}

func (v *parkedVerb) count(ctx context.Context) (counted, error) {
	n, err := v.parked.Count(ctx)
	some := "all that"
	if v.parked.Limit > 0 {
		some = fmt.Sprintf("at most %d of what", v.parked.Limit)
	}
	return counted{tasks: n, fields: map[string]any{"would_" + v.how.name: n},
		meant: fmt.Sprintf("%s is parked in topic %s%s: %s", some, v.sel.topic, v.parked.Filter, cli.Counted(n))}, err
}

func (v *parkedVerb) run(ctx context.Context, bar *cli.Progress) (n bulk.Counts, err error) {
	v.parked.Progress = func(visited, of int64) {
		bar.Show(visited, of, func() string { return fmt.Sprintf("%s: %d of about %d tasks", v.how.name, visited, of) })
	}
	changed, err := v.change(v.parked, ctx, v.sel.id)
	n.Changed = int64(changed)
	var left *admin.LeftError
	if errors.As(err, &left) {
		n.Failed = int64(left.Tasks)
	}
	n.Matched = n.Changed + n.Failed
	return n, err
}

func (v *parkedVerb) print(out io.Writer, n bulk.Counts, err error) error {
	var left *admin.LeftError
	_ = errors.As(err, &left)
	return errors.Join(printChanged(out, v.sel.format.Format, v.how.done, n.Changed, left), err)
}

// printChanged prints how many tasks were changed, and as JSON also what was left.
func printChanged(out io.Writer, format cli.Format, done string, n int64, left *admin.LeftError) error {
	if format != cli.JSON {
		_, err := fmt.Fprintf(out, "%s %d\n", done, n)
		return err
	}
	result := map[string]any{done: n}
	if left != nil && left.Tasks > 0 {
		result["unreadable"], result["unreadable_ids"] = left.Tasks, left.IDs
	}
	if left != nil && left.Shards != nil {
		result["unreadable_shards"] = left.Shards.Shards
	}
	return cli.PrintJSON(out, result, "")
}
