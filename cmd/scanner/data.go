package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/shard"
)

func dataCommand(s *settings) *cobra.Command {
	return cli.Group("data", "Tells scanners which data in Redis is the fleet's", dataAccept(s))
}

func dataAccept(s *settings) *cobra.Command {
	confirm := cli.Confirmation{Deed: cli.Writes()}
	cmd := &cobra.Command{
		Use:   "accept --config config.yaml [--yes]",
		Short: "Gives up data that Redis lost; scanners then expect the data that is there",
		Long: `Gives up data that Redis lost: it ends the problem data_lost. Scanners then expect the data
that is there. Run it after you have scheduled again what was lost. If you restore the
data instead, the problem ends by itself.

At least one scanner must run, because only scanners know which data is expected. They
take the new identity over within 10 seconds, and write it to Consul. The verb asks on a
terminal; elsewhere it needs --yes. If nothing is lost, it does nothing and ends with 0.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			return s.withStore(func(store *shard.Store) error { return acceptData(cmd, s, store, confirm) })
		}),
	}
	confirm.Register(cmd)
	registerAs(cmd)
	return cmd
}

// acceptData gives up the data that scanners expect and Redis doesn't have.
func acceptData(cmd *cobra.Command, s *settings, store *shard.Store, confirm cli.Confirmation) error {
	loss, err := admin.ReadDataLoss(cmd.Context(), store)
	if err != nil {
		return err
	}
	if len(loss.Expected) == 0 {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "redis has the data that the scanners expect: nothing to accept")
		return err
	}
	lost := strings.Join(loss.Expected, ", ")
	there := "the data that is there"
	if loss.Found.ID != "" {
		there += ", " + loss.Found.ID + ","
	}
	if err := confirm.Ask(cmd, "write to Redis that "+there+" replaces the lost data "+lost); err != nil {
		return err
	}
	var accepted string
	_, err = s.audited(cmd, store, bulk.Entry{Filter: "the lost data " + lost}, func() (n bulk.Counts, err error) {
		accepted, err = loss.Accept(cmd.Context(), store)
		return n, err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "accepted: the data %s replaces %s; scanners take it over within 10s\n",
		accepted, lost)
	return err
}
