package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/httpapi"
	"github.com/duefleet/duefleet/internal/ndjson"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// call carries out a request, and returns the output of the verb.
func call(ctx context.Context, client *producer.Client, r *ndjson.Request) (output, error) {
	switch r.Verb {
	case "schedule":
		due, err := client.Schedule(ctx, r.Request)
		return newDueOutput(r, due), err
	case "reschedule":
		due, err := client.Reschedule(ctx, r.Topic, r.ID, r.When)
		return newDueOutput(r, due), err
	case "cancel":
		return cancelOutput{newNamed(r), true}, client.Cancel(ctx, r.Topic, r.ID)
	default:
		stored, err := client.Get(ctx, r.Topic, r.ID)
		return newGetOutput(newNamed(r), stored), err
	}
}

// perform carries out a request of the command line, and prints its result.
func (c *connection) perform(cmd *cobra.Command, r *ndjson.Request) error {
	client, err := c.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	out, err := call(cmd.Context(), client, r)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Verb, err)
	}
	if due, ok := out.(dueOutput); ok && due.past > pastDue {
		// an error has no place to go
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "producer: due %s: delivered at once\n", ago(due.past))
	}
	return c.print(cmd, out.text(), out)
}

// register adds --topic and --id, both required.
func register(cmd *cobra.Command, r *ndjson.Request) {
	registerTopic(cmd, &r.Topic)
	registerID(cmd, &r.ID, " (needed)")
	_ = cmd.MarkFlagRequired("id") // fails for a flag that does not exist
}

func registerTopic(cmd *cobra.Command, topic *string) {
	cmd.Flags().StringVar(topic, "topic", "",
		"the stream of tasks, 1 to 64 of A-Z a-z 0-9 . _ -; the same as TOPIC (needed)")
	_ = cmd.MarkFlagRequired("topic")
}

func registerID(cmd *cobra.Command, id *string, needed string) {
	cmd.Flags().StringVar(id, "id", "", "the task's name within its topic, 1 to 255 bytes"+needed)
}

func scheduleCommand(conn *connection) *cobra.Command {
	r := ndjson.Request{Verb: "schedule"}
	var due dueFlags
	var rule ruleFlags
	var payload payloadFlags
	var headers []string
	var options optionFlags
	cmd := &cobra.Command{
		Use:   "schedule TOPIC --id ID (--in 30m | --at 2026-12-01T10:00:00Z | --every 1h | --cron ...)",
		Short: "Stores a task that is due later",
		Long: `Stores a task that is due later. It replaces a pending task with the same ID: due time,
payload, headers and attempts. A due time in the past means now; if it is more than a
minute ago, a message on standard error says so.

With --every or --cron the task recurs. --in or --at is then the first run. Without them it
is the first time of the rule. A later schedule with the same ID replaces the rule, and
cancel ends it.`,
		Example: `  producer schedule orders --id o-1 --in 30m --payload '{"order":1}' --content-type application/json
  pg_dump shop | producer schedule dumps --id d-1 --at 2026-12-01T10:00:00Z --payload-file -
  producer schedule reports --id monthly --cron "0 9 1 * *" --zone Europe/Berlin`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) (err error) {
			if r.Recurrence, err = rule.read(cmd.Flags()); err != nil {
				return err
			}
			if err = due.set(cmd.Flags(), &r); err != nil {
				return err
			}
			if r.Headers, err = parseHeaders(headers); err != nil {
				return err
			}
			if r.Options, err = options.read(); err != nil {
				return err
			}
			if r.Payload, err = payload.read(cmd, conn.maxPayload); err != nil {
				return err
			}
			return conn.perform(cmd, &r)
		}),
	}
	f := cmd.Flags()
	register(cmd, &r)
	due.register(f)
	rule.register(f)
	options.register(f)
	f.StringVar(&r.Group, "group", "", "puts the task into this group, 1 to 255 bytes, such as a customer")
	f.StringVar(&payload.text, "payload", "", "the payload as text (default empty)")
	f.StringVar(&payload.file, "payload-file", "", "a file that holds the payload, or - for standard input")
	f.StringVar(&r.ContentType, "content-type", "", "of the payload (default "+task.DefaultContentType+")")
	f.StringArrayVar(&headers, "header", nil, "a header of the message, key=value; may be repeated")
	f.BoolVar(&r.IfAbsent, "if-absent", false, "leave a pending task with this ID as it is, and exit with 4")
	f.BoolVar(&r.IfPresent, "if-present", false, "exit with 3 unless there is a task with this ID to replace")
	return cmd
}

