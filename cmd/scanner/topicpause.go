package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/topicdocs"
	"github.com/duefleet/duefleet/task"
)

// pauseLong is the help that pause and resume share.
const pauseLong = `

Then it waits some seconds and reports whether the live scanners apply the change. It
ends with code 1 as "scanner topic set" does, except that a topic that can't be delivered
can still be paused. --no-wait skips this report.

If the document has mistakes, pause and resume start from the last good one, which
scanners still use. The result replaces the document.

Topics of a configuration file are paused in that file: it prints what to write there.`

// pauseVerb is pause or resume.
type pauseVerb struct {
	pausing bool
	until   string
	told    verdict
}

func topicPause(s *settings) *cobra.Command {
	v := &pauseVerb{pausing: true, told: verdict{pausing: true}}
	cmd := &cobra.Command{
		Use: "pause TOPIC [--until T] [--reason TEXT] [--no-wait]", Short: "Stops delivering a topic; its tasks wait",
		Long: `Stops delivering a topic; its tasks wait. With --until the pause ends by itself at that
time, by Redis's clock, even while Consul can't be reached. "scanner status" shows the
time and the --reason. Pausing a paused topic replaces both.

Scanners of a version without --until would refuse such a document and go on delivering.
If one of them is in the fleet, --until fails and writes nothing. A --reason without
--until is then kept only in the history.` + pauseLong,
		Example: `  scanner topic pause orders --until 2h --reason "the shop's database moves"`,
		Args:    oneTopic(cli.NoArguments),
		RunE:    cli.Verb(func(cmd *cobra.Command, args []string) error { return v.run(cmd, s, args[0]) }),
	}
	cmd.Flags().StringVar(&v.until, "until", "",
		"end of the pause: RFC 3339, Unix milliseconds, or from now as in 30m, 2d (default: until it is resumed)")
	registerAuthor(cmd)
	v.told.register(cmd)
	return cmd
}

func topicResume(s *settings) *cobra.Command {
	v := &pauseVerb{}
	cmd := &cobra.Command{
		Use: "resume TOPIC [--no-wait]", Short: "Delivers a paused topic again",
		Long: "Delivers a paused topic again, and removes the end and the reason of its pause." + pauseLong,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error { return v.run(cmd, s, args[0]) }),
	}
	registerAuthor(cmd)
	v.told.register(cmd)
	return cmd
}

func (v *pauseVerb) run(cmd *cobra.Command, s *settings, topic string) error {
	if _, err := cli.ParseMoment("--until", v.until, time.Now()); err != nil {
		return err
	}
	err := withConsul(s, func(c topicdocs.Documents) error {
		assignments, warning, err := v.pause(cmd).Assignments(cmd.Context(), s, topic)
		if err = errors.Join(err, printWarning(cmd, topic, warning)); err != nil {
			return err
		}
		doc, err := set(cmd, s, c, topic, topicdocs.Edit{Assignments: assignments, Fleet: s}, false)
		if err != nil {
			return err
		}
		return v.told.await(cmd, s, doc)
	})
	var inFile fileTopicsError
	if errors.As(err, &inFile) {
		return pauseInFile(cmd, s, topic, v.pausing, v.until != "")
	}
	return err
}

// pause returns the pause that the flags describe, or its end.
func (v *pauseVerb) pause(cmd *cobra.Command) topicdocs.Pause {
	if !v.pausing {
		return topicdocs.Pause{}
	}
	p := topicdocs.Pause{Paused: true, Reason: cli.OneLine(flagOf(cmd, reasonFlag))}
	if v.until != "" {
		p.Until = func(now time.Time) (time.Time, error) {
			end, err := cli.ParseMoment("--until", v.until, now)
			if err == nil && !end.After(now) {
				err = cli.UsageError(fmt.Sprintf("--until %s: is %s, which is not in the future", v.until,
					cli.Relative(end, now)))
			}
			return end, err
		}
	}
	return p
}

// fileTopicsError is the error of verbs that need Consul when topics come from the
// configuration file. Its value is the file's path, "" if --config wasn't given.
type fileTopicsError string

func (e fileTopicsError) Error() string {
	if e == "" {
		return "consul.addr is empty, and `scanner topic` reads and writes topics in consul only: name a file with " +
			"--config, or Consul with DUEFLEET_CONSUL_ADDR"
	}
	return fmt.Sprintf("topics are set in the configuration file: consul.addr is empty, and `scanner topic` reads and "+
		"writes topics in consul only; edit topics in %s%s",
		string(e), rereading)
}

// rereading tells when an edit of the file takes effect.
const rereading = ", the file of each scanner: one that runs reads it within a second, at once on SIGHUP (systemctl " +
	"reload)"

// pauseInFile returns an error that tells how to pause or resume a topic in the
// configuration file, which this command doesn't write. It returns nil if the file
// already has that state and no end is asked for.
func pauseInFile(cmd *cobra.Command, s *settings, topic string, paused, ends bool) error {
	if s.path == "" {
		return fileTopicsError("")
	}
	cfg, err := s.load()
	if err != nil {
		return fmt.Errorf("%w; fix that first, scanners would not read the file: %w", fileTopicsError(s.path), err)
	}
	t, there := cfg.Topics[topic]
	switch {
	case !there:
		return fmt.Errorf("no topic %s in %s, where topics are set, as consul.addr is empty: %w", topic, s.path,
			task.ErrNotFound)
	case t.Paused == paused && !ends:
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s: nothing to change, paused is %t in %s\n", topic, paused, s.path)
		return err
	}
	write := fmt.Sprintf("paused: %t", paused)
	if ends {
		write += ", and the time as in paused_until: 2026-12-01T10:00:00Z,"
	}
	return fmt.Errorf("topic %s is set in the configuration file, as consul.addr is empty, and `scanner topic %s` "+
		"writes to consul only: write %s under topics.%s in %s%s",
		topic, cmd.Name(), write, topic, s.path, rereading)
}
