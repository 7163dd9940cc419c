package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

func doctorCommand(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Table)
	cmd := &cobra.Command{
		Use:   "doctor --config config.yaml",
		Short: "Checks everything a fleet depends on and prints how to fix what is wrong",
		Long: `Checks everything a fleet depends on:

- connections, TLS and permissions
- Redis's eviction policy, persistence and clock
- the exchange, queue and binding of each topic
- whether scanners apply the current documents, and whether they deliver

It asks the fleet and the servers at the same time, for at most ten seconds. Ctrl-C ends
it with what it knows by then.

It prints each problem once, with the command that fixes it. If more than three topics
have the same one, it counts the others; -o json has all. The exit code is 1 if there is a problem.
A paused topic is none; everything else that makes "scanner status --exit-code" fail is.

"not checked" means that a server gave no answer within five seconds, or that the user
has no right to ask. That says nothing about the fleet, and alone it leaves the exit
code 0. But if the fleet itself couldn't be asked, or doctor was interrupted, the exit
code is 1.

It changes no settings and no tasks. It writes nothing to Redis and Consul, and asks Redis
for nothing that its user may not do. To test whether RabbitMQ accepts messages it
publishes an empty message that reaches no queue.

It checks the rights of the identity in the configuration: of scanners, or of an operator.
docs/deploy.md describes both.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			findings := examine(cmd, s)
			if err := printFindings(cmd.OutOrStdout(), findings, format.Format); err != nil {
				return err
			}
			if n := doctor.Failed(findings); n > 0 {
				return fmt.Errorf("%d of %d checks found something wrong", n, len(findings))
			}
			if cmd.Context().Err() != nil {
				return errors.New("interrupted, so not everything is checked")
			}
			if doctor.FleetUnknown(findings) {
				return errors.New("couldn't ask the fleet, so nothing is known about it")
			}
			return nil
		}),
	}
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

// examine makes all checks that the configuration allows.
func examine(cmd *cobra.Command, s *settings) []doctor.Finding {
	cfg, err := s.connections()
	if err != nil {
		return doctor.Examine(cmd.Context(), doctor.Target{Path: s.path, Mistakes: err})
	}
	whole, broken := s.load()
	if broken == nil {
		cfg = whole
	}
	target, done, err := newTarget(s, cfg)
	if err != nil {
		return doctor.Examine(cmd.Context(), doctor.Target{Path: s.path, Mistakes: errors.Join(broken, err)})
	}
	defer done()
	target.Mistakes = broken
	return doctor.Examine(cmd.Context(), target)
}

// newTarget opens the configured clients; done closes them.
func newTarget(s *settings, cfg *config.Config) (p doctor.Target, done func(), err error) {
	store, closing, err := openStore(cfg, 0, nil)
	if err != nil {
		return p, nil, err
	}
	p = doctor.Target{Settings: cfg, Path: s.path, Store: store}
	if cfg.Consul.Addr != "" {
		var documents topicconfig.Documents
		documents, err = openDocuments(cfg)
		p.Consul = documents.Consul
	}
	if err != nil {
		return p, nil, errors.Join(err, closing())
	}
	return p, func() { _ = closing() }, nil
}

func printFindings(out io.Writer, findings []doctor.Finding, format cli.Format) error {
	if format == cli.JSON {
		return cli.PrintJSON(out, findings, "  ")
	}
	findings = doctor.Grouped(findings)
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	for _, f := range findings {
		if f.State == doctor.NotChecked {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Check, cli.OneLine(f.What))
		if f.Fix != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", cli.OneLine(f.Fix))
		}
	}
	err := w.Flush()
	for _, f := range findings {
		if f.State == doctor.NotChecked {
			fmt.Fprintf(out, "not checked: %s: %s\n", f.Check, cli.OneLine(f.What))
		}
	}
	return err
}