func rescheduleCommand(conn *connection) *cobra.Command {
	r := ndjson.Request{Verb: "reschedule"}
	var due dueFlags
	cmd := &cobra.Command{
		Use:   "reschedule TOPIC --id ID (--in 30m | --at 2026-12-01T10:00:00Z)",
		Short: "Changes when a task is due, and keeps the rest of it",
		Long: `Changes when a task is due, and keeps its payload. A due time in the past means now;
if it is more than a minute ago, a message on standard error says so. Exits with 3 if
there is no such task.`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) (err error) {
			if err = due.set(cmd.Flags(), &r); err != nil {
				return err
			}
			return conn.perform(cmd, &r)
		}),
	}
	register(cmd, &r)
	due.register(cmd.Flags())
	return cmd
}

func getCommand(conn *connection) *cobra.Command {
	r := ndjson.Request{Verb: "get"}
	var history bool
	cmd := &cobra.Command{
		Use:   "get TOPIC --id ID",
		Short: "Prints a stored task as JSON",
		Long: `Prints a stored task as JSON, on several lines, or with -o json on one line. The payload
is in "payload" if it is text, else in "payload_base64". A task that came through the
topic's intake has "amqp": routing key, properties, and headers with their types. Exits
with 3 if there is no such task.

A recurring task has "recurrence", its rule, and "next_runs": the stored run and two more.
"planned" is when that run is due by the rule, if it was moved. A run that is retried or
parked is a task of its own, and "series" is the ID of its recurring task.

With --history it prints what happened to the task, which need not be stored any more:
scheduled, moved, delivered, handled, cancelled, retried, parked, replayed, purged. The
topic's setting "history" says how long that is kept; by default it isn't. "handled" needs
a consumer that remembers deliveries. Exits with 3 if nothing is known.`,
		Args: cli.TopicArgument,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			if history {
				return conn.history(cmd, &r)
			}
			return conn.perform(cmd, &r)
		}),
	}
	register(cmd, &r)
	cmd.Flags().BoolVar(&history, "history", false, "print what happened to the task instead")
	return cmd
}

// dueFlags are --in and --at. Exactly one of them must be given. With the rule of a recurring
// task, neither need be given.
type dueFlags struct{ in, at string }

func (d *dueFlags) register(f *pflag.FlagSet) {
	f.StringVar(&d.in, "in", "", "due this long after Redis's now: 30m, 1h30m, 500ms, 2d; 0s is now")
	f.StringVar(&d.at, "at", "", "due at this time: RFC 3339, or Unix milliseconds (not seconds)")
}

// set sets the due time of r.
func (d *dueFlags) set(f *pflag.FlagSet, r *ndjson.Request) error {
	switch in, at := f.Changed("in"), f.Changed("at"); {
	case r.Recurrence != nil && !in && !at:
		return nil
	case r.Recurrence != nil && in && at:
		return cli.UsageError("only one of --in and --at may be given")
	case in == at:
		return cli.UsageError("exactly one of --in and --at must be given")
	}
	name, value := "in", d.in
	if f.Changed("at") {
		name, value = "at", d.at
	}
	due, err := duetime.When(name, value)
	if err != nil {
		return cli.UsageError(fmt.Sprintf("--%s %q: %v", name, ndjson.Clip(value), err))
	}
	r.When = due
	return nil
}

