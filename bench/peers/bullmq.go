package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/duefleet/duefleet/bench/harness"
)

// bullMQ returns a peer that runs peers/bullmq/peer.mjs.
func bullMQ() Peer {
	return Peer{
		Name: "BullMQ", members: 3,
		missing: bullMQMissing,
		connect: newBullMQClient,
		command: func(ctx context.Context, p place) *exec.Cmd { return node(ctx, p, "work") },
	}
}

// bullMQMissing looks for BullMQ where make bench installs it.
func bullMQMissing() error {
	if err := installed("node"); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join("bench", "peers", "bullmq", "node_modules", "bullmq")); err != nil {
		return errors.New("BullMQ is not installed")
	}
	return nil
}

func node(ctx context.Context, p place, role string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", filepath.Join(p.root, "bench", "peers", "bullmq", "peer.mjs"), role) //nolint:gosec // a script of ours
	_, port, _ := net.SplitHostPort(p.store)
	cmd.Env = append(os.Environ(), "REDIS_PORT="+port, "AMQP_URL="+p.broker, "EXCHANGE="+p.exchange)
	return cmd
}

// bullMQClient writes batches to a process that adds them. The process answers with the
// batches' numbers.
type bullMQClient struct {
	*member
	mu      sync.Mutex
	input   io.Writer
	batches int
	waiting map[string]chan struct{}
	ended   chan struct{}
}

func newBullMQClient(ctx context.Context, p place) (client, error) {
	log, err := os.CreateTemp("", "bench-bullmq-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(log.Name())
	defer log.Close()
	m, input, err := startMember(node(ctx, p, "produce"), log.Name())
	if err != nil {
		return nil, err
	}
	c := &bullMQClient{member: m, input: input, waiting: map[string]chan struct{}{}, ended: make(chan struct{})}
	go c.listen(m.output)
	return c, nil
}

func (c *bullMQClient) listen(output *bufio.Reader) {
	defer close(c.ended)
	for {
		line, err := output.ReadString('\n')
		if err != nil {
			return
		}
		c.mu.Lock()
		key := strings.TrimSpace(line)
		if done := c.waiting[key]; done != nil {
			close(done)
			delete(c.waiting, key)
		}
		c.mu.Unlock()
	}
}

// Schedule adds tasks with one addBulk.
func (c *bullMQClient) Schedule(ctx context.Context, tasks []harness.Task) error {
	rows := make([][3]any, len(tasks))
	for i, t := range tasks {
		rows[i] = [3]any{t.ID(), t.Due.UnixMilli(), string(t.Payload)}
	}
	done, err := c.send(rows)
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-c.ended:
		return errors.New("add to BullMQ: its process ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *bullMQClient) send(rows [][3]any) (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	line, err := json.Marshal([2]any{c.batches, rows})
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	c.waiting[fmt.Sprint(c.batches)] = done
	_, err = c.input.Write(append(line, '\n'))
	return done, err
}

// Close stops the process.
func (c *bullMQClient) Close() error {
	c.stop()
	return nil
}
