package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

func topicSet(s *settings) *cobra.Command {
	var f setFlags
	cmd := &cobra.Command{
		Use:   "set TOPIC key=value... [--replace] [--unbind-old] [--dry-run | --wait [--timeout D] | --no-wait]",
		Short: "Changes settings of a topic, or creates a new one",
		Long: `Changes settings of a topic, or creates a new one. Dots reach into a section:
declare.queue=q, backoff.max=1m. An empty value ("rate=") restores the default.
The whole document is checked first. It is written only if nobody else changed it in
the meantime. The difference is printed. Only the lines of changed settings are touched;
a JSON document is rewritten as YAML. --dry-run checks everything, prints the difference
and writes nothing.

On a terminal it asks before it creates a new topic. Elsewhere it creates the topic at
once, unless the name is similar to another topic's. It refuses such a name with code 1,
because it is probably mistyped. "scanner topic create" accepts every new name.

declare.dead_letter=orders.dead keeps what consumers reject, if the queue is new. RabbitMQ
refuses it for an existing queue, and refuses to remove it from a queue that was made with
it. The reason says what to do.

After a change of declare.queue the old queue stays bound, so each task arrives in both
queues. --unbind-old unbinds the queues that earlier documents declared, once all live
scanners apply the new document. It needs no key=value, and deletes no queue.

After a change of intake.queue, or of the whole intake, the old queue stays bound too.
RabbitMQ confirms what is published there, and no scanner takes it. --unbind-old unbinds
such queues as well. From then on RabbitMQ drops what is published to an exchange that no
queue is bound to, so move its publishers first.

Then it waits some seconds and reports whether the live scanners apply the document. It
ends with code 1 if one refuses the document, or can't deliver the topic with it. Then the
exchange is missing or differs from the declaration, or a permission is missing. The
document stays written. If no scanner runs, it says that nobody has applied the
document. --no-wait skips this report.

--wait follows a change of the shard count to its end, and says when no scanner runs. It
ends with code 1 after --timeout, or if the document asks for another shard count in the
meantime. It also does so if scanners run and none begins the change within 15 s. The timeout and
Ctrl-C end only the waiting: the change goes on.`,
		Args: oneTopic(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !f.old {
				return cli.UsageError("name at least one key=value")
			}
			return nil
		}),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("timeout") && (!f.wait || f.timeout < 0) {
				return cli.UsageError("--timeout is how long to --wait, and not negative")
			}
			return withTopics(s, func(w topicWork) error { return f.run(cmd, w, args) })
		}),
	}
	cmd.ValidArgsFunction = s.completeAssignments
	f.register(cmd)
	return cmd
}

// setFlags are the flags of topic set.
type setFlags struct {
	wait, replace, dry, old bool
	timeout                 time.Duration
	told                    verdict
}

func (f *setFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "follow a change of the shard count to its end")
	cli.DurationVar(cmd.Flags(), &f.timeout, "timeout", waitTimeout, "longest time to --wait; 0: no limit")
	cmd.Flags().BoolVar(&f.replace, "replace", false,
		"begin from an empty document: all other settings get their defaults, shards too")
	cmd.Flags().BoolVar(&f.old, "unbind-old", false, "afterwards unbind the queues that earlier documents declared")
	registerDryRun(cmd, &f.dry)
	registerAuthor(cmd)
	f.told.register(cmd)
	cmd.MarkFlagsMutuallyExclusive("unbind-old", "no-wait")
	cmd.MarkFlagsMutuallyExclusive("unbind-old", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("wait", "no-wait")
	cmd.MarkFlagsMutuallyExclusive("wait", "dry-run")
}

// run writes the topic's document, and then waits and unbinds as the flags ask.
func (f *setFlags) run(cmd *cobra.Command, w topicWork, args []string) error {
	if f.old && len(args) == 1 {
		return w.unbindOld(cmd, args[0])
	}
	doc, err := w.set(cmd, args[0], topicconfig.Edit{Assignments: args[1:], Replace: f.replace, Likely: true}, f.dry)
	if f.dry {
		return err
	}
	if err == nil && f.wait {
		err = w.awaitShards(cmd, doc, f.timeout)
	}
	if err == nil {
		err = f.told.await(cmd, w.fleet, doc)
	}
	if err == nil && f.old {
		err = w.unbindOld(cmd, args[0])
	}
	return err
}

