package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// connection is what every verb takes: where Redis is, and how to print.
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
	f.StringSliceVar(&c.addrs, "redis-addr", nil, "host:port of Redis; may be repeated, for a cluster (default 127.0.0.1:6379)")
	f.StringVar(&c.prefix, "redis-prefix", "", "of every key (default duefleet)")
	f.IntVar(&c.maxPayload, "max-payload", 0, fmt.Sprintf("largest payload in bytes, 1 to %d (default %d, or max_payload of the configuration)", task.MaxMaxPayload, task.DefaultMaxPayload))
	f.VarP(&c.format, "output", "o", "how to print the result")
}

// check refuses flags that no verb could work with, and reads the configuration.
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

// server is where Redis is, by the flags and the configuration.
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

// open makes the client. It talks to Redis only when it is asked to do something.
func (c *connection) open(cmd *cobra.Command) (*producer.Client, error) {
	server := c.server(cmd)
	options, err := server.Options()
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
