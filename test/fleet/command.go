package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// Command is one call of scanner or producer.
type Command struct {
	// Path of the program, and its arguments.
	Path string
	Args []string
	// Env is added to the environment. Variables of this process that configure duefleet
	// are not passed on.
	Env []string
	// Stdin is the program's input. Defaults to nothing.
	Stdin io.Reader
	// Told receives stderr while the program runs; Output contains it, too. Defaults to
	// none.
	Told io.Writer
	// Terminal makes stderr a terminal of 80 columns (Linux only). Stdin, if given, is
	// then typed on that terminal and may have a few lines at most.
	Terminal bool
}

// Output holds the output of a program, and its exit code.
type Output struct {
	Stdout, Stderr string
	// Code is the exit code, or -1 if a signal ended the program.
	Code int
}

// Run runs the program until it exits; ctx kills it. An exit code other than 0 is not an
// error.
func (c Command) Run(ctx context.Context) (Output, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...) //nolint:gosec // the caller chooses the program
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, &stdout, &stderr
	if c.Told != nil {
		cmd.Stderr = io.MultiWriter(&stderr, c.Told)
	}
	cmd.Env = append(environ(), c.Env...)
	run := cmd.Run
	if c.Terminal {
		run = func() error { return runOnTerminal(cmd) }
	}
	err := run()
	out := Output{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return out, fmt.Errorf("run %s: %w", c.Path, err)
	}
	out.Code = cmd.ProcessState.ExitCode()
	return out, ctx.Err()
}

// runOnTerminal runs a command with a terminal as stderr. If the command has stdin, the
// terminal is also its stdin, and the input is typed there. Output on the terminal is
// copied to the command's original stderr.
func runOnTerminal(cmd *exec.Cmd) error {
	ours, programs, err := openTerminal(80, 25)
	if err != nil {
		return err
	}
	defer ours.Close()
	told := cmd.Stderr
	cmd.Stderr = programs
	if typed := cmd.Stdin; typed != nil {
		cmd.Stdin = programs
		if _, err := io.Copy(ours, typed); err != nil { // the terminal buffers it until the program reads it
			return errors.Join(err, programs.Close())
		}
	}
	if err := errors.Join(cmd.Start(), programs.Close()); err != nil {
		return err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(told, ours) // ends with an error when the program's end is closed
	}()
	err = cmd.Wait()
	<-copied
	return err
}

// Status is the part of `scanner status -o json` that tests use.
type Status struct {
	Topics []TopicStatus  `json:"topics"`
	Fleet  []MemberStatus `json:"fleet"`
}

// TopicStatus is the status of one topic.
type TopicStatus struct {
	Topic    string `json:"topic"`
	Shards   int    `json:"shards"`
	Epoch    int64  `json:"epoch"`
	Phase    string `json:"phase"`
	Pending  int64  `json:"pending"`
	Backlog  int64  `json:"backlog"`
	Leased   int64  `json:"leased"`
	Parked   int64  `json:"parked"`
	PerShard []struct {
		Shard   int   `json:"shard"`
		Pending int64 `json:"pending"`
	} `json:"per_shard"`
	Notes  []string `json:"notes"`
	Source string   `json:"source"`
	// Change is nil unless a change of M is in progress.
	Change *struct {
		Moved     int64     `json:"moved"`
		Misplaced int64     `json:"misplaced"`
		Rate      float64   `json:"moved_per_second"`
		End       time.Time `json:"estimated_end"`
	} `json:"change"`
}

// MemberStatus is the status of one scanner.
type MemberStatus struct {
	Instance string            `json:"instance"`
	Alive    bool              `json:"alive"`
	Admin    string            `json:"admin"`
	Applied  uint64            `json:"config_applied_index"`
	Errors   map[string]string `json:"config_errors"`
	Source   string            `json:"config_source"`
	Refused  string            `json:"refused"`
}

// ReadStatus runs scanner status. A topic unknown to the fleet is an error.
func ReadStatus(ctx context.Context, scanner, config string) (Status, error) {
	out, err := Command{Path: scanner, Args: []string{"status", "--config", config, "-o", "json"}}.Run(ctx)
	if err != nil {
		return Status{}, err
	}
	if out.Code != 0 {
		return Status{}, fmt.Errorf("scanner status: code %d: %s", out.Code, out.Stderr)
	}
	var s Status
	if err := json.Unmarshal([]byte(out.Stdout), &s); err != nil {
		return s, fmt.Errorf("scanner status: %w: %s", err, out.Stdout)
	}
	return s, nil
}

// Topic returns the topic with that name, or the zero value if there is none.
func (s Status) Topic(name string) TopicStatus {
	for _, t := range s.Topics {
		if t.Topic == name {
			return t
		}
	}
	return TopicStatus{}
}

// Alive returns the number of live members.
func (s Status) Alive() int {
	n := 0
	for _, m := range s.Fleet {
		if m.Alive {
			n++
		}
	}
	return n
}
