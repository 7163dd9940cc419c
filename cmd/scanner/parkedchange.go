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
	name, done, short string
	long              string // help for this verb only
	confirm           cli.Confirmation
	change            func(p admin.Parked, ctx context.Context, id string) (int, error)

	sel         selection
	limit, rate int
	dry         bool
}

func parkedReplay(s *settings) *cobra.Command {
	v := &parkedVerb{
		name: "replay", done: "replayed", short: "Makes parked tasks due now and resets their attempts; asks before it " +
			"replays more than one",
		long: `
--limit ends the pass after N tasks. --rate replays at most N tasks a second, so that
consumers aren't flooded. Ctrl-C ends the pass; replayed tasks stay replayed. --dry-run
prints how many tasks it would replay, and replays none.
`,
		confirm: cli.Confirmation{Deed: cli.Replays()}, change: admin.Parked.Replay,
	}
	cmd := v.command(s)
	f := cmd.Flags()
	f.IntVar(&v.limit, "limit", 0, "at most this many tasks (default all)")
	f.IntVar(&v.rate, "rate", 0, "at most this many tasks a second (default no limit)")
	f.BoolVar(&v.dry, "dry-run", false, "print how many tasks it would replay; replay none")
	return cmd
}

func parkedPurge(s *settings) *cobra.Command {
	v := &parkedVerb{
		name: "purge", done: "purged", short: "Removes parked tasks for good; asks before it removes more than one",
		change: admin.Parked.Purge,
	}
	return v.command(s)
}

func (v *parkedVerb) command(s *settings) *cobra.Command {
	v.sel.format = cli.NewFormatFlag(cli.Text)
	cmd := &cobra.Command{
		Use:   v.name + " TOPIC (--id ID | --all | --reason TEXT | --no-reason | --older-than D)",
		Short: v.short,
		Long: strings.TrimSpace(v.short + `.

With --all, --reason, --no-reason, --parked-before or --older-than it makes one pass over
the topic. A task that is parked when the pass reaches its shard is visited once, even if it is
parked again at once. --parked-before and --older-than leave out tasks whose time of
parking is unknown. It asks on a terminal; elsewhere it needs --yes. Exit code 3: no
such task or topic.
` + v.long),
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return v.run(cmd, s) }),
	}
	cmd.Flags().StringVar(&v.sel.topic, "topic", "", "the topic; the same as TOPIC")
	cmd.Flags().BoolVar(&v.sel.all, "all", false, "all parked tasks of the topic that the other flags select")
	v.sel.register(cmd)
	v.confirm.Register(cmd)
	registerAs(cmd)
	return cmd
}

func (v *parkedVerb) run(cmd *cobra.Command, s *settings) error {
	if err := v.check(cmd, time.Now()); err != nil {
		return err
	}
	return s.withStore(func(store *shard.Store) error { return v.work(cmd, s, store) })
}

// work carries out the verb, after asking if it has to.
func (v *parkedVerb) work(cmd *cobra.Command, s *settings, store *shard.Store) error {
	bar := cli.Progress{Out: cmd.ErrOrStderr(), Name: v.name}
	parked := admin.Parked{
		Topic: store.Topic(v.sel.topic), Filter: v.sel.filter, Limit: v.limit, Rate: v.rate,
		Progress: func(visited, of int64) {
			bar.Show(visited, of, func() string { return fmt.Sprintf("%s: %d of about %d tasks", v.name, visited, of) })
		},
	}
	if v.dry {
		return v.tell(cmd, parked)
	}
	if err := v.ask(cmd, parked); err != nil {
		return err
	}
	bar.Said = time.Now() // a short pass prints no line
	n, err := v.audited(cmd, s, parked)
	bar.Finish()
	if cmd.Context().Err() != nil {
		err = errors.New("interrupted; what was " + v.done + " stays so")
	}
	var left *admin.LeftError
	if partly := errors.As(err, &left); err != nil && !partly && n == 0 {
		return err
	}
	return errors.Join(printChanged(cmd.OutOrStdout(), v.sel.format.Format, v.done, n, left), err)
}

