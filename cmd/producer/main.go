// Command producer schedules delayed tasks from the command line: one at a time,
// as a stream of lines, or for a program at the other end of a pipe. It is a client
// of the public producer library, and of nothing else; conform alone looks into what
// producers store. Exit codes: 0 done, 1 failed,
// 2 wrong usage, 3 no such task, 4 exists already.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
)

func main() {
	logging.Disable() // every error reaches the user as this command's own line
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal exits at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return cli.Report(stderr, cmd, err, advice)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "producer",
		Short: "Schedules delayed tasks in Redis, for scanners to forward to RabbitMQ",
		Long: `Schedules delayed tasks in Redis, for scanners to forward to RabbitMQ.

The connection comes from the redis section of --config, the environment
(DUEFLEET_REDIS_ADDRS, DUEFLEET_REDIS_PASSWORD, ...) and the flags below; a flag
wins over the environment, and the environment over the file. A password is
never a flag: other users of the machine could read it.

Exit codes: 0 done; 1 failed, or a value broke a rule; 2 wrong usage;
3 no such task (cancel, reschedule, get); 4 exists already (schedule --if-absent).`,
		Args:          cli.NoArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.UsageError("name a command: schedule, load, pipe, cancel, reschedule, get or conform")
		},
	}
	var conn connection
	conn.register(root.PersistentFlags())
	root.PersistentPreRunE = cli.Verb(conn.check)
	root.AddCommand(
		scheduleCommand(&conn),
		loadCommand(&conn),
		pipeCommand(&conn),
		cancelCommand(&conn),
		rescheduleCommand(&conn),
		getCommand(&conn),
		conformCommand(&conn),
	)
	return root
}
