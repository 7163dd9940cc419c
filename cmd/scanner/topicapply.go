package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

func topicApply(s *settings) *cobra.Command {
	apply := applyFlags{confirm: cli.Confirmation{Deed: cli.Writes()}}
	cmd := &cobra.Command{
		Use:   "apply -f topics.yaml [--dry-run | --yes] [--all] [--no-wait]",
		Short: "Applies a file of topic settings; validates everything before it writes anything",
		Long: `Creates and changes topics in Consul to match a file: a configuration file with topics,
or a map of topics by name. Before it writes anything it validates the whole file and
prints the difference of all topics. Then it asks on a terminal; elsewhere it needs
--yes. If more than 20 topics change, it groups equal differences; --all prints each.

It leaves alone topics that aren't in the file, and documents whose settings match the
file. A changed document is rewritten as a whole, without its comments. Each document is
written only if nobody else changed it in the meantime. Otherwise apply begins no other
one, names topics that are written and topics that aren't, and ends with code 1.

It reports whether the live scanners apply each document, as "scanner topic set" does;
--no-wait skips this report.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return apply.run(cmd, s)
		}),
	}
	cmd.Flags().StringVarP(&apply.path, "file", "f", "", "the file of topics")
	registerAuthor(cmd)
	registerDryRun(cmd, &apply.dry)
	cmd.Flags().BoolVar(&apply.all, "all", false, "print every difference and every mistake, also of many topics")
	apply.confirm.Register(cmd)
	apply.told.register(cmd)
	return cmd
}

// applyFlags are the flags of topic apply.
type applyFlags struct {
	path    string
	dry     bool
	all     bool // no difference and no mistake is only counted
	confirm cli.Confirmation
	told    verdict
}

// run validates the file, prints the difference, asks, and writes the documents.
func (f *applyFlags) run(cmd *cobra.Command, s *settings) error {
	if f.path == "" {
		return cli.UsageError("name a file of topics with -f")
	}
	docs, err := config.ReadTopics(f.path)
	if err != nil {
		return printErrors(cmd, err, f.all)
	}
	if len(docs) == 0 {
		return fmt.Errorf("no topics in %s", f.path)
	}
	out := cmd.OutOrStdout()
	return withTopics(s, func(w topicWork) error {
		plans, err := w.docs.PlanAll(cmd.Context(), docs)
		if err != nil {
			return err
		}
		if err := f.printPlans(out, plans); err != nil {
			return err
		}
		if same := len(docs) - len(plans); same > 0 {
			fmt.Fprintf(out, "as in the file already: %d of %d topics\n", same, len(docs))
		}
		if err := w.refuseOlder(cmd, plans...); err != nil {
			return err
		}
		text := "nothing to change"
		if f.dry {
			text = "a dry run, nothing was written"
		}
		if f.dry || len(plans) == 0 {
			_, err := fmt.Fprintln(out, text)
			return err
		}
		if err := f.confirm.Ask(cmd, "write "+topicNames(plans)); err != nil {
			return err
		}
		return w.writeAll(cmd, plans, f.told)
	})
}

// printPlans prints what plans do. It groups the differences of many.
func (f *applyFlags) printPlans(out io.Writer, plans []topicconfig.Plan) error {
	if f.all || len(plans) <= fewTopics {
		for _, p := range plans {
			printPlan(out, p)
		}
		return nil
	}
	var all remarks
	for _, p := range plans {
		all.addPlan(p)
	}
	return printLines(out, all.lines("--all shows them"))
}

// topicNames names three topics of plans, and counts the others.
func topicNames(plans []topicconfig.Plan) string {
	names := make([]string, len(plans))
	for i, p := range plans {
		names[i] = p.After.Name
	}
	if len(names) == 1 {
		return "topic " + names[0]
	}
	return "topics " + admin.Names(names)
}

// writeAll writes the plans, and reports whether scanners apply each topic. It names the
// written topics one by one, and of more than 20 the first ones. If it takes long, it prints
// how many are written.
func (w topicWork) writeAll(cmd *cobra.Command, plans []topicconfig.Plan, told verdict) error {
	n := 0
	progress := cli.Progress{Out: cmd.ErrOrStderr(), Said: time.Now()} // a short change prints no line
	written, err := w.docs.CommitAll(cmd.Context(), plans, authorOf(cmd), func() {
		n++
		progress.Say(func() string { return fmt.Sprintf("written so far: %d of %d topics", n, len(plans)) })
	})
	many := len(plans) > fewTopics
	var unkept remarks
	var documents []config.Document
	for _, done := range written {
		documents = append(documents, done.Document)
		switch {
		case !many:
			err = errors.Join(printWritten(cmd, done), err)
		case done.Unkept != nil:
			unkept.add(done.Document.Name, unkeptText(done), "")
		}
	}
	err = errors.Join(printLines(cmd.ErrOrStderr(), unkept.lines("see `scanner topic history`")), err)
	if err != nil {
		return err
	}
	if many {
		fmt.Fprintf(cmd.OutOrStdout(), "written: %d %s\n", len(plans), topicNames(plans))
	}
	return told.await(cmd, w.fleet, documents...)
}

func topicUndo(s *settings) *cobra.Command {
	var dry bool
	var to uint64
	var told verdict
	cmd := &cobra.Command{
		Use:   "undo TOPIC [--to N] [--dry-run | --no-wait]",
		Short: "Restores the document from before the newest change of a topic",
		Long: `Restores the document from before the newest change of a topic. It also restores the
document of a removed topic, but not its purged tasks. Documents with mistakes are
skipped. --to N restores the document that change N left; "scanner topic history" shows
the numbers. The difference is printed. The document is written only if nobody else
changed it in the meantime. An undo is itself a change: a second one reverts the first.

It reports whether the live scanners apply the document, as "scanner topic set" does;
--no-wait skips this report. If a topic had no document before, undo fails: only
"scanner topic rm" removes the topic.`,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to") && to == 0 {
				return cli.UsageError("--to 0: changes count from 1")
			}
			return withTopics(s, func(w topicWork) error {
				doc, err := w.undo(cmd, args[0], to, dry)
				if err != nil || dry {
					return err
				}
				return told.await(cmd, w.fleet, doc)
			})
		}),
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "restore the document of this change, a number of the history (default the one "+
		"before the newest)")
	registerAuthor(cmd)
	registerDryRun(cmd, &dry)
	told.register(cmd)
	return cmd
}

// undo writes the document that change to left, or if to is 0 the one from before the
// newest change, and returns it.
func (w topicWork) undo(cmd *cobra.Command, topic string, to uint64, dry bool) (config.Document, error) {
	plan, removed, err := w.docs.PlanUndo(cmd.Context(), topic, to)
	if err != nil {
		return plan.Found, err
	}
	if plan.Same {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s: nothing to change, that document is in force\n", topic)
		return plan.Found, err
	}
	printPlan(cmd.OutOrStdout(), plan)
	doc, err := w.write(cmd, plan, dry)
	if err == nil && removed && !dry {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s is back; tasks that were purged with it are not\n", topic)
	}
	return doc, err
}
