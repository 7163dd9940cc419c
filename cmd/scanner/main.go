// Command scanner runs one member of the fleet that forwards due tasks from Redis to
// RabbitMQ. It is also the operator's tool: it shows the fleet and configures its topics.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no such topic or task, 4 status
// --exit-code and not healthy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // for recurring tasks, on a system without zones

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

func main() {
	logging.Disable() // every error reaches the user through this command's own log
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal exits at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	code := cli.Report(stderr, cmd, err, advice)
	if errors.Is(err, task.ErrUnknownTopic) {
		code = cli.NotFound
	}
	return code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "scanner",
		Short: "Forwards due tasks from Redis to RabbitMQ; shows the fleet and configures its topics",
		Long: `Forwards due tasks from Redis to RabbitMQ; shows the fleet and configures its topics.

Every verb reads the file of --config and the environment (DUEFLEET_REDIS_ADDRS,
DUEFLEET_RABBITMQ_URLS, DUEFLEET_CONSUL_ADDR, ...), which wins over the file.

Exit codes:

- 0: done
- 1: failed
- 2: wrong usage, or a deletion without confirmation
- 3: no such topic or task
- 4: status --exit-code, and the fleet isn't healthy`,
		Args:          cli.NoArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       cli.ReadBuild("scanner").Version,
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError("name a command: run, check, doctor, status, console, topic, tasks, parked, intake, data " +
				"or healthcheck")
		},
	}
	var s settings
	root.PersistentFlags().StringVar(&s.path, "config", "", "the configuration file")
	root.AddCommand(runCommand(&s), checkCommand(&s), doctorCommand(&s), statusCommand(&s), consoleCommand(&s),
		topicCommand(&s), tasksCommand(&s), parkedCommand(&s), intakeCommand(&s), dataCommand(&s), auditCommand(&s),
		healthcheckCommand(&s), versionCommand())
	cli.Complete(root, s.completeTopics)
	return root
}

func versionCommand() *cobra.Command {
	format := cli.NewFormatFlag(cli.Text)
	cmd := cli.VersionCommand("scanner", func(cmd *cobra.Command, text string, value any) (err error) {
		if format.Format == cli.JSON {
			return cli.PrintJSON(cmd.OutOrStdout(), value, "  ")
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
		return err
	})
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

// completionPatience limits how long a shell waits for the topics' names.
const completionPatience = time.Second

// completeTopics offers the topics that Redis knows, or none if Redis can't be asked.
func (s *settings) completeTopics(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	var names []string
	_ = s.withStore(func(store *shard.Store) (err error) { // without names the shell offers none
		names, err = store.Registry().Topics(ctx)
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeAssignments offers topics for the first argument, then settings that aren't
// given yet.
func (s *settings) completeAssignments(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	if len(args) == 0 {
		return s.completeTopics(cmd, args, begun)
	}
	all := topicconfig.Assignments(begun, args[1:])
	if strings.Contains(begun, "=") {
		return all, cobra.ShellCompDirectiveNoFileComp
	}
	return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// advice returns what to do about an error, "" if its text already says so.
func advice(err error) string {
	var ofConsul *consul.Error
	var ofScanner *telemetry.NotReadyError
	if errors.As(err, &ofConsul) || errors.As(err, &ofScanner) || errors.Is(err, cli.ErrUnhealthy) {
		return ""
	}
	return connect.Advice("redis", err.Error())
}
