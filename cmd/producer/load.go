package main

import (
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
	batch    int
	strict   bool
	ifAbsent bool
}

func loadCommand(conn *connection) *cobra.Command {
	var flags loadFlags
	cmd := &cobra.Command{
		Use:   "load --topic T [--file F]",
		Short: "Schedules a stream of tasks, one JSON object a line",
		Long: `Schedules a stream of tasks, one JSON object a line:

  {"id":"o-1","in":"30m","payload":"..."}

"in" is a duration and "at" RFC 3339 or Unix milliseconds; "payload_base64" is for
bytes; "headers" and "content_type" may be given. What a pipe has brought is written
within 50 ms. Lines of one ID are written in their order; others may overtake
each other. A bad line is reported with its number and the exit code is 1; the good
ones are written. Ctrl-C stops reading and writes what was read.`,
		Example: `  producer load --topic orders --file orders.ndjson
  generate | producer load --topic orders --strict -o json`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error { return load(cmd, conn, &flags) }),
	}
	registerTopic(cmd, &flags.topic)
	f := cmd.Flags()
	f.StringVar(&flags.file, "file", "-", "the file to read, or - for standard input")
	f.IntVar(&flags.batch, "batch", defaultBatch, fmt.Sprintf("most tasks in one call to Redis, 1 to %d", maxBatch))
	f.BoolVar(&flags.strict, "strict", false, "stop at the first bad line and write nothing after it")
	f.BoolVar(&flags.ifAbsent, "if-absent", false, "leave pending tasks of the same IDs as they are, and count them as existing")
	return cmd
}

func load(cmd *cobra.Command, conn *connection, flags *loadFlags) error {
	if flags.batch < 1 || flags.batch > maxBatch {
		return cli.UsageError(fmt.Sprintf("--batch %d: must be 1 to %d", flags.batch, maxBatch))
	}
	if err := task.CheckTopic(flags.topic); err != nil {
		return err
	}
	source, size, err := openSource(cmd, flags.file)
	if err != nil {
		return err
	}
	defer source.Close()
	client, err := conn.open(cmd)
	if err != nil {
		return err
	}
	defer client.Close()

	bar := newProgress(cmd.ErrOrStderr(), size)
	loader := newLoader(loaderConfig{
		Decoder: lineDecoder{topic: flags.topic, ifAbsent: flags.ifAbsent, maxPayload: conn.maxPayload, now: time.Now},
		Batch:   flags.batch,
		Strict:  flags.strict,
		Write:   client.ScheduleMany,
		Bad: func(line int, err error) {
			bar.clear()
			fmt.Fprintf(cmd.ErrOrStderr(), "producer: line %d: %s\n", line, cli.OneLine(err.Error()))
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

// openSource opens a file, or standard input for "-", and tells its size in
// bytes, -1 where that is not known.
func openSource(cmd *cobra.Command, name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), -1, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return file, -1, nil
	}
	return file, info.Size(), nil
}

// text is the summary for people.
func (s summary) text() string {
	text := fmt.Sprintf("%d lines: %d scheduled, %d existing, %d bad", s.Lines, s.Scheduled, s.Existing, s.Bad)
	if s.Unwritten > 0 {
		text += fmt.Sprintf(", %d not written", s.Unwritten)
	}
	return text + fmt.Sprintf(" in %.2f s, %.0f/s", s.Seconds, s.Rate)
}
