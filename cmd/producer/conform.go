package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/test/conform"
)

// conforming holds the flags of the verb conform.
type conforming struct {
	only     []string
	list     bool
	patience time.Duration
}

func conformCommand(conn *connection) *cobra.Command {
	var c conforming
	cmd := &cobra.Command{
		Use:   "conform [--only NAME]... -- PROGRAM [ARGUMENT]...",
		Short: "Tests whether a producer in another language keeps to the protocol",
		Long: `Tests whether a producer keeps to docs/protocol.md. It starts PROGRAM, which reads one
request per line and answers each with a line, as docs/pipe.md says. Between PROGRAM and
Redis it puts a proxy. Then it plays transcripts: requests while the number of shards
changes, while scripts are delayed, while replies are lost. It compares the answers, the
scripts that PROGRAM sends, their order, and what is stored at the end.

PROGRAM finds Redis by two variables, DUEFLEET_REDIS_ADDRS and DUEFLEET_REDIS_PREFIX,
and needs neither a password nor TLS. It is started again for each transcript.

Redis must be a single server, not a cluster. conform creates topics under a prefix of
its own and removes them at the end. It touches nothing else. Some transcripts wait for
seconds. Several are played at a time, and all of them take about half a minute.

Exit codes: 0 all passed; 1 one failed, or could not be played; 2 wrong usage.`,
		Example: `  producer conform -- python3 examples/python/pipe.py
  producer conform --only schedule-moving --redis-addr 127.0.0.1:6379 -- ./my-producer --pipe`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch at := cmd.ArgsLenAtDash(); {
			case c.list && len(args) > 0:
				return cli.UsageError("--list plays nothing: give no program")
			case !c.list && len(args) == 0:
				return cli.UsageError("name a program behind --")
			case at > 0, at < 0 && len(args) > 0:
				return cli.UsageError(fmt.Sprintf("unexpected argument %q; the program stands behind --", args[0]))
			}
			return nil
		},
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error { return runConform(cmd, conn, c, args) }),
	}
	cmd.Flags().StringSliceVar(&c.only, "only", nil,
		"play only this transcript; may be repeated, and * stands for any text")
	cmd.Flags().BoolVar(&c.list, "list", false, "list the transcripts, and play none")
	cli.DurationVar(cmd.Flags(), &c.patience, "patience", time.Minute, "how long the program may take over one answer")
	return cmd
}

func runConform(cmd *cobra.Command, conn *connection, c conforming, program []string) error {
	if c.patience <= 0 {
		return cli.UsageError(fmt.Sprintf("--patience %s: must be more than 0", c.patience))
	}
	transcripts, err := c.chosen()
	if err != nil {
		return err
	}
	if c.list {
		return listTranscripts(conn, cmd.OutOrStdout(), transcripts)
	}
	if _, err := exec.LookPath(program[0]); err != nil {
		return err
	}
	server := conn.server(cmd)
	options, err := server.Options(nil)
	if err != nil {
		return err
	}
	kit, err := conform.New(conform.Config{
		Options: options, Prefix: server.Prefix, Command: program, Environ: os.Environ(), Patience: c.patience,
	})
	if err != nil {
		return cli.UsageError(err.Error())
	}
	defer kit.Close()
	report := conformReport{Transcripts: []conform.Result{}}
	err = kit.Play(cmd.Context(), transcripts, func(r conform.Result) {
		report.add(r)
		if conn.format.Format != cli.JSON {
			printResult(cmd.OutOrStdout(), r)
		}
	})
	if err != nil {
		return fmt.Errorf("conform: %w", err)
	}
	if err := conn.print(cmd, fmt.Sprintf("%d passed, %d failed", report.Passed, report.Failed), report); err != nil {
		return err
	}
	if report.Failed > 0 {
		return fmt.Errorf("conform: %d of %d transcripts failed", report.Failed, len(transcripts))
	}
	return nil
}

// chosen returns the transcripts to play, in their order.
func (c *conforming) chosen() ([]conform.Transcript, error) {
	all, err := conform.Transcripts()
	if err != nil || len(c.only) == 0 {
		return all, err
	}
	taken := map[string]bool{}
	for _, pattern := range c.only {
		found := false
		for _, t := range all {
			if ok, err := path.Match(pattern, t.Name); err == nil && ok {
				taken[t.Name], found = true, true
			}
		}
		if !found {
			return nil, cli.UsageError(fmt.Sprintf("--only %s: there is no such transcript; --list shows them", pattern))
		}
	}
	var some []conform.Transcript
	for _, t := range all {
		if taken[t.Name] {
			some = append(some, t)
		}
	}
	return some, nil
}

// conformReport is the output of conform as JSON.
type conformReport struct {
	Passed      int              `json:"passed"`
	Failed      int              `json:"failed"`
	Transcripts []conform.Result `json:"transcripts"`
}

func (r *conformReport) add(result conform.Result) {
	if len(result.Failures) == 0 {
		r.Passed++
	} else {
		r.Failed++
	}
	r.Transcripts = append(r.Transcripts, result)
}

// printResult prints a line for a transcript, and its failures below.
func printResult(w io.Writer, r conform.Result) {
	verdict := "ok"
	if len(r.Failures) > 0 {
		verdict = "FAILED"
	}
	_, _ = fmt.Fprintf(w, "%-6s  %-28s  %s\n", verdict, r.Name, r.About)
	for _, f := range r.Failures {
		_, _ = fmt.Fprintf(w, "        %s\n", cli.OneLine(f))
	}
}

func listTranscripts(conn *connection, out io.Writer, all []conform.Transcript) error {
	type listed struct {
		Name  string `json:"name"`
		About string `json:"about"`
	}
	names := make([]listed, len(all))
	for i, t := range all {
		names[i] = listed{t.Name, t.About}
	}
	if conn.format.Format == cli.JSON {
		return cli.PrintJSON(out, names, "")
	}
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	for _, n := range names {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", n.Name, n.About) // Flush returns the error
	}
	return w.Flush()
}
