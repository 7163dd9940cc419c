package topicconfig

import (
	"fmt"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/task"
)

// FileError is the error of changes that need Consul when topics come from the
// configuration file. Its value is the file's path, "" if there is none.
type FileError string

func (e FileError) Error() string {
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

// PauseInFile returns an error that tells how to pause or resume a topic in the
// configuration file at path. It returns nil if the file already has that state and no end
// is asked for. load reads the file, and verb is pause or resume.
func PauseInFile(path string, load func() (*config.Config, error), topic, verb string, p Pause) error {
	if path == "" {
		return FileError("")
	}
	cfg, err := load()
	if err != nil {
		return fmt.Errorf("%w; fix that first, scanners would not read the file: %w", FileError(path), err)
	}
	t, there := cfg.Topics[topic]
	switch {
	case !there:
		return fmt.Errorf("no topic %s in %s, where topics are set, as consul.addr is empty: %w", topic, path,
			task.ErrNotFound)
	case t.Paused == p.Paused && p.Until == nil:
		return nil
	}
	write := fmt.Sprintf("paused: %t", p.Paused)
	if p.Until != nil {
		write += ", and the time as in paused_until: 2026-12-01T10:00:00Z,"
	}
	return fmt.Errorf("topic %s is set in the configuration file, as consul.addr is empty, and `scanner topic %s` "+
		"writes to consul only: write %s under topics.%s in %s%s", topic, verb, write, topic, path, rereading)
}
