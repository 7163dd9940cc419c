package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// RabbitMQClusterConfig configures a RabbitMQCluster.
type RabbitMQClusterConfig struct {
	// Dir is the parent of the nodes' folders. It is made if missing. Required.
	Dir string
	// Nodes is at least 3, so that a majority is left if one fails. Required.
	Nodes int
	// Conf is as in RabbitMQConfig, for every node. Defaults to none.
	Conf string
}

// RabbitMQCluster is a RabbitMQ cluster. A node counts as lost after some ten seconds of
// silence, and a node without a majority pauses.
type RabbitMQCluster struct {
	Nodes []*RabbitMQ
	epmd  *process
	ports *ports
}

// StartRabbitMQCluster returns when all nodes are members. It takes half a minute.
func StartRabbitMQCluster(ctx context.Context, cfg RabbitMQClusterConfig) (*RabbitMQCluster, error) {
	if cfg.Nodes < 3 {
		return nil, fmt.Errorf("start a rabbitmq cluster: %d nodes, want at least 3", cfg.Nodes)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	c := &RabbitMQCluster{Nodes: make([]*RabbitMQ, cfg.Nodes), ports: &ports{}}
	if err := c.start(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start a rabbitmq cluster: %w", err), c.Kill())
	}
	return c, nil
}

func (c *RabbitMQCluster) start(ctx context.Context, cfg RabbitMQClusterConfig) error {
	dir, err := makeDir(cfg.Dir)
	if err != nil {
		return err
	}
	path, err := findEpmd()
	if err != nil {
		return err
	}
	port, err := c.ports.choose(ctx, 0)
	if err != nil {
		return err
	}
	c.epmd = epmdProcess(path, dir, port)
	if err := c.epmd.start(); err != nil {
		return err
	}
	shared := &rabbitCluster{cookie: fmt.Sprintf("duefleet-%d-%d", port, time.Now().UnixNano()), epmd: port}
	g, starting := errgroup.WithContext(ctx)
	for i := range c.Nodes {
		g.Go(func() (err error) {
			c.Nodes[i], err = StartRabbitMQ(starting, RabbitMQConfig{
				Dir: filepath.Join(dir, strconv.Itoa(i)), Conf: "cluster_partition_handling = pause_minority\n" + cfg.Conf,
				cluster: shared,
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, n := range c.Nodes[1:] {
		if err := n.join(ctx, c.Nodes[0]); err != nil {
			return err
		}
	}
	return nil
}

// join makes r a member of the cluster of first.
func (r *RabbitMQ) join(ctx context.Context, first *RabbitMQ) error {
	for _, args := range [][]string{{"stop_app"}, {"join_cluster", first.name()}, {"start_app"}} {
		if _, err := r.Ctl(ctx, args...); err != nil {
			return err
		}
	}
	return r.awaitReady(ctx)
}

// name returns the node's name with its host.
func (r *RabbitMQ) name() string {
	for _, v := range r.main.env {
		if name, found := strings.CutPrefix(v, "RABBITMQ_NODENAME="); found {
			return name
		}
	}
	return ""
}

// URLs returns the nodes' AMQP URLs for a vhost.
func (c *RabbitMQCluster) URLs(vhost string) []string {
	urls := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		urls[i] = n.URL(vhost)
	}
	return urls
}

// Leader returns the node that leads a quorum queue of the default vhost. It doesn't ask
// except, which may be nil.
func (c *RabbitMQCluster) Leader(ctx context.Context, queue string, except *RabbitMQ) (*RabbitMQ, error) {
	var errs []error
	for _, n := range c.Nodes {
		if n == except {
			continue
		}
		out, err := n.Ctl(ctx, "--no-table-headers", "--timeout", "20", "list_queues", "name", "leader")
		for line := range strings.Lines(out) {
			name, leader, _ := strings.Cut(strings.TrimSpace(line), "\t")
			for _, node := range c.Nodes {
				if name == queue && leader == node.name() {
					return node, nil
				}
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(append(errs, fmt.Errorf("no node knows the leader of %s", queue))...)
}

// Kill ends all nodes with SIGKILL, as a crash would.
func (c *RabbitMQCluster) Kill() error {
	var errs []error
	for _, n := range c.Nodes {
		if n != nil {
			errs = append(errs, n.Kill())
		}
	}
	if c.epmd != nil {
		errs = append(errs, c.epmd.kill())
	}
	return errors.Join(errs...)
}
