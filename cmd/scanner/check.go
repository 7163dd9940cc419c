package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
)

func checkCommand(s *settings) *cobra.Command {
	var connect bool
	cmd := &cobra.Command{
		Use:   "check --config config.yaml [--connect]",
		Short: "Validates the configuration, and the topics' documents in Consul",
		Long: `Validates the configuration file together with the environment, and the topics'
documents if Consul is configured. Prints every mistake with its key and line; the
exit code is 1 if there is any. If check passes, run starts.

Consul is the only server it contacts, unless --connect is given. Then Redis and
RabbitMQ must also accept the configured user, password and TLS.
"scanner doctor" checks everything else.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return runCheck(cmd, s, connect)
		}),
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "also check that every server answers")
	return cmd
}

func runCheck(cmd *cobra.Command, s *settings, connect bool) error {
	cfg, err := s.load()
	if err != nil {
		return printErrors(cmd, err)
	}
	_, done, err := newMember(cmd.Context(), s, cfg, io.Discard, nil)
	if err != nil {
		return err
	}
	done()
	if connect {
		if err := checkConnections(cmd, s, cfg); err != nil {
			return err
		}
	}
	if cfg.Consul.Addr != "" {
		return checkConsul(cmd, cfg)
	}
	if len(cfg.Topics) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(),
			"ok, but there are no topics, and nothing would be delivered: add one under topics in %s, or set consul.addr\n",
			s.path)
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %d topics\n", len(cfg.Topics))
	return err
}

// checkConnections prints which servers answer.
func checkConnections(cmd *cobra.Command, s *settings, cfg *config.Config) error {
	target, done, err := newTarget(s, cfg)
	if err != nil {
		return err
	}
	defer done()
	findings := doctor.Connect(cmd.Context(), target)
	if err := printFindings(cmd.OutOrStdout(), findings, cli.Table); err != nil {
		return err
	}
	if n := doctor.Failed(findings); n > 0 {
		return fmt.Errorf("the configuration is good; %d of %d servers can't be used with it", n, len(findings))
	}
	return nil
}

// checkConsul checks every document in Consul.
func checkConsul(cmd *cobra.Command, cfg *config.Config) error {
	client, err := openDocuments(cfg)
	if err != nil {
		return err
	}
	docs, err := client.List(cmd.Context())
	if err != nil {
		return fmt.Errorf("the file is good; its topics in consul can't be read: %w", err)
	}
	bad, topics := 0, make(map[string]config.Topic, len(docs))
	for _, d := range docs {
		topics[d.Name] = d.Topic
		if d.Err != nil {
			bad++
			_ = printErrors(cmd, d.Err)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d topics' documents in consul have mistakes", bad, len(docs))
	}
	if conflicts := config.Conflicts(topics); len(conflicts) > 0 {
		var all config.Errors
		for _, c := range conflicts {
			all = append(all, config.FieldError{File: c.Topic, Key: c.Key, Problem: c.Problem})
		}
		_ = printErrors(cmd, all)
		return errors.New("the topics' documents in consul don't fit together")
	}
	if len(docs) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(),
			"ok, but there are no topics in consul under %s/topics/, and nothing would be delivered: "+
				"`scanner topic create orders declare.queue=orders.due declare.dead_letter=orders.dead` makes one\n",
			cfg.Consul.Prefix)
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %d topics in consul\n", len(docs))
	return err
}

// printErrors prints each of the config.Errors in err on its own line and returns an
// error with their number. It returns any other err unchanged.
func printErrors(cmd *cobra.Command, err error) error {
	var all config.Errors
	if !errors.As(err, &all) {
		return err
	}
	for _, e := range all {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), e); err != nil {
			return err
		}
	}
	if len(all) == 1 {
		return fmt.Errorf("1 mistake in the configuration")
	}
	return fmt.Errorf("%d mistakes in the configuration", len(all))
}
