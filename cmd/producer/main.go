// Command producer schedules delayed tasks: one at a time, as a stream of lines, or for a
// program at the other end of a pipe. It uses the public producer library only,
// except for the verb verify, which also consumes.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no such task, 4 exists already.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // the zones of recurring tasks, for systems without them

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/verify"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

func main() {
	logging.Disable() // every error reaches the user as this command's own line
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal exits at once
	cmd, err := rootCommand().ExecuteContextC(ctx)
	os.Exit(cli.Report(os.Stderr, cmd, err, advice))
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "producer",
		Short: "Schedules delayed tasks in Redis, for scanners to forward to RabbitMQ",
		Long: `Schedules delayed tasks in Redis, for scanners to forward to RabbitMQ.

The connection comes from the redis section of --config, the environment
(DUEFLEET_REDIS_ADDRS, DUEFLEET_REDIS_PASSWORD, ...) and the flags below. A flag
wins over the environment, and the environment over the file. A password is
never a flag: other users of the machine could read it.

Exit codes:

- 0: done
- 1: failed, or a value broke a rule
- 2: wrong usage
- 3: no such task (cancel --id, reschedule, get, schedule --if-present)
- 4: the task exists already (schedule --if-absent)`,
		Args:          cli.NoArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.UsageError("name a command: schedule, load, export, pipe, cancel, reschedule, get, serve, relay " +
				"or verify")
		},
	}
	var conn connection
	conn.register(root.PersistentFlags())
	root.PersistentPreRunE = cli.Verb(conn.check)
	root.AddCommand(
		scheduleCommand(&conn),
		loadCommand(&conn),
		exportCommand(&conn),
		pipeCommand(&conn),
		cancelCommand(&conn),
		rescheduleCommand(&conn),
		getCommand(&conn),
		serveCommand(&conn),
		relayCommand(),
		verifyCommand(&conn),
		cli.VersionCommand("producer", conn.print),
	)
	cli.Complete(root, conn.completeTopics)
	return root
}

// connection holds the flags of every verb: the address of Redis, and the output format.
type connection struct {
	config     string
	addrs      []string
	prefix     string
	maxPayload int
	format     cli.FormatFlag

	settings *config.Config // set by check
}

func (c *connection) register(f *pflag.FlagSet) {
	c.format = cli.NewFormatFlag(cli.Text)
	f.StringVar(&c.config, "config", "", "the configuration file; its redis section and max_payload are used")
	f.StringSliceVar(&c.addrs, "redis-addr", nil,
		"host:port of Redis; may be repeated, for a cluster (default 127.0.0.1:6379)")
	f.StringVar(&c.prefix, "redis-prefix", "", "prefix of every key (default duefleet)")
	f.IntVar(&c.maxPayload, "max-payload", 0,
		fmt.Sprintf("largest payload in bytes, 1 to %d (default %d, or max_payload of the configuration)", task.MaxMaxPayload,
			task.DefaultMaxPayload))
	f.VarP(&c.format, "output", "o", "how to print the result")
}

// check validates the flags of every verb and reads the configuration.
func (c *connection) check(cmd *cobra.Command, _ []string) (err error) {
	if cmd.Flags().Changed("max-payload") && (c.maxPayload < 1 || c.maxPayload > task.MaxMaxPayload) {
		return cli.UsageError(fmt.Sprintf("--max-payload %d: must be 1 to %d bytes", c.maxPayload, task.MaxMaxPayload))
	}
	if cmd.Flags().Changed("redis-addr") {
		if problem := config.CheckRedisAddrs(c.addrs); problem != "" {
			return cli.UsageError("--redis-addr: " + problem)
		}
	}
	c.settings, err = config.LoadConnections(c.config, os.Environ())
	if err == nil && c.maxPayload == 0 {
		c.maxPayload = c.settings.MaxPayload
	}
	return err
}

// server returns the settings of Redis; flags win over the configuration.
func (c *connection) server(cmd *cobra.Command) config.Redis {
	flags := cmd.Flags()
	server := c.settings.Redis
	if flags.Changed("redis-addr") {
		server.Addrs = c.addrs
	}
	if flags.Changed("redis-prefix") {
		server.Prefix = c.prefix
	}
	return server
}

// open makes the client, which connects to Redis only at its first call.
func (c *connection) open(cmd *cobra.Command) (*producer.Client, error) {
	server := c.server(cmd)
	options, err := connect.Redis(server, nil)
	if err != nil {
		return nil, err
	}
	return producer.New(producer.Config{
		Options:     options,
		Prefix:      server.Prefix,
		MaxPayload:  c.maxPayload,
		MinReplicas: server.MinReplicas,
	})
}

// completionPatience limits how long a shell waits for the topics' names.
const completionPatience = time.Second

// completeTopics offers the topics that Redis knows. It offers none if Redis can't be
// asked, or doesn't permit its user to list them.
func (c *connection) completeTopics(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if c.check(cmd, nil) != nil {
		return nil, none
	}
	server := c.server(cmd)
	server.Addrs = slices.Compact(slices.Sorted(slices.Values(server.Addrs))) // a shell's line is read twice
	options, err := connect.Redis(server, nil)
	if err != nil {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	key := server.Prefix + ":topics" // as internal/shard/shard.go has it
	names, err := members(ctx, options, key)
	if redis.HasErrorPrefix(err, "MOVED") { // the options name one node of a Redis Cluster
		options.IsClusterMode = true
		names, _ = members(ctx, options, key)
	}
	slices.Sort(names)
	return names, none
}

// members returns the members of a set in Redis.
func members(ctx context.Context, options *redis.UniversalOptions, key string) ([]string, error) {
	rdb := redis.NewUniversalClient(options)
	defer rdb.Close()
	return rdb.SMembers(ctx, key).Result()
}

// print writes a verb's result: the text for people, or value as one line of JSON.
func (c *connection) print(cmd *cobra.Command, text string, value any) error {
	if c.format.Format == cli.JSON {
		return cli.PrintJSON(cmd.OutOrStdout(), value, "")
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// advice returns what to do about an error, "" if its text already says so.
func advice(err error) string {
	var unreachable *net.OpError
	var unknownName *net.DNSError
	var advised verify.AdvisedError
	text := err.Error()
	switch {
	case errors.As(err, &advised), errors.Is(err, syscall.EADDRINUSE): // the server's own port
		return ""
	case errors.Is(err, task.ErrExists):
		return "; without --if-absent it is replaced"
	case errors.Is(err, context.Canceled):
		return "; interrupted"
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"):
		return "; check redis.username and redis.password in --config, or DUEFLEET_REDIS_USERNAME and DUEFLEET_REDIS_PASSWORD"
	case strings.Contains(text, "tls: "), strings.Contains(text, "NOPERM"), errors.Is(err, io.EOF),
		errors.Is(err, syscall.ECONNRESET):
		return connect.Advice("redis", text)
	case errors.As(err, &unreachable), errors.As(err, &unknownName), errors.Is(err, context.DeadlineExceeded):
		return "; check that Redis runs there, and --redis-addr, --config or DUEFLEET_REDIS_ADDRS"
	default:
		return ""
	}
}
