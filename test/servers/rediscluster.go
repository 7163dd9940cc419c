package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// slots is the number of slots in a Redis Cluster
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
const slots = 16384

// RedisClusterConfig configures a RedisCluster.
type RedisClusterConfig struct {
	// Dir is the parent of the nodes' folders. It is made if missing. Required.
	Dir string
	// Masters is at least 3, so that a majority is left to replace one. Required.
	Masters int
	// Replicas is the number of replicas per master. Defaults to none.
	Replicas int
	// Timeout is how long a node may be silent before a replica replaces it, at least 500
	// ms. Defaults to 2 s.
	Timeout time.Duration
	// Args are added to the arguments of every redis-server. Defaults to none.
	Args []string
}

// RedisCluster is a Redis Cluster. Nodes holds the masters in the order of their slots,
// then one replica of each master, then a second one of each, and so on. This is the
// initial order: a replica may take a master's place.
type RedisCluster struct {
	Nodes []*Redis
}

// StartRedisCluster returns when the cluster serves all slots, all replicas follow, and
// every node announces all others to clients.
func StartRedisCluster(ctx context.Context, cfg RedisClusterConfig) (*RedisCluster, error) {
	if cfg.Masters < 3 {
		return nil, fmt.Errorf("start a redis cluster: %d masters, want at least 3", cfg.Masters)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c := &RedisCluster{Nodes: make([]*Redis, cfg.Masters*(1+cfg.Replicas))}
	if err := c.start(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start a redis cluster: %w", err), c.Kill())
	}
	return c, nil
}

func (c *RedisCluster) start(ctx context.Context, cfg RedisClusterConfig) error {
	args := append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", strconv.FormatInt(cfg.Timeout.Milliseconds(), 10),
	}, cfg.Args...)
	g, starting := errgroup.WithContext(ctx)
	for i := range c.Nodes {
		g.Go(func() (err error) {
			dir := filepath.Join(cfg.Dir, strconv.Itoa(i))
			c.Nodes[i], err = StartRedis(starting, RedisConfig{Dir: dir, Args: args, clusterBus: true})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return c.join(ctx, cfg.Masters)
}

// Addrs returns the nodes' addresses, "127.0.0.1:port".
func (c *RedisCluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// Kill ends all nodes with SIGKILL, as a crash would.
func (c *RedisCluster) Kill() error {
	var errs []error
	for _, n := range c.Nodes {
		if n != nil {
			errs = append(errs, n.Kill())
		}
	}
	return errors.Join(errs...)
}

// MoveSlot gives a slot to another master while both serve. It moves the slot's keys one
// by one, with a pause after each. This is live resharding, as in
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/.
func (c *RedisCluster) MoveSlot(ctx context.Context, slot int, to *Redis, pause time.Duration) error {
	target := redis.NewClient(&redis.Options{Addr: to.Addr()})
	defer target.Close()
	owner, err := c.owner(ctx, target, slot)
	if err != nil || owner == to.Addr() {
		return err
	}
	source := redis.NewClient(&redis.Options{Addr: owner})
	defer source.Close()
	from, err := myID(ctx, source)
	if err != nil {
		return err
	}
	into, err := myID(ctx, target)
	if err != nil {
		return err
	}
	if err := errors.Join(
		target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from).Err(),
		source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", into).Err(),
	); err != nil {
		return err
	}
	if err := moveKeys(ctx, source, to, slot, pause); err != nil {
		return err
	}
	return errors.Join(
		target.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", into).Err(),
		source.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", into).Err(),
	)
}

// moveKeys moves keys until the slot is empty: clients may add keys meanwhile.
func moveKeys(ctx context.Context, source *redis.Client, to *Redis, slot int, pause time.Duration) error {
	host, port, _ := strings.Cut(to.Addr(), ":")
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 1).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := source.Migrate(ctx, host, port, keys[0], 0, startLimit).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// owner returns the address of the master that serves a slot.
func (c *RedisCluster) owner(ctx context.Context, node *redis.Client, slot int) (string, error) {
	ranges, err := node.ClusterSlots(ctx).Result() //nolint:staticcheck // go-redis uses it itself
	if err != nil {
		return "", err
	}
	for _, r := range ranges {
		if r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
			return r.Nodes[0].Addr, nil
		}
	}
	return "", fmt.Errorf("slot %d is served by nobody", slot)
}

// Master returns the node that serves a key now.
func (c *RedisCluster) Master(ctx context.Context, key string) (*Redis, error) {
	var errs []error
	for _, n := range c.Nodes {
		if n.PID() == 0 {
			continue
		}
		addr, err := c.masterBy(ctx, n, key)
		for _, n := range c.Nodes {
			if err == nil && n.Addr() == addr {
				return n, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(append(errs, fmt.Errorf("no node knows the master of %s", key))...)
}

func (c *RedisCluster) masterBy(ctx context.Context, n *Redis, key string) (string, error) {
	node := redis.NewClient(&redis.Options{Addr: n.Addr()})
	defer node.Close()
	slot, err := node.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return "", err
	}
	return c.owner(ctx, node, int(slot))
}

func myID(ctx context.Context, node *redis.Client) (string, error) {
	return node.Do(ctx, "CLUSTER", "MYID").Text()
}

// join makes a cluster from nodes that don't know each other yet.
func (c *RedisCluster) join(ctx context.Context, masters int) error {
	nodes := make([]*redis.Client, len(c.Nodes))
	for i, n := range c.Nodes {
		nodes[i] = redis.NewClient(&redis.Options{Addr: n.Addr()})
		defer nodes[i].Close()
	}
	// As redis-cli does: each master gets an epoch of its own before the nodes meet. With
	// equal epochs they choose new ones later. If a slot moves meanwhile, its new owner may
	// lose it to the old one's newer epoch. The old owner has given it away, so no master
	// serves it.
	for i, n := range nodes[:masters] {
		if err := n.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes[1:] {
		host, port, _ := strings.Cut(n.Addr(), ":")
		if err := nodes[0].Do(ctx, "CLUSTER", "MEET", host, port, n.bus).Err(); err != nil {
			return err
		}
	}
	for i, n := range nodes[:masters] {
		if err := n.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			return err
		}
	}
	if err := each(ctx, nodes, clusterInfo, "cluster_known_nodes:"+strconv.Itoa(len(nodes))); err != nil {
		return err
	}
	for i, n := range nodes[masters:] {
		id, err := myID(ctx, nodes[i%masters])
		if err != nil {
			return err
		}
		if err := n.ClusterReplicate(ctx, id).Err(); err != nil {
			return err
		}
	}
	if err := each(ctx, nodes[masters:], replicationInfo, "master_link_status:up"); err != nil {
		return err
	}
	if err := each(ctx, nodes, clusterInfo, "cluster_state:ok"); err != nil {
		return err
	}
	return each(ctx, nodes, slotsInfo, "nodes:"+strconv.Itoa(len(nodes)))
}

func clusterInfo(ctx context.Context, n *redis.Client) (string, error) {
	return n.ClusterInfo(ctx).Result()
}

// slotsInfo returns how many nodes CLUSTER SLOTS names, replicas included. It assumes
// that each master's slots are one range. A row of the reply has the first slot, the last
// slot, and the nodes.
func slotsInfo(ctx context.Context, n *redis.Client) (string, error) {
	rows, err := n.Do(ctx, "CLUSTER", "SLOTS").Slice()
	told := 0
	for _, row := range rows {
		if row, ok := row.([]any); ok {
			told += len(row) - 2
		}
	}
	return fmt.Sprintf("nodes:%d\r\n", told), err
}

func replicationInfo(ctx context.Context, n *redis.Client) (string, error) {
	return n.Info(ctx, "replication").Result()
}

// each waits until the reply of every node contains the line.
func each(ctx context.Context, nodes []*redis.Client, ask func(context.Context, *redis.Client) (string, error),
	line string) error {
	for _, n := range nodes {
		for {
			said, err := ask(ctx, n)
			if err == nil && strings.Contains(said, line+"\r\n") {
				break
			}
			if ctx.Err() != nil {
				return errors.Join(fmt.Errorf("%s does not say %s", n.Options().Addr, line), err, ctx.Err())
			}
			select {
			case <-ctx.Done():
			case <-time.After(askEvery):
			}
		}
	}
	return nil
}