// audited changes the tasks, with an audit entry.
func (v *parkedVerb) audited(cmd *cobra.Command, s *settings, p admin.Parked) (changed int, err error) {
	which := cmp.Or(strings.TrimSpace(p.Filter.String()), "all")
	if v.sel.id != "" {
		which = named(v.sel.id)
	}
	e := bulk.Entry{Topic: v.sel.topic, Filter: which}
	_, err = s.audited(cmd, p.Topic.Store(), e, func() (n bulk.Counts, err error) {
		changed, err = v.change(p, cmd.Context(), v.sel.id)
		n.Changed = int64(changed)
		var left *admin.LeftError
		if errors.As(err, &left) {
			n.Failed = int64(left.Tasks)
		}
		n.Matched = n.Changed + n.Failed
		return n, err
	})
	return changed, err
}

// check validates the command line.
func (v *parkedVerb) check(cmd *cobra.Command, now time.Time) error {
	if err := v.sel.checkChange(now); err != nil {
		return err
	}
	for name, value := range map[string]int{"limit": v.limit, "rate": v.rate} {
		switch given := cmd.Flags().Lookup(name); {
		case given == nil || !given.Changed:
		case value < 1:
			return cli.UsageError(fmt.Sprintf("--%s %d: must be at least 1", name, value))
		case v.sel.id != "":
			return cli.UsageError("--id stands alone: it names one task, and --" + name + " is for many")
		}
	}
	if v.dry && v.sel.id != "" {
		return cli.UsageError("--id stands alone: `scanner parked ls` shows that task, and --dry-run is for many")
	}
	return nil
}

// ask asks for confirmation, unless --id names one task or --yes is given.
func (v *parkedVerb) ask(cmd *cobra.Command, p admin.Parked) error {
	if v.sel.id != "" || v.confirm.Yes {
		return nil
	}
	n, err := p.Count(cmd.Context())
	if err != nil {
		return err
	}
	return v.confirm.Ask(cmd, fmt.Sprintf("%s %s", v.confirm.Does(), v.meant(p, n)))
}

// meant describes the n selected tasks.
func (v *parkedVerb) meant(p admin.Parked, n int64) string {
	some := "all that"
	if p.Limit > 0 {
		some = fmt.Sprintf("at most %d of what", p.Limit)
	}
	text := fmt.Sprintf("%s is parked in topic %s%s: %s", some, p.Topic.Name(), p.Filter, cli.Counted(n))
	if p.Rate > 0 && n > 0 {
		took := time.Duration(float64(n) / float64(p.Rate) * float64(time.Second))
		text += fmt.Sprintf(", in about %s", took.Round(time.Second))
	}
	return text
}

// tell prints how many tasks the verb would change.
func (v *parkedVerb) tell(cmd *cobra.Command, p admin.Parked) error {
	n, err := p.Count(cmd.Context())
	if err != nil {
		return err
	}
	if v.sel.format.Format == cli.JSON {
		return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"would_" + v.name: n}, "")
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "would %s %s; a dry run, nothing was %s\n", v.name, v.meant(p, n), v.done)
	return err
}

// checkChange is check for a verb that changes tasks: it also requires a topic and a
// choice of tasks.
func (sel *selection) checkChange(now time.Time) error {
	if sel.topic == "" {
		return cli.UsageError("name a topic")
	}
	if err := sel.check(now); err != nil {
		return err
	}
	switch some := sel.all || sel.filtered(); {
	case sel.id != "" && some:
		return cli.UsageError("--id stands alone: it names one task")
	case sel.id == "" && !some:
		return cli.UsageError("give either --id or --all, or --reason, --no-reason, --parked-before or --older-than")
	}
	return nil
}

// printChanged prints how many tasks were changed, and as JSON also what was left.
func printChanged(out io.Writer, format cli.Format, done string, n int, left *admin.LeftError) error {
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