// payloadFlags are --payload and --payload-file. At most one of them may be given.
type payloadFlags struct{ text, file string }

// read returns the payload. For a payload of more than most bytes it stops reading and
// fails with a *task.RuleError.
func (p *payloadFlags) read(cmd *cobra.Command, most int) ([]byte, error) {
	if !cmd.Flags().Changed("payload-file") {
		return []byte(p.text), nil
	}
	if cmd.Flags().Changed("payload") {
		return nil, cli.UsageError("only one of --payload and --payload-file may be given")
	}
	file := os.Stdin
	if p.file != "-" {
		var err error
		if file, err = os.Open(p.file); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	source := ndjson.Interruptible(cmd.Context(), file)
	payload, err := io.ReadAll(io.LimitReader(source, int64(most)+1))
	if cmd.Context().Err() != nil {
		err = ndjson.ErrInterrupted
	}
	if err != nil {
		return nil, fmt.Errorf("read payload: %w", err)
	}
	err = task.CheckPayload(payload, most)
	var rule *task.RuleError
	if errors.As(err, &rule) {
		rule.Got = fmt.Sprintf("more than %d bytes", most)
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			rule.Got = fmt.Sprintf("%d bytes", info.Size())
		}
	}
	return payload, err
}

// parseHeaders parses key=value pairs. A value may hold more equals signs.
func parseHeaders(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return nil, cli.UsageError(fmt.Sprintf("--header %q: want key=value", ndjson.Clip(pair)))
		}
		if _, twice := headers[key]; twice {
			return nil, cli.UsageError(fmt.Sprintf("--header %q: given twice", ndjson.Clip(key)))
		}
		headers[key] = value
	}
	return headers, nil
}

// output is the result of a verb, printed as JSON or as text.
type output interface{ text() string }

// named is the beginning of every verb's JSON. In a pipe the head of the answer precedes
// it.
type named struct {
	*answerHead
	Topic string `json:"topic"`
	ID    string `json:"id"`
}

func newNamed(r *ndjson.Request) named {
	n := named{Topic: r.Topic, ID: r.ID}
	if r.Line > 0 {
		n.answerHead = &answerHead{Line: r.Line, Verb: r.Verb}
	}
	return n
}

// String returns topic and ID. The ID is quoted, because it may hold any characters.
func (n named) String() string { return fmt.Sprintf("%s %q", n.Topic, n.ID) }

// cancelOutput is the output of cancel.
type cancelOutput struct {
	named
	Cancelled bool `json:"cancelled"`
}

func (o cancelOutput) text() string { return fmt.Sprintf("cancelled %s", o.named) }

// dueOutput is the output of schedule and reschedule.
type dueOutput struct {
	named
	Due       string `json:"due"`
	DueMillis int64  `json:"due_ms"`

	verb string
	past time.Duration // see ndjson.Past
}

func newDueOutput(r *ndjson.Request, due time.Time) dueOutput {
	return dueOutput{named: newNamed(r), Due: duetime.Text(due), DueMillis: due.UnixMilli(), verb: r.Verb,
		past: ndjson.Past(r.When, due)}
}

func (o dueOutput) text() string { return fmt.Sprintf("%sd %s, due %s", o.verb, o.named, o.Due) }

// getOutput is the output of get.
type getOutput struct {
	named
	httpapi.View
}

func newGetOutput(name named, s producer.Stored) getOutput {
	return getOutput{name, httpapi.NewView(s)}
}

// text is the JSON on several lines.
func (o getOutput) text() string {
	var text strings.Builder
	_ = cli.PrintJSON(&text, o, "  ") // can't fail
	return strings.TrimSuffix(text.String(), "\n")
}

// pastDue is how far in the past a due time may be without a message. Clocks that differ
// and a slow start explain some seconds; if it is more, the user may have meant another
// time.
const pastDue = time.Minute

// ago formats a duration of at least a minute as a time in the past.
func ago(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd ago", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	default:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	}
}