func topicCreate(s *settings) *cobra.Command {
	var dry bool
	var told verdict
	cmd := &cobra.Command{
		Use:   "create TOPIC [key=value...] [--dry-run | --no-wait]",
		Short: "Creates a new topic",
		Long: `Creates a new topic with the given settings and the defaults of all others, as
"scanner topic set" does, but without asking. If the topic has a document already, the
document stays as it is and the exit code is 1.`,
		Example: `  scanner topic create orders shards=8 declare.queue=orders.due declare.dead_letter=orders.dead`,
		Args:    oneTopic(func(*cobra.Command, []string) error { return nil }),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			return withTopics(s, func(w topicWork) error {
				doc, err := w.set(cmd, args[0], topicconfig.Edit{Assignments: args[1:], Create: true}, dry)
				if err != nil || dry {
					return err
				}
				return told.await(cmd, w.fleet, doc)
			})
		}),
	}
	cmd.ValidArgsFunction = s.completeAssignments
	registerAuthor(cmd)
	registerDryRun(cmd, &dry)
	told.register(cmd)
	cmd.MarkFlagsMutuallyExclusive("dry-run", "no-wait")
	return cmd
}

// set changes a document, prints the difference, and returns the resulting document. If
// e.Likely is true and somebody can be asked, it asks before it creates a topic.
func (w topicWork) set(cmd *cobra.Command, topic string, e topicconfig.Edit, dry bool) (config.Document, error) {
	ask := e.Likely && cli.OnTerminal(cmd.InOrStdin()) && cli.OnTerminal(cmd.ErrOrStderr())
	e.Likely = e.Likely && !ask
	plan, err := w.docs.Plan(cmd.Context(), topic, e)
	if err != nil {
		return plan.Found, err
	}
	if plan.Same {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s: nothing to change\n", topic)
		return plan.Found, err
	}
	printPlan(cmd.OutOrStdout(), plan)
	if err := w.refuseOlder(cmd, plan); err != nil {
		return plan.Found, err
	}
	if plan.Fixed {
		fmt.Fprintf(cmd.OutOrStdout(), "topic %s: its mistakes are fixed\n", topic)
	}
	if ask && !dry && plan.Found.Index == 0 {
		if err := w.confirmNew(cmd, topic); err != nil {
			return plan.Found, err
		}
	}
	return w.write(cmd, plan, dry)
}

// write writes a plan and returns the result; if dry, it only says that it doesn't.
func (w topicWork) write(cmd *cobra.Command, plan topicconfig.Plan, dry bool) (config.Document, error) {
	if dry {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s: a dry run, nothing was written\n", plan.After.Name)
		return plan.Found, err
	}
	done, err := w.docs.Commit(cmd.Context(), plan, authorOf(cmd))
	if err == nil {
		err = printWritten(cmd, done)
	}
	return done.Document, err
}

// printWritten prints that a document was written.
func printWritten(cmd *cobra.Command, done topicconfig.Committed) error {
	if err := printUnkept(cmd, done.Document.Name, done); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s written\n", done.Document.Name)
	return err
}

// printUnkept prints on standard error if a change isn't in the topic's history.
func printUnkept(cmd *cobra.Command, topic string, done topicconfig.Committed) (err error) {
	if done.Unkept != nil {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: %s\n", topic, unkeptText(done))
	}
	return err
}

// unkeptText says why a change isn't in the topic's history.
func unkeptText(done topicconfig.Committed) string {
	return fmt.Sprintf("the change is not in its history: %v", done.Unkept)
}

// printPlan prints what a plan does: a line for each setting that changes, and for each
// binding and intake that it leaves.
func printPlan(out io.Writer, p topicconfig.Plan) {
	for _, line := range p.Lines() {
		fmt.Fprintln(out, line)
	}
}

