package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/task"
)

// The most tasks of one call, as of one claim.
const (
	defaultBatch = 500
	maxBatch     = 1000
)

// loadFlags are those of the verb load.
type loadFlags struct {
	topic    string
	file     string
	errors   string
	batch    int
	strict   bool
	ifAbsent bool
}

func loadCommand(conn *connection) *cobra.Command {
	var flags loadFlags
	cmd := &cobra.Command{
		Use:   "load --topic T [--file F | -]",
		Short: "Schedules a stream of tasks, one JSON object a line",
		Long: `Schedules a stream of tasks, one JSON object a line:

  {"id":"o-1","in":"30m","payload":"..."}

"in" is a duration and "at" RFC 3339 or Unix milliseconds; "payload_base64" is for
bytes; "headers" and "content_type" may be given. What a pipe has brought is written
within 50 ms. Lines of one ID are written in their order; others may overtake
each other. Bad lines are reported with their numbers, ten of them and a count, or all
in the file that --errors names, and the exit code is 1; the good ones are written.
Ctrl-C stops reading and writes what was read.`,
		Example: `  producer load --topic orders --file orders.ndjson
  generate | producer load --topic orders --strict -o json -`,
		Args: flags.arguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return load(cmd, conn, &flags) }),
	}
	registerTopic(cmd, &flags.topic)
	f := cmd.Flags()
	f.StringVar(&flags.file, "file", "-", "the file to read, or - for standard input")
	f.StringVar(&flags.errors, "errors", "", "a file for all bad lines, numbers and reasons, made anew")
	f.IntVar(&flags.batch, "batch", defaultBatch, fmt.Sprintf("most tasks in one call to Redis, 1 to %d", maxBatch))
	f.BoolVar(&flags.strict, "strict", false, "stop at the first bad line and write nothing after it")
	f.BoolVar(&flags.ifAbsent, "if-absent", false, "leave pending tasks of the same IDs as they are, and count them as existing")
	return cmd
}

// arguments takes a single dash, which stands for standard input as everywhere.
func (l *loadFlags) arguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "-" && l.file == "-":
		return nil
	case len(args) == 1 && args[0] == "-":
		return cli.UsageError("only one of --file and - may be given")
	default:
		return cli.NoArguments(cmd, args)
	}
}

func load(cmd *cobra.Command, conn *connection, flags *loadFlags) (err error) {
	if flags.batch < 1 || flags.batch > maxBatch {
		return cli.UsageError(fmt.Sprintf("--batch %d: must be 1 to %d", flags.batch, maxBatch))
	}
	if err := task.CheckTopic(flags.topic); err != nil {
		return err
	}
	source, info, err := openSource(cmd, flags.file)
	if err != nil {
		return err
	}
	defer source.Close()
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	bad, err := openBadLines(cmd.ErrOrStderr(), flags.errors, info)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bad.close()) }()

	bar := newProgress(cmd.ErrOrStderr(), size(info))
	loader := newLoader(loaderConfig{
		Decoder: lineDecoder{topic: flags.topic, ifAbsent: flags.ifAbsent, maxPayload: conn.maxPayload, now: time.Now},
		Batch:   flags.batch,
		Strict:  flags.strict,
		Write:   client.ScheduleMany,
		Bad: func(line int, err error) {
			bar.clear()
			bad.add(line, err)
		},
		Progress: bar.add,
	})
	sum, err := loader.load(cmd.Context(), source)
	bar.finish()
	if printErr := conn.print(cmd, sum.text(), sum); printErr != nil {
		return printErr
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", flags.topic, err)
	}
	return nil
}

// openSource opens a file, or standard input for "-", and describes it; nil where
// it isn't a file of the system's.
func openSource(cmd *cobra.Command, name string) (io.ReadCloser, os.FileInfo, error) {
	if name == "-" {
		file, ok := cmd.InOrStdin().(*os.File)
		if !ok {
			return io.NopCloser(cmd.InOrStdin()), nil, nil
		}
		info, err := file.Stat()
		return io.NopCloser(file), info, err
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// size of what is loaded, in bytes; -1 where that is not known.
func size(info os.FileInfo) int64 {
	if info == nil || !info.Mode().IsRegular() {
		return -1
	}
	return info.Size()
}

// text is the summary for people.
func (s summary) text() string {
	text := fmt.Sprintf("%d lines: %d scheduled, %d existing, %d bad", s.Lines, s.Scheduled, s.Existing, s.Bad)
	if s.Unwritten > 0 {
		text += fmt.Sprintf(", %d not written", s.Unwritten)
	}
	return text + fmt.Sprintf(" in %.2f s, %.0f/s", s.Seconds, s.Rate)
}
