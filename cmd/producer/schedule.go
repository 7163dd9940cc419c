package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// scheduleFlags are those of the verb schedule.
type scheduleFlags struct {
	named
	due         dueFlags
	payload     string
	payloadFile string
	contentType string
	headers     []string
	ifAbsent    bool
}

func scheduleCommand(conn *connection) *cobra.Command {
	var flags scheduleFlags
	cmd := &cobra.Command{
		Use:   "schedule --topic T --id ID (--in 30m | --at 2026-12-01T10:00:00Z)",
		Short: "Stores a task that is due later",
		Long: `Stores a task that is due later. An ID that is pending already is replaced:
its due time, payload, headers and attempts. A due time in the past means now.`,
		Example: `  producer schedule --topic orders --id o-1 --in 30m --payload '{"order":1}' --content-type application/json
  pg_dump shop | producer schedule --topic dumps --id d-1 --at 2026-12-01T10:00:00Z --payload-file -`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return schedule(cmd, conn, &flags) }),
	}
	f := cmd.Flags()
	flags.named.register(cmd)
	flags.due.register(f)
	f.StringVar(&flags.payload, "payload", "", "the payload as text (default empty)")
	f.StringVar(&flags.payloadFile, "payload-file", "", "a file that holds the payload, or - for standard input")
	f.StringVar(&flags.contentType, "content-type", "", "of the payload (default "+task.DefaultContentType+")")
	f.StringArrayVar(&flags.headers, "header", nil, "a header of the message, key=value; may be repeated")
	f.BoolVar(&flags.ifAbsent, "if-absent", false, "leave a pending task of this ID as it is, and exit with 4")
	return cmd
}

func schedule(cmd *cobra.Command, conn *connection, flags *scheduleFlags) error {
	req, err := flags.request(cmd, conn.maxPayload)
	if err != nil {
		return err
	}
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	due, err := client.Schedule(cmd.Context(), req)
	if err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	text := fmt.Sprintf("scheduled %s, due %s", flags.named, formatTime(due))
	return conn.print(cmd, text, newDueOutput(flags.named, due))
}

// request puts the flags together.
func (s *scheduleFlags) request(cmd *cobra.Command, maxPayload int) (producer.Request, error) {
	when, err := s.due.when(cmd.Flags())
	if err != nil {
		return producer.Request{}, err
	}
	headers, err := parseHeaders(s.headers)
	if err != nil {
		return producer.Request{}, err
	}
	payload, err := s.readPayload(cmd, maxPayload)
	if err != nil {
		return producer.Request{}, err
	}
	return producer.Request{
		Topic:       s.Topic,
		ID:          s.ID,
		When:        when.producer(),
		Payload:     payload,
		ContentType: s.contentType,
		Headers:     headers,
		IfAbsent:    s.ifAbsent,
	}, nil
}

func (s *scheduleFlags) readPayload(cmd *cobra.Command, maxPayload int) ([]byte, error) {
	if !cmd.Flags().Changed("payload-file") {
		return []byte(s.payload), nil
	}
	if cmd.Flags().Changed("payload") {
		return nil, cli.UsageError("only one of --payload and --payload-file may be given")
	}
	if s.payloadFile == "-" {
		payload, err := readAtMost(interruptible(cmd.Context(), cmd.InOrStdin()), maxPayload)
		if cmd.Context().Err() != nil {
			return nil, fmt.Errorf("read payload: %w", errInterrupted)
		}
		return payload, err
	}
	file, err := os.Open(s.payloadFile)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > int64(maxPayload) {
		return nil, tooLarge(maxPayload, fmt.Sprintf("%d bytes", info.Size()))
	}
	return readAtMost(file, maxPayload)
}

// readAtMost reads to the end, or far enough to know that it is too far.
func readAtMost(r io.Reader, most int) ([]byte, error) {
	payload, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("read payload: %w", err)
	}
	if len(payload) > most {
		return nil, tooLarge(most, fmt.Sprintf("more than %d bytes", most))
	}
	return payload, nil
}

// tooLarge is the library's rule, for a payload that was not read as a whole.
func tooLarge(most int, got string) error {
	err := task.CheckPayload(make([]byte, most+1), most)
	var rule *task.RuleError
	if errors.As(err, &rule) {
		rule.Got = got
	}
	return err
}

// parseHeaders reads key=value; a value may hold further equals signs.
func parseHeaders(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return nil, cli.UsageError(fmt.Sprintf("--header %q: want key=value", clip(pair)))
		}
		if _, twice := headers[key]; twice {
			return nil, cli.UsageError(fmt.Sprintf("--header %q: given twice", clip(key)))
		}
		headers[key] = value
	}
	return headers, nil
}

// register adds the flags that name a task; both are needed.
func (n *named) register(cmd *cobra.Command) {
	registerTopic(cmd, &n.Topic)
	cmd.Flags().StringVar(&n.ID, "id", "", "the task's name within its topic, 1 to 255 bytes (needed)")
	_ = cmd.MarkFlagRequired("id") // fails for a flag that does not exist
}

func registerTopic(cmd *cobra.Command, topic *string) {
	cmd.Flags().StringVar(topic, "topic", "", "the stream of tasks, 1 to 64 of A-Z a-z 0-9 . _ - (needed)")
	_ = cmd.MarkFlagRequired("topic")
}

// dueFlags are --in and --at, of which exactly one is given.
type dueFlags struct{ in, at string }

func (d *dueFlags) register(f *pflag.FlagSet) {
	f.StringVar(&d.in, "in", "", "due this long after Redis's now: 30m, 1h30m, 500ms, 2d")
	f.StringVar(&d.at, "at", "", "due at this time: RFC 3339, or Unix milliseconds")
}

func (d *dueFlags) when(f *pflag.FlagSet) (when, error) {
	if f.Changed("in") == f.Changed("at") {
		return when{}, cli.UsageError("exactly one of --in and --at must be given")
	}
	name, value, parse := "in", d.in, parseIn
	if f.Changed("at") {
		name, value, parse = "at", d.at, parseAt
	}
	w, err := parse(value)
	if err != nil {
		return when{}, cli.UsageError(fmt.Sprintf("--%s %q: %v", name, clip(value), err))
	}
	return w, nil
}