// refuseOlder fails if live scanners would refuse a plan's document because they don't
// know one of its settings. It prints a warning if they can't be asked.
func (w topicWork) refuseOlder(cmd *cobra.Command, plans ...topicconfig.Plan) error {
	fleet, warnings := &askedOnce{fleet: w.fleet, answers: map[int]answer{}}, remarks{}
	for _, p := range plans {
		warning, err := p.RefuseOlder(cmd.Context(), fleet)
		if err != nil {
			return err
		}
		if warning != "" {
			warnings.add(p.After.Name, warning, "")
		}
	}
	return printLines(cmd.ErrOrStderr(), warnings.lines("see `scanner status`"))
}

// askedOnce is a fleet that asks once which scanners read only an older format.
type askedOnce struct {
	fleet   admin.Fleet
	answers map[int]answer // by format
}

// answer is an answer of Older.
type answer struct {
	now   time.Time
	names []string
	err   error
}

// Older implements topicconfig.Fleet.
func (f *askedOnce) Older(ctx context.Context, format int) (time.Time, []string, error) {
	a, there := f.answers[format]
	if !there {
		a.now, a.names, a.err = f.fleet.Older(ctx, format)
		f.answers[format] = a
	}
	return a.now, a.names, a.err
}

// InForce implements topicconfig.Fleet.
func (f *askedOnce) InForce(ctx context.Context, topic string) ([]byte, error) {
	return f.fleet.InForce(ctx, topic)
}

// Applied implements topicconfig.Fleet.
func (f *askedOnce) Applied(ctx context.Context, topic string, index uint64) (string, error) {
	return f.fleet.Applied(ctx, topic, index)
}

// printWarning prints a warning about a topic on standard error, nothing if it is "".
func printWarning(cmd *cobra.Command, topic, warning string) (err error) {
	if warning != "" {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: %s\n", topic, warning)
	}
	return err
}

// confirmNew asks whether to create a new topic.
func (w topicWork) confirmNew(cmd *cobra.Command, topic string) error {
	like, err := w.docs.LikelyMeant(cmd.Context(), topic)
	if err != nil {
		return err
	}
	what := "create the new topic " + topic
	if like != "" {
		what += "; did you mean " + like + ", which exists? create it"
	}
	return cli.Confirmation{Deed: cli.Writes()}.Ask(cmd, what)
}

func registerDryRun(cmd *cobra.Command, dry *bool) {
	cmd.Flags().BoolVar(dry, "dry-run", false, "check it and print the difference; write nothing")
}

// The flags of every verb that writes a topic's document, for its history.
const (
	asFlag     = "as"
	reasonFlag = "reason"
)

// registerAuthor adds --as and --reason, and checks their length before the verb runs.
func registerAuthor(cmd *cobra.Command) {
	cmd.Flags().String(asFlag, "", "who makes the change, for the topic's history (default the name of Consul's token, "+
		"else the user behind sudo or SSH, else user@host)")
	cmd.Flags().String(reasonFlag, "", "why the change is made, for the topic's history")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for name, most := range map[string]int{asFlag: topicconfig.MaxAuthor, reasonFlag: topicconfig.MaxReason} {
			text := flagOf(cmd, name)
			if len(text) > most || !utf8.ValidString(text) || cmd.Flags().Changed(name) && strings.TrimSpace(text) == "" {
				return cli.UsageError(fmt.Sprintf("--%s: must be a text of 1 to %d bytes", name, most))
			}
		}
		return nil
	}
}

// flagOf returns the text of a flag, "" if the verb has no such flag.
func flagOf(cmd *cobra.Command, name string) string {
	text, _ := cmd.Flags().GetString(name)
	return text
}

// authorOf returns the author of a verb's change, with the verb and the reason.
func authorOf(cmd *cobra.Command) topicconfig.Author {
	return topicconfig.Author{Name: flagOf(cmd, asFlag), Verb: cmd.Name(), Reason: flagOf(cmd, reasonFlag)}
}
