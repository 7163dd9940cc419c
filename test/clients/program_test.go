//go:build clients

package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// python is Debian's Python, which has Debian's modules.
const python = "/usr/bin/python3"

// client is a library with two programs that use it.
type client struct {
	name                string
	publisher, consumer []string // commands
}

// clients returns all clients. One that isn't installed fails the test that runs it.
func clients(t *testing.T) []client {
	t.Helper()
	const jars = "/usr/share/java/"
	classes := t.TempDir()
	path := jars + "amqp-client.jar:" + jars + "slf4j-api.jar:" + jars + "slf4j-nop.jar:" + classes
	sources, err := filepath.Glob("java/*.java")
	if err != nil {
		t.Fatal(err)
	}
	options := []string{"-Xlint:all", "-cp", path, "-d", classes}
	javac := exec.CommandContext(check.Context(t), "javac", append(options, sources...)...) //nolint:gosec // our own files
	if out, err := javac.CombinedOutput(); err != nil {
		t.Fatalf("compile java: %v: %s", err, out)
	}
	return []client{
		{"pika", []string{python, "python/publisher.py"}, []string{python, "python/consumer.py"}},
		{"kombu", []string{python, "kombu/publisher.py"}, []string{python, "kombu/consumer.py"}},
		{"amqplib", []string{"node", "node/publisher.js"}, []string{"node", "node/consumer.js"}},
		{"php-amqp", []string{"php", "php/publisher.php"}, []string{"php", "php/consumer.php"}},
		{"java", []string{"java", "-cp", path, "Publisher"}, []string{"java", "-cp", path, "Consumer"}},
	}
}

// program is a running program of a client.
type program struct {
	t      *testing.T
	name   string
	ready  chan struct{}
	ended  chan error
	stderr bytes.Buffer
	output []string // complete when ended
}

// start runs a program until it ends, or until the test ends.
func start(t *testing.T, name string, command []string, url string, env ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = environ(url, env...)
	p := &program{t: t, name: name, ready: make(chan struct{}), ended: make(chan error, 1)}
	cmd.Stderr = &p.stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.read(bufio.NewScanner(stdout))
		p.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
	return p
}

// read collects the lines of the output. A consumer's first line is "ready".
func (p *program) read(from *bufio.Scanner) {
	from.Buffer(nil, 1<<20)
	for from.Scan() {
		if text := from.Text(); text == "ready" {
			close(p.ready)
		} else {
			p.output = append(p.output, text)
		}
	}
}

// awaitReady waits until a consumer consumes.
func (p *program) awaitReady() {
	p.t.Helper()
	select {
	case <-p.ready:
	case err := <-p.ended:
		p.t.Fatalf("the %s ended too early: %v\n%s", p.name, err, &p.stderr)
	case <-check.Context(p.t).Done():
		p.t.Fatalf("the %s isn't ready", p.name)
	}
}

// awaitEnd waits until the program ended without an error.
func (p *program) awaitEnd() {
	p.t.Helper()
	if err := check.Receive(p.t, "the end of the "+p.name, p.ended); err != nil {
		p.t.Fatalf("the %s: %v\n%s", p.name, err, &p.stderr)
	}
}

// lines returns what a consumer printed, after it ended.
func (p *program) lines() (all []line) {
	p.t.Helper()
	p.awaitEnd()
	for _, text := range p.output {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			p.t.Fatalf("the %s printed %q: %v", p.name, text, err)
		}
		all = append(all, l)
	}
	return all
}

// line is one message as a consumer prints it.
type line struct {
	At         int64          `json:"at"` // when it came, in Unix milliseconds
	Body       []byte         `json:"body"`
	Key        string         `json:"key"`
	Properties any            `json:"properties"`
	Headers    map[string]any `json:"headers"`
}

// number returns the number in the message's body.
func (l line) number() int {
	n, _ := readBody(l.Body)
	return n
}

// content returns all that was published, except the headers of unmarked. Its text is the same for equal
// tables, which have no order.
func (l line) content() string {
	l.At, l.Headers = 0, unmarked(l.Headers)
	text, err := json.Marshal(l)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
