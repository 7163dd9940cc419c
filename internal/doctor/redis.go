package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/registry"
)

const (
	// redisConnection is the check that Redis answers, redisRole that it is no replica, and
	// redisRights that its user may run what scanners run.
	redisConnection, redisRole, redisRights = "redis.connection", "redis.role", "redis.rights"
	// clockLimit is the difference between Redis's clock and this machine's above which
	// doctor warns.
	clockLimit = time.Second
	// fullShare is the share of maxmemory above which doctor warns.
	fullShare = 0.9
	// oldestRedis is the first major version with the features that duefleet uses:
	// sharded publish and script flags.
	oldestRedis = 7
)

// node is one server that holds keys.
type node struct {
	addr string
	*redis.Client
}

// cli returns the redis-cli call that sends a command to the node.
func (n node) cli(command string) string {
	host, port, _ := net.SplitHostPort(n.addr)
	return fmt.Sprintf("redis-cli -h %s -p %s %s", host, port, command)
}

// examineRedis checks Redis. It reports whether Redis answers, and whether the user may list
// tasks.
func (p Target) examineRedis(ctx context.Context, r *report) (stored, lists bool) {
	p.redis = p.Store.Client(ctx)
	nodes := p.reachRedis(ctx, r)
	r.ask("settings of redis")
	for _, n := range nodes {
		p.examineNode(ctx, r, n)
	}
	if len(nodes) == 0 {
		return false, true
	}
	if r.failed(redisRole) {
		return true, true // a replica refuses what a user may do
	}
	r.ask(redisRights)
	return true, p.examineRights(ctx, r, nodes[0])
}

// reachRedis returns the servers that hold keys; none if Redis doesn't answer.
func (p Target) reachRedis(ctx context.Context, r *report) []node {
	if p.redis == nil {
		p.redis = p.Store.Client(ctx)
	}
	addr := p.Settings.Redis.Addrs[0]
	ask, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if err := p.redis.Ping(ask).Err(); err != nil {
		r.failErr(ctx, err, redisConnection, p.fixRedis(addr, err), "%s: %v", strings.Join(p.Settings.Redis.Addrs, ", "), err)
		return nil
	}
	nodes, err := p.nodes(ask)
	if err != nil {
		r.failErr(ctx, err, redisConnection, p.fixRedis(addr, err), "masters of the cluster: %v", err)
		return nil
	}
	answers := choose(len(nodes) == 1, "1 server answers", fmt.Sprintf("%d servers answer", len(nodes)))
	r.ok("redis.connection", "%s at %s, %s", answers, strings.Join(p.Settings.Redis.Addrs, ", "),
		choose(p.Settings.Redis.TLS.Enabled, "with TLS", "without TLS"))
	return nodes
}

// reachWritable checks that Redis answers and takes new tasks. It says nothing of a server
// that hides INFO.
func (p Target) reachWritable(ctx context.Context, r *report) {
	for _, n := range p.reachRedis(ctx, r) {
		text, err := n.Info(ctx, "memory", "replication").Result()
		if err != nil {
			continue
		}
		info := registry.ParseInfo(text)
		if used, limit := memory(info); limit > 0 && used >= limit && info["maxmemory_policy"] == "noeviction" {
			examineMemory(r, n, info)
		}
		examineRole(r, n, info)
	}
}

// memory returns how many bytes a server uses, and its maxmemory; 0: none.
func memory(info map[string]string) (used, limit float64) {
	used, _ = strconv.ParseFloat(info["used_memory"], 64)
	limit, _ = strconv.ParseFloat(info["maxmemory"], 64)
	return used, limit
}

// examineRole reports whether a server takes writes.
func examineRole(r *report, n node, info map[string]string) (writable bool) {
	replica, yes := registry.ReplicaOf(n.addr, info)
	if yes {
		r.fail(redisRole, fmt.Sprintf("set redis.addrs to %s, or redis.master_name and redis.addrs to the sentinels",
			replica.Master), "%s", replica)
	}
	return !yes
}

// nodes returns the masters of a cluster, or the one server.
func (p Target) nodes(ctx context.Context) ([]node, error) {
	cluster, ok := p.redis.(*redis.ClusterClient)
	if !ok {
		single, ok := p.redis.(*redis.Client)
		if !ok {
			return nil, fmt.Errorf("unknown kind of client %T", p.redis)
		}
		return []node{{single.Options().Addr, single}}, nil
	}
	var mu sync.Mutex
	var nodes []node
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node{c.Options().Addr, c})
		return nil
	})
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.addr, b.addr) })
	if err == nil && len(nodes) == 0 {
		err = errors.New("there are none")
	}
	return nodes, err
}

// redisUser returns the user of the settings.
func (p Target) redisUser() string { return cmp.Or(p.Settings.Redis.Username, "default") }

// fixRedis returns the command that fixes a failed connection.
func (p Target) fixRedis(addr string, err error) string {
	n := node{addr: addr}
	text := err.Error()
	user := p.redisUser()
	switch {
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"):
		password := "redis.password"
		if file := p.Settings.Redis.PasswordFile; file != "" {
			password = "the password in " + file
		}
		return fmt.Sprintf("set redis.username and %s to the server's, or the server's to these: %s; if a restart of the "+
			"server forgot the user, make it and its rights again: docs/deploy.md, Rights",
			password, n.cli("ACL SETUSER "+user+" on '>PASSWORD'"))
	case strings.Contains(text, "NOPERM"):
		return n.cli("ACL SETUSER " + user + " +ping; all rights are in docs/deploy.md")
	case serverWithoutTLS(err):
		return "the server speaks no TLS at that port: set redis.tls.enabled to false, or redis.addrs to the port that " +
			"speaks it"
	case tlsFailed(err):
		return "set redis.tls; see the server's certificate with: openssl s_client -connect " + addr
	default:
		return "start the server, or set redis.addrs; this has to answer PONG: " + n.cli("ping")
	}
}

