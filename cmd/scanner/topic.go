package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/topicdocs"
	"github.com/duefleet/duefleet/task"
)

func topicCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "Lists, shows and changes the topics' documents in Consul",
		Args:  cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError("name a command: ls, get, set, create, apply, pause, resume, rm, history or undo")
		},
	}
	cmd.AddCommand(topicList(s), topicGet(s), topicSet(s), topicCreate(s), topicApply(s),
		topicPause(s), topicResume(s),
		topicRemove(s), topicHistory(s), topicUndo(s))
	return cmd
}

// withConsul returns a function that runs a verb's work on the documents in Consul. It
// fails with a fileTopicsError if Consul isn't configured.
func withConsul(s *settings, work func(ctx context.Context, c topicdocs.Documents) error) func(*cobra.Command) error {
	return func(cmd *cobra.Command) error {
		cfg, err := s.connections()
		if err != nil {
			return err
		}
		if cfg.Consul.Addr == "" {
			return fileTopicsError(s.path)
		}
		client, err := topicdocs.Open(cfg.Consul, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return work(cmd.Context(), client)
	}
}

// oneTopic requires a topic's name as the first argument; more checks the others.
func oneTopic(more cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cli.UsageError("name a topic")
		}
		if err := task.CheckTopic(args[0]); err != nil {
			return cli.UsageError(err.Error())
		}
		return more(cmd, args[1:])
	}
}

func topicList(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Table)
	cmd := &cobra.Command{
		Use: "ls", Short: "Lists the topics that have a document", Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return withConsul(s, func(ctx context.Context, c topicdocs.Documents) error {
				docs, err := c.List(ctx)
				if err != nil {
					return err
				}
				if format.Format == cli.JSON {
					return cli.PrintJSON(cmd.OutOrStdout(), describeTopics(docs), "  ")
				}
				return printTopics(cmd.OutOrStdout(), docs)
			})(cmd)
		}),
	}
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

// topicLine is one topic of `topic ls -o json`.
type topicLine struct {
	Topic    string `json:"topic"`
	Shards   int    `json:"shards"`
	Exchange string `json:"exchange"`
	Paused   bool   `json:"paused"`
	Until    string `json:"paused_until,omitempty"`
	Reason   string `json:"paused_reason,omitempty"`
	Index    uint64 `json:"index"`
	Error    string `json:"error,omitempty"`
}

func describeTopics(docs []config.Document) []topicLine {
	lines := make([]topicLine, len(docs))
	for i, d := range docs {
		lines[i] = topicLine{Topic: d.Name, Shards: d.Topic.Shards, Exchange: d.Topic.Exchange, Paused: d.Topic.Paused,
			Index: d.Index}
		if d.Topic.Paused {
			lines[i].Until, lines[i].Reason = d.Topic.PausedUntil, d.Topic.PausedReason
		}
		if d.Err != nil {
			lines[i].Error = d.Err.Error()
		}
	}
	return lines
}

func printTopics(out io.Writer, docs []config.Document) error {
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tSHARDS\tEXCHANGE\tROUTING KEY\tPAUSED\tINDEX")
	for _, d := range docs {
		if d.Err != nil {
			fmt.Fprintf(w, "%s\t! %s\n", d.Name, cli.OneLine(d.Err.Error()))
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\n", d.Name, d.Topic.Shards, d.Topic.Exchange, d.Topic.RoutingKey,
			pauseText(d.Topic), d.Index)
	}
	return w.Flush()
}

// pauseText returns whether a document pauses its topic, or until when.
func pauseText(t config.Topic) string {
	if t.Paused && t.PausedUntil != "" {
		return "until " + t.PausedUntil
	}
	return fmt.Sprint(t.Paused)
}

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
			return withConsul(s, func(_ context.Context, c topicdocs.Documents) error { return f.run(cmd, s, c, args) })(cmd)
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
func (f *setFlags) run(cmd *cobra.Command, s *settings, c topicdocs.Documents, args []string) error {
	if f.old && len(args) == 1 {
		return unbindOld(cmd, s, c, args[0])
	}
	doc, err := set(cmd, s, c, edit{topic: args[0], assignments: args[1:], replace: f.replace, dry: f.dry, likely: true})
	if f.dry {
		return err
	}
	if err == nil && f.wait {
		err = awaitShards(cmd, s, c, doc, f.timeout)
	}
	if err == nil {
		err = f.told.await(cmd, s, doc)
	}
	if err == nil && f.old {
		err = unbindOld(cmd, s, c, args[0])
	}
	return err
}

// edit is a change of a topic's document.
type edit struct {
	topic       string
	assignments []string
	// inForce returns the last good document of a topic, which scanners use while its
	// document is broken; nil if there is none. Pause and resume set it, and begin from
	// that document. They require a document in Consul.
	inForce func(ctx context.Context, topic string) ([]byte, error)
	replace bool // begin from an empty document
	dry     bool // write nothing
	create  bool // fail if there is a document
	// likely guards against mistyped names: a new topic needs a confirmation on a
	// terminal, and elsewhere a name that isn't similar to another topic's.
	likely bool
}

