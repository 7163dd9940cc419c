package conform

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// maxAnswer is the longest answer, in bytes: a payload in base64, and the text around it.
const maxAnswer = 32 << 20

// program is the producer under test, connected by pipes.
type program struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	lines    chan string // its answers; closed when the program has ended
	ended    error       // the program's exit error; valid once lines is closed
	stderr   *tail
	patience time.Duration
	line     int
}

// tail keeps the end of the text written to it.
type tail struct{ bytes.Buffer }

const tailSize = 2000

func (t *tail) Write(b []byte) (int, error) {
	n, err := t.Buffer.Write(b)
	if extra := t.Len() - tailSize; extra > 0 {
		t.Next(extra)
	}
	return n, err
}

// start starts the program. The program ends with ctx at the latest.
func start(ctx context.Context, command, environ []string, patience time.Duration) (*program, error) {
	p := &program{cmd: exec.CommandContext(ctx, command[0], command[1:]...), lines: make(chan string), stderr: &tail{},
		patience: patience}
	p.cmd.Env, p.cmd.Stderr = environ, p.stderr
	p.cmd.WaitDelay = time.Second // for processes that it started and left behind
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	go func() {
		defer close(p.lines)
		answers := bufio.NewScanner(out)
		answers.Buffer(nil, maxAnswer)
		for ctx.Err() == nil && answers.Scan() {
			select {
			case p.lines <- answers.Text():
			case <-ctx.Done():
			}
		}
		p.ended = p.cmd.Wait()
	}()
	return p, nil
}

// ask sends a line and waits for its answer.
func (p *program) ask(ctx context.Context, line string) (map[string]any, error) {
	p.line++
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return nil, errors.New("the program ended, or reads no more requests" + p.said())
	}
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	select {
	case text, ok := <-p.lines:
		if !ok {
			return nil, errors.New("the program ended, or writes no more answers" + p.said())
		}
		var answer map[string]any
		in := json.NewDecoder(strings.NewReader(text))
		in.UseNumber()
		if err := in.Decode(&answer); err != nil {
			return nil, fmt.Errorf("the program answered %.200q, which is no JSON object: %w", text, err)
		}
		return answer, nil
	case <-timer.C:
		return nil, fmt.Errorf("the program gave no answer within %s%s", p.patience, p.said())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// finish ends the program's input, and returns an error if the program doesn't exit with
// 0.
func (p *program) finish(ctx context.Context, stop func()) error {
	_ = p.in.Close()
	timer := time.NewTimer(p.patience)
	defer timer.Stop()
	var late error
	select {
	case text, more := <-p.lines:
		if more {
			late = fmt.Errorf("the program wrote a line that nobody asked for: %.200q", text)
			stop()
		}
	case <-timer.C:
		late = fmt.Errorf("the program had not ended %s after the end of its input", p.patience)
		stop()
	case <-ctx.Done():
	}
	for range p.lines { // discard lines that it writes before it ends
	}
	err := p.ended
	switch {
	case late != nil:
		return late
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("after the end of its input the program must end with 0: %w%s", err, p.said())
	}
	return nil
}

// said returns the program's standard error, if it has ended.
func (p *program) said() string {
	timer := time.NewTimer(time.Second) // it may be about to end
	defer timer.Stop()
	select {
	case _, more := <-p.lines:
		if more {
			return ""
		}
	case <-timer.C:
		return ""
	}
	if text := strings.TrimSpace(p.stderr.String()); text != "" {
		return "; it said: " + text
	}
	return ""
}
