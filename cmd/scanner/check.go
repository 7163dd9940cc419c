package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/doctor"
)

func checkCommand(s *settings) *cobra.Command {
	var connect, all bool
	cmd := &cobra.Command{
		Use:   "check --config config.yaml [--connect] [--all]",
		Short: "Validates the configuration, and the topics' documents in Consul",
		Long: `Validates the configuration file together with the environment, and the topics'
documents if Consul is configured. Prints the mistakes with their keys and lines; the
exit code is 1 if there is any. If more than three mistakes are alike, it prints three
and counts the others; --all prints each. If check passes, run starts.

Consul is the only server it contacts, unless --connect is given. Then Redis and
RabbitMQ must also accept the configured user, password and TLS.
"scanner doctor" checks everything else.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return runCheck(cmd, s, connect, all)
		}),
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "also check that every server answers")
	cmd.Flags().BoolVar(&all, "all", false, "print every mistake, also of many that are alike")
	return cmd
}

func runCheck(cmd *cobra.Command, s *settings, connect, all bool) error {
	cfg, err := s.load()
	if err != nil {
		return printErrors(cmd, err, all)
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
		return checkConsul(cmd, cfg, all)
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

// checkConsul checks every document in Consul. It counts mistakes that are alike, unless all
// is set.
func checkConsul(cmd *cobra.Command, cfg *config.Config, all bool) error {
	client, err := openDocuments(cfg)
	if err != nil {
		return err
	}
	docs, err := client.List(cmd.Context())
	if err != nil {
		return fmt.Errorf("the file is good; its topics in consul can't be read: %w", err)
	}
	bad, topics := 0, make(map[string]config.Topic, len(docs))
	var mistakes config.Errors
	for _, d := range docs {
		topics[d.Name] = d.Topic
		if d.Err != nil {
			bad++
			var of config.Errors
			_ = errors.As(d.Err, &of) // it has no others
			mistakes = append(mistakes, of...)
		}
	}
	if bad > 0 {
		_ = printErrors(cmd, mistakes, all)
		return fmt.Errorf("%d of %d topics' documents in consul have mistakes", bad, len(docs))
	}
	if conflicts := config.Conflicts(topics); len(conflicts) > 0 {
		for _, c := range conflicts {
			mistakes = append(mistakes, config.FieldError{File: c.Topic, Key: c.Key, Problem: c.Problem})
		}
		_ = printErrors(cmd, mistakes, all)
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
// error with their number. Unless all is set, it counts mistakes that are alike. It returns
// any other err unchanged.
func printErrors(cmd *cobra.Command, err error, all bool) error {
	var mistakes config.Errors
	if !errors.As(err, &mistakes) {
		return err
	}
	like := func(e config.FieldError) string {
		if all {
			return ""
		}
		return e.Key[strings.LastIndex(e.Key, ".")+1:] + ": " + e.Problem // the topic may be in front
	}
	for e, more := range admin.Few(mistakes, like) {
		line := e.Error()
		if more != nil {
			line = fmt.Sprintf("%d more like these: %s; --all shows them", len(more), places(more))
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	if len(mistakes) == 1 {
		return fmt.Errorf("1 mistake in the configuration")
	}
	return fmt.Errorf("%d mistakes in the configuration", len(mistakes))
}

// places says where mistakes are, as in "orders:12, mails:3".
func places(mistakes config.Errors) string {
	all := make([]string, len(mistakes))
	for i, e := range mistakes {
		e.Key, e.Problem = "", ""
		all[i] = e.Error()
	}
	return admin.Names(all)
}
