package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/beanstalkd/go-beanstalk"
	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/bench/harness"
	"github.com/duefleet/duefleet/test/fleet"
)

// reservers is the number of connections with which a member reserves jobs. It needs
// many, since each waits for the confirm of its job.
const reservers = 32

func beanstalkd() Peer {
	return Peer{
		Name: "beanstalkd", members: 3,
		missing: func() error { return installed("beanstalkd") },
		store:   startBeanstalkd, connect: newBeanstalkClient, work: reserving,
	}
}

func startBeanstalkd(ctx context.Context, r *harness.Run) (store, error) {
	addr, err := fleet.FreeAddress(ctx)
	if err != nil {
		return store{}, err
	}
	host, port, _ := net.SplitHostPort(addr)
	dir := filepath.Join(r.Dir, "beanstalkd-"+port)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return store{}, err
	}
	cmd := exec.CommandContext(ctx, "beanstalkd", "-l", host, "-p", port, "-b", dir, "-f", "1000") //nolint:gosec // our own arguments
	if err := cmd.Start(); err != nil {
		return store{}, err
	}
	s := store{addr: addr}
	s.memory = func(context.Context) (int64, error) { return harness.RSS(cmd.Process.Pid) }
	s.stop = func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // killed
		return errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = fleet.Await(ctx, func() bool {
		c, err := beanstalk.Dial("tcp", addr)
		return err == nil && c.Close() == nil
	})
	if err != nil {
		return s, errors.Join(fmt.Errorf("start beanstalkd: %w", err), s.stop())
	}
	return s, nil
}

// beanstalkClient has several connections, each for one call at a time.
type beanstalkClient struct{ free chan *beanstalk.Conn }

func newBeanstalkClient(_ context.Context, p place) (client, error) {
	c := beanstalkClient{make(chan *beanstalk.Conn, callsAtATime)}
	for range cap(c.free) {
		conn, err := beanstalk.Dial("tcp", p.store)
		if err != nil {
			return nil, err
		}
		c.free <- conn
	}
	return c, nil
}

// Schedule puts tasks one by one, with 16 concurrent calls. The ID comes before the
// payload.
func (c beanstalkClient) Schedule(ctx context.Context, tasks []harness.Task) error {
	g, _ := errgroup.WithContext(ctx)
	g.SetLimit(callsAtATime)
	for _, t := range tasks {
		g.Go(func() error {
			conn := <-c.free
			defer func() { c.free <- conn }()
			delay := max(0, time.Until(t.Due)) + time.Second - 1
			_, err := conn.Put(append([]byte(t.ID()), t.Payload...), 0, delay.Truncate(time.Second), time.Minute)
			return err
		})
	}
	return g.Wait()
}

// Close closes the connections.
func (c beanstalkClient) Close() error {
	var errs []error
	for range cap(c.free) {
		errs = append(errs, (<-c.free).Close())
	}
	return errors.Join(errs...)
}

// reserving reserves jobs over many connections.
func reserving(ctx context.Context, p place, ready func()) error {
	publisher, err := harness.NewPublisher(p.broker, p.exchange)
	if err != nil {
		return err
	}
	defer publisher.Close()
	g, ctx := errgroup.WithContext(ctx)
	for range reservers {
		conn, err := beanstalk.Dial("tcp", p.store)
		if err != nil {
			return err
		}
		g.Go(func() error { return reserve(ctx, conn, publisher) })
	}
	ready()
	return g.Wait()
}

// reserve publishes jobs, and deletes each after its confirm.
func reserve(ctx context.Context, conn *beanstalk.Conn, publisher *harness.Publisher) error {
	defer conn.Close()
	idLength := len(harness.Task{}.ID())
	for ctx.Err() == nil {
		job, body, err := conn.Reserve(time.Second)
		if errors.Is(err, beanstalk.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		if err := publisher.Publish(ctx, harness.Message(string(body[:idLength]), body[idLength:])); err != nil {
			return err
		}
		if err := conn.Delete(job); err != nil {
			return err
		}
	}
	return ctx.Err()
}
