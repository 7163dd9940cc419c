package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/topicdocs"
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
	err := withConsul(s, func(_ context.Context, c topicdocs.Documents) error {
		assignments, err := v.assignments(cmd, s, topic)
		if err != nil {
			return err
		}
		doc, err := set(cmd, s, c, edit{topic: topic, assignments: assignments, inForce: s.inForce})
		if err != nil {
			return err
		}
		return v.told.await(cmd, s, doc)
	})(cmd)
	var inFile fileTopicsError
	if errors.As(err, &inFile) {
		return pauseInFile(cmd, s, topic, v.pausing, v.until != "")
	}
	return err
}

// assignments returns the settings that pause or resume a topic.
func (v *pauseVerb) assignments(cmd *cobra.Command, s *settings, topic string) ([]string, error) {
	until, reason := "", ""
	if v.pausing {
		var err error
		if until, reason, err = v.ask(cmd, s, topic); err != nil {
			return nil, err
		}
	}
	return []string{fmt.Sprintf("paused=%t", v.pausing), "paused_until=" + until, "paused_reason=" + reason}, nil
}

// ask returns the end and the reason of the pause, "" for what isn't given. It fails if a
// live scanner doesn't know --until: such a scanner would refuse the document and go on
// delivering. A reason that not all scanners know is left out.
func (v *pauseVerb) ask(cmd *cobra.Command, s *settings, topic string) (until, reason string, err error) {
	reason = cli.OneLine(flagOf(cmd, reasonFlag))
	if v.until == "" && reason == "" {
		return "", "", nil
	}
	now, old, err := s.older(cmd.Context(), config.FormatPausedUntil)
	switch {
	case v.until != "" && err != nil:
		return "", "", fmt.Errorf("it isn't known whether all scanners support --until, nothing was written; without "+
			"--until the topic can be paused: %w", err)
	case v.until != "" && len(old) > 0:
		return "", "", fmt.Errorf("topic %s: scanners of an older version, which would refuse a pause with --until and go "+
			"on delivering: %s; "+
			"nothing was written: upgrade them first, or pause without --until", topic, strings.Join(old, ", "))
	case err != nil || len(old) > 0:
		_, err = fmt.Fprintf(cmd.ErrOrStderr(),
			"topic %s: it isn't known whether all scanners support --reason: it is only in the history\n", topic)
		return "", "", err
	case v.until == "":
		return "", reason, nil
	}
	end, err := cli.ParseMoment("--until", v.until, now)
	if err == nil && !end.After(now) {
		err = cli.UsageError(fmt.Sprintf("--until %s: is %s, which is not in the future", v.until, cli.Relative(end, now)))
	}
	return end.UTC().Format(duetime.Format), reason, err
}

// older is operate.Older for the configured Redis.
func (s *settings) older(ctx context.Context, format int) (now time.Time, names []string, err error) {
	rdb, store, err := s.open()
	if err != nil {
		return now, nil, err
	}
	defer rdb.Close()
	return operate.Older(ctx, store, format)
}