// serverWithoutTLS reports whether a connection failed because only the client uses TLS.
func serverWithoutTLS(err error) bool {
	var record tls.RecordHeaderError
	return errors.As(err, &record) || strings.Contains(err.Error(), "HTTP response to HTTPS client")
}

// tlsFailed reports whether a connection failed because of TLS or a certificate.
func tlsFailed(err error) bool {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &record) ||
		errors.As(err, &alert) || strings.Contains(err.Error(), "tls:")
}

func (p Target) examineNode(ctx context.Context, r *report, n node) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	text, err := n.Info(ctx).Result()
	if err != nil {
		r.failErr(ctx, err, redisRights, n.cli("ACL SETUSER "+p.redisUser()+" +info"), "INFO: %v", err)
		return
	}
	info := registry.ParseInfo(text)
	if !examineRole(r, n, info) {
		return
	}
	major, _, _ := strings.Cut(info["redis_version"], ".")
	if v, err := strconv.Atoi(major); err != nil || v < oldestRedis {
		r.fail("redis.version", "upgrade the server to Redis 7 or later", "%s runs Redis %q", n.addr, info["redis_version"])
	} else {
		r.ok("redis.version", "%s runs Redis %s", n.addr, info["redis_version"])
	}
	examineMemory(r, n, info)
	examinePersistence(ctx, r, n, info)
	p.examineUsers(ctx, r, n, info)
	examineClock(ctx, r, n)
}

func examineMemory(r *report, n node, info map[string]string) {
	policy := info["maxmemory_policy"]
	used, limit := memory(info)
	if policy == "noeviction" {
		r.ok("redis.eviction", "%s evicts nothing", n.addr)
	} else {
		r.fail("redis.eviction", n.cli("CONFIG SET maxmemory-policy noeviction")+"; then CONFIG REWRITE",
			"%s has maxmemory-policy %s: at maxmemory it may evict tasks", n.addr, policy)
	}
	switch {
	case limit == 0:
		r.info("redis.memory", "%s has no maxmemory, and uses %s; with one it would refuse tasks before the kernel kills it",
			n.addr, info["used_memory_human"])
	case used >= limit:
		r.fail("redis.memory", n.cli("CONFIG SET maxmemory BYTES"), "%s uses %s of %s, and refuses new tasks", n.addr,
			info["used_memory_human"], info["maxmemory_human"])
	case used > fullShare*limit:
		r.warn("redis.memory", n.cli("CONFIG SET maxmemory BYTES"), "%s uses %s of %s: soon new tasks are refused", n.addr,
			info["used_memory_human"], info["maxmemory_human"])
	default:
		r.ok("redis.memory", "%s uses %s of %s", n.addr, info["used_memory_human"], info["maxmemory_human"])
	}
}

func examinePersistence(ctx context.Context, r *report, n node, info map[string]string) {
	switch {
	case info["aof_enabled"] != "1":
		r.fail("redis.persistence", n.cli("CONFIG SET appendonly yes")+"; then CONFIG REWRITE",
			"%s keeps no append-only file: a restart loses what came since the last snapshot", n.addr)
		return
	case info["aof_last_write_status"] == "err":
		r.fail("redis.persistence", "free space on the server's disk, and see its log", "%s can't write its append-only file",
			n.addr)
		return
	}
	policy, err := n.setting(ctx, "appendfsync")
	switch {
	case err != nil: // a scanner needs no permission for CONFIG
		r.ok("redis.persistence", "%s keeps an append-only file", n.addr)
		r.unchecked("redis.persistence (appendfsync)", "%s", mayNot(ctx, err, "read how often "+n.addr+" syncs its file"))
	case policy == "no":
		r.warn("redis.persistence", n.cli("CONFIG SET appendfsync everysec")+"; then CONFIG REWRITE",
			"%s lets the kernel decide when to sync its append-only file: a crash of the machine may lose half a minute", n.addr)
	default:
		r.ok("redis.persistence", "%s keeps an append-only file, synced %s", n.addr, policy)
	}
}

// examineClock compares the clocks of Redis and of this machine. It assumes that Redis
// read its clock in the middle of the request. A difference makes only the times in logs
// wrong, because Redis's clock decides when tasks are due.
func examineClock(ctx context.Context, r *report, n node) {
	asked := time.Now()
	at, err := n.Time(ctx).Result()
	if err != nil {
		r.failErr(ctx, err, "redis.clock", n.cli("ACL SETUSER USER +time"), "TIME: %v", err)
		return
	}
	took := time.Since(asked)
	offset := at.Sub(asked.Add(took / 2)).Round(time.Millisecond)
	if offset.Abs()-took/2 > clockLimit { // after a slow answer the difference is uncertain by half of its duration
		r.warn("redis.clock", "timedatectl set-ntp true",
			"the clock of %s is %s ahead of this machine's: the server's clock decides when tasks are due, and logs show "+
				"other times", n.addr, offset)
		return
	}
	r.ok("redis.clock", "the clock of %s is within %s of this machine's", n.addr, max(offset.Abs(), time.Millisecond))
}