func registerDryRun(cmd *cobra.Command, dry *bool) {
	cmd.Flags().BoolVar(dry, "dry-run", false, "check it and print the difference; write nothing")
}

// set changes a document, prints the difference, and returns the resulting document.
func set(cmd *cobra.Command, s *settings, c topicdocs.Documents, e edit) (config.Document, error) {
	topic, out := e.topic, cmd.OutOrStdout()
	doc, there, err := c.Read(cmd.Context(), topic)
	if err == nil && !there && e.inForce != nil {
		err = topicdocs.NoDocumentError(topic)
	}
	if err == nil && !there && e.likely {
		err = refuseSlip(cmd, c, topic)
	}
	if err != nil {
		return doc, err
	}
	edited, err := topicdocs.Edit{Assignments: e.assignments, Replace: e.replace, Create: e.create}.Of(topic, doc)
	if err != nil && doc.Err != nil && e.inForce != nil {
		edited.Raw, edited.Changes, err = e.ofForce(cmd, err)
		edited.Same = len(edited.Changes) == 0
	}
	var exists topicdocs.ExistsError
	if errors.As(err, &exists) {
		return doc, err
	}
	if err != nil {
		return doc, e.explain(err, doc)
	}
	if edited.Same {
		_, err := fmt.Fprintf(out, "topic %s: nothing to change\n", topic)
		return doc, err
	}
	after := config.ParseDocument(topic, edited.Raw, 0)
	printDifference(out, topic, edited.Changes)
	printLeftBinding(out, doc, after)
	if err := s.refuseOlder(cmd, doc, after); err != nil {
		return doc, err
	}
	if edited.Fixed {
		fmt.Fprintf(out, "topic %s: its mistakes are fixed\n", topic)
	}
	if e.dry {
		_, err := fmt.Fprintf(out, "topic %s: a dry run, nothing was written\n", topic)
		return doc, err
	}
	if !there && e.likely && canAsk(cmd) {
		if err := confirmNew(cmd, c, topic); err != nil {
			return doc, err
		}
	}
	if doc, err = write(cmd, c, doc, topic, edited.Raw); err == nil {
		_, err = fmt.Fprintf(out, "topic %s written\n", topic)
	}
	return doc, err
}

// canAsk reports whether the verb runs on a terminal and can ask a person.
func canAsk(cmd *cobra.Command) bool {
	return cli.OnTerminal(cmd.InOrStdin()) && cli.OnTerminal(cmd.ErrOrStderr())
}

// refuseSlip fails if a new topic's name is similar to another topic's and nobody can be
// asked.
func refuseSlip(cmd *cobra.Command, c topicdocs.Documents, topic string) error {
	if canAsk(cmd) {
		return nil
	}
	return c.RefuseSlip(cmd.Context(), topic)
}

// confirmNew asks whether to create a new topic.
func confirmNew(cmd *cobra.Command, c topicdocs.Documents, topic string) error {
	slip, err := c.Slip(cmd.Context(), topic)
	if err != nil {
		return err
	}
	what := "create the new topic " + topic
	if slip != "" {
		what += "; did you mean " + slip + ", which exists? create it"
	}
	return cli.Confirmation{Deed: cli.Writes()}.Ask(cmd, what)
}

// printDifference prints a line for each setting that changes.
func printDifference(out io.Writer, topic string, changes []config.Change) {
	for _, ch := range changes {
		fmt.Fprintf(out, "%s.%s: %s -> %s\n", topic, ch.Key, orNone(ch.Old), orNone(ch.New))
	}
}

// ofForce edits the last good document, which scanners use and which replaces the broken
// one. It returns broken if there is no such document.
func (e edit) ofForce(cmd *cobra.Command, broken error) (raw []byte, changes []config.Change, err error) {
	good, err := e.inForce(cmd.Context(), e.topic)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; the last good one can't be read from Redis: %w", broken, err)
	}
	if good == nil {
		return nil, nil, broken // no scanner has served the topic
	}
	if raw, changes, err = config.Edit(e.topic, good, e.assignments); err == nil && len(changes) > 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(),
			"topic %s: its document has mistakes, and `scanner topic history %s -o json` keeps it: the last good one, which "+
				"is in force, takes its place\n", e.topic, e.topic)
	}
	return raw, changes, err
}

