package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/task"
)

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
