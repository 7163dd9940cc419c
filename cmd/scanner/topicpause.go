package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
)

// pauseLong is the help that pause and resume share.
const pauseLong = `

Then it waits some seconds and reports whether the live scanners apply the change. It
ends with code 1 as "scanner topic set" does, except that a topic that can't be delivered
can still be paused. --no-wait skips this report.

If the document has mistakes, pause and resume start from the last good one, which
scanners still use. The result replaces the document.

Topics of a configuration file are paused in that file: it prints what to write there.

With --in-redis the document stays as it is, and neither Consul nor the file is read: the
pause is in Redis. Scanners apply it within seconds, also while Consul is away. It is for
emergencies. A topic is delivered when it is paused in neither place.`

// pauseVerb is pause or resume.
type pauseVerb struct {
	pausing bool
	inRedis bool
	until   string
	told    verdict
}

func (v *pauseVerb) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&v.inRedis, "in-redis", false,
		"in Redis, while Consul is away or at once; the document stays as it is")
	registerAuthor(cmd)
	v.told.register(cmd)
}

func topicPause(s *settings) *cobra.Command {
	v := &pauseVerb{pausing: true, told: verdict{pausing: true}}
	cmd := &cobra.Command{
		Use:   "pause TOPIC [--until T] [--reason TEXT] [--in-redis] [--no-wait]",
		Short: "Stops delivering a topic; its tasks wait",
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
	v.register(cmd)
	return cmd
}

func topicResume(s *settings) *cobra.Command {
	v := &pauseVerb{}
	cmd := &cobra.Command{
		Use: "resume TOPIC [--in-redis] [--no-wait]", Short: "Delivers a paused topic again",
		Long: "Delivers a paused topic again, and removes the end and the reason of its pause." + pauseLong,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error { return v.run(cmd, s, args[0]) }),
	}
	v.register(cmd)
	return cmd
}

func (v *pauseVerb) run(cmd *cobra.Command, s *settings, topic string) error {
	if _, err := cli.ParseMoment("--until", v.until, time.Now()); err != nil {
		return err
	}
	pause := v.pause(cmd)
	if v.inRedis {
		return s.withStore(func(store *shard.Store) error { return v.hold(cmd, s, store.Topic(topic), pause) })
	}
	err := withTopics(s, func(w topicWork) error {
		assignments, warning, err := pause.Assignments(cmd.Context(), w.fleet, topic)
		if err = errors.Join(err, printWarning(cmd, topic, warning)); err != nil {
			return err
		}
		doc, err := w.set(cmd, topic, topicconfig.Edit{Assignments: assignments, Fleet: w.fleet}, false)
		if err != nil {
			return err
		}
		if err := v.tellHold(cmd, w.fleet.Store, topic); err != nil {
			return err
		}
		return v.told.await(cmd, w.fleet, doc)
	})
	var inFile topicconfig.FileError
	if !errors.As(err, &inFile) {
		return err
	}
	if err = topicconfig.PauseInFile(s.path, s.load, topic, cmd.Name(), pause); err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s: nothing to change, paused is %t in %s\n", topic, v.pausing, s.path)
	}
	return err
}

// tellHold says that a resumed topic is still paused in Redis.
func (v *pauseVerb) tellHold(cmd *cobra.Command, store *shard.Store, topic string) error {
	if v.pausing {
		return nil
	}
	holds, err := store.Registry().Holds(cmd.Context())
	if _, held := holds[topic]; err == nil && held {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: still paused in Redis: scanner topic resume %s --in-redis\n",
			topic, topic)
		return err
	}
	return nil // Redis is away, or the user may not know; the document is written
}

// hold pauses or resumes a topic in Redis alone.
func (v *pauseVerb) hold(cmd *cobra.Command, s *settings, t *shard.Topic, pause topicconfig.Pause) error {
	ctx := cmd.Context()
	if _, err := t.Placement(ctx); err != nil {
		return err
	}
	said := "paused in Redis"
	if v.pausing {
		now, err := t.Now(ctx)
		if err != nil {
			return err
		}
		h := registry.Hold{Reason: pause.Reason}
		if pause.Until != nil {
			if h.Until, err = pause.Until(time.UnixMilli(now)); err != nil {
				return err
			}
			said += " until " + h.Until.UTC().Format(time.RFC3339)
		}
		entry := bulk.Entry{Topic: t.Name(), Command: "--in-redis", Filter: h.Reason}
		if _, err := s.audited(cmd, t.Store(), entry, func() (bulk.Counts, error) {
			return bulk.Counts{}, t.Store().Registry().Hold(ctx, t.Name(), h)
		}); err != nil {
			return err
		}
	} else {
		was := false
		entry := bulk.Entry{Topic: t.Name(), Command: "--in-redis"}
		if _, err := s.audited(cmd, t.Store(), entry, func() (n bulk.Counts, err error) {
			was, err = t.Store().Registry().EndHold(ctx, t.Name())
			return n, err
		}); err != nil {
			return err
		}
		if said = "not paused in Redis any more"; !was {
			said = "wasn't paused in Redis"
		}
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s: %s\n", t.Name(), said); err != nil || v.told.skip {
		return err
	}
	return v.awaitPause(cmd, t)
}

// awaitPause waits until the live scanners say that the topic is paused, or that it isn't.
func (v *pauseVerb) awaitPause(cmd *cobra.Command, t *shard.Topic) error {
	others, live, err := admin.AwaitPause(cmd.Context(), t.Store(), t.Name(), v.pausing)
	switch {
	case err != nil:
		return err
	case len(others) == 0:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "topic %s: applied by all live scanners (%d)\n", t.Name(), live)
		return err
	case v.pausing:
		return fmt.Errorf("topic %s: not paused by %s: they are of an older version, or may not read duefleet:holds",
			t.Name(), strings.Join(others, ", "))
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(),
		"topic %s: still paused by %s: by its document, or they haven't read Redis since\n", t.Name(),
		strings.Join(others, ", "))
	return err
}

// pause returns the pause that the flags describe, or its end.
func (v *pauseVerb) pause(cmd *cobra.Command) topicconfig.Pause {
	if !v.pausing {
		return topicconfig.Pause{}
	}
	p := topicconfig.Pause{Paused: true, Reason: cli.OneLine(flagOf(cmd, reasonFlag))}
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