// explain adds to the error of an edit how to fix a document that was broken before.
func (e edit) explain(err error, before config.Document) error {
	switch {
	case before.Err == nil || e.replace:
		return err
	case e.inForce != nil:
		return fmt.Errorf("topic %s: scanners would not read it: its document has mistakes, and no good one is known to "+
			"begin from; fix it in the same step, "+
			"`scanner topic set %s KEY=VALUE... %s` (KEY= removes a line), or begin from an empty one with --replace: %w",
			e.topic, e.topic, e.assignments[0], err)
	}
	return fmt.Errorf("%w\nthe document has mistakes: KEY=VALUE fixes a line, KEY= removes it, and --replace begins "+
		"from an empty one", err)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

func topicRemove(s *settings) *cobra.Command {
	var purge bool
	var confirm cli.Confirmation
	cmd := &cobra.Command{
		Use:   "rm TOPIC [--purge] [--yes]",
		Short: "Removes a topic; refuses while it holds tasks unless told to purge them",
		Long: `Removes a topic and its document in Consul. Refuses while the topic holds tasks, unless
--purge is given: then it removes them too. It says what it would remove and asks on a
terminal; elsewhere it needs --yes. Exit code 3: there is no such topic.

"scanner topic undo" restores the document, but not the tasks.

Other tools can write a document under a name that no topic may have. To remove it, give
that name as "scanner topic ls" prints it.`,
		Args: anyName,
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			if task.CheckTopic(args[0]) != nil {
				return removeMisnamed(cmd, s, args[0], confirm)
			}
			return removeTopic(cmd, s, args[0], purge, confirm)
		}),
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove its tasks")
	confirm.Register(cmd)
	registerAuthor(cmd)
	return cmd
}

// removeTopic removes the document, if Consul holds one, and the topic in Redis.
func removeTopic(cmd *cobra.Command, s *settings, topic string, purge bool, confirm cli.Confirmation) error {
	cfg, err := s.load()
	if err != nil {
		return err
	}
	rdb, store, err := connect(cfg, nil)
	if err != nil {
		return err
	}
	defer rdb.Close()
	if _, inFile := cfg.Topics[topic]; inFile && cfg.Consul.Addr == "" {
		return fmt.Errorf("topic %s is in the configuration file; take it out there first", topic)
	}
	removal := operate.Removal{Topic: store.Topic(topic), Purge: purge}
	pending, unknown := removal.Check(cmd.Context())
	if unknown != nil && !errors.Is(unknown, task.ErrUnknownTopic) {
		return unknown
	}
	doc, err := findDocument(cmd.Context(), cfg, topic)
	if err != nil {
		return err
	}
	if unknown != nil && !doc.there() {
		return unknown
	}
	what := "delete topic " + topic
	if purge || pending == 0 { // otherwise Run keeps the tasks of an interrupted removal
		what += " with " + cli.Counted(pending)
	}
	if err := confirm.Ask(cmd, what); err != nil {
		return err
	}
	if err := doc.remove(cmd); err != nil {
		return err
	}
	purged, err := removal.Run(cmd.Context())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s removed, with %d tasks\n", topic, purged)
	return err
}

// anyName requires one argument. It accepts names that no topic may have.
func anyName(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || args[0] == "" {
		return cli.UsageError("name a topic")
	}
	return cli.NoArguments(cmd, args[1:])
}

// removeMisnamed removes a document whose name no topic may have. Redis holds nothing
// under such a name.
func removeMisnamed(cmd *cobra.Command, s *settings, name string, confirm cli.Confirmation) error {
	bad := task.CheckTopic(name)
	cfg, err := s.connections()
	if err != nil {
		return err
	}
	if cfg.Consul.Addr == "" {
		return cli.UsageError(bad.Error())
	}
	client, err := topicdocs.Open(cfg.Consul, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	docs, err := client.List(cmd.Context())
	if err != nil {
		return err
	}
	at := slices.IndexFunc(docs, func(d config.Document) bool { return d.Name == name })
	if at < 0 {
		return fmt.Errorf("no document in consul is named %q, nor is a topic: %w: %w", name, bad, task.ErrNotFound)
	}
	if err := confirm.Ask(cmd, fmt.Sprintf("delete the document %q, which is no topic's", name)); err != nil {
		return err
	}
	ok, err := client.Consul.Delete(cmd.Context(), name, docs[at].Index)
	if err == nil && !ok {
		err = fmt.Errorf("document %q %w; nothing was removed", name, topicdocs.ErrMeanwhile)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "document %q removed\n", name)
	return err
}

// foundDocument is a topic's document as read from Consul; method there reports whether
// it exists.
type foundDocument struct {
	topics topicdocs.Documents
	config.Document
}

// there reports whether Consul is configured and holds the document.
func (d foundDocument) there() bool { return d.Index > 0 }

func findDocument(ctx context.Context, cfg *config.Config, topic string) (foundDocument, error) {
	if cfg.Consul.Addr == "" {
		return foundDocument{}, nil
	}
	client, err := topicdocs.Open(cfg.Consul, slog.New(slog.DiscardHandler))
	if err != nil {
		return foundDocument{}, err
	}
	doc, _, err := client.Read(ctx, topic)
	return foundDocument{client, doc}, err
}

// remove deletes the document, if there is one. It fails if somebody else has changed it
// since.
func (d foundDocument) remove(cmd *cobra.Command) error {
	if !d.there() {
		return nil
	}
	removed, err := d.topics.Remove(cmd.Context(), d.Document, authorOf(cmd))
	if err != nil {
		return err
	}
	return tellUnkept(cmd, d.Name, removed)
}
