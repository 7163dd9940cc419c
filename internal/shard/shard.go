// Package shard keeps one topic's tasks in M sorted sets (shards) in Redis. It has the
// keys, the placement of IDs and the scripts, each with one Lua file and one Go method.
//
// A task is a member of its shard's sorted set, and has a record in a hash. The score is
// the task's state:
//
//	0 <= score < +inf   waiting: due, or to be tried again, at that Redis ms
//	score < 0           leased until -score; the score is also the lease's token
//	score = +inf        parked
//
// Scripts on one shard are atomic; nothing is atomic across shards. docs/protocol.md
// says how callers combine them.
package shard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/registry"
)

// Store gives access to duefleet's keys under one prefix in one Redis.
type Store struct {
	server   *luascript.Server
	prefix   string
	scripts  *luascript.Client
	registry *registry.Registry
}

// New returns the store under prefix, by the caller's client. The prefix must not have
// braces, because they would change a key's slot in a Redis Cluster. New sends nothing to
// Redis.
func New(rdb redis.UniversalClient, prefix string) (*Store, error) {
	return newStore(luascript.Given(rdb), prefix)
}

func newStore(server *luascript.Server, prefix string) (*Store, error) {
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("prefix %q must not have braces, which change a key's slot in a Redis Cluster", prefix)
	}
	texts, err := scriptTexts()
	if err != nil {
		return nil, err
	}
	scripts := luascript.New(server, texts)
	return &Store{server: server, prefix: prefix, scripts: scripts, registry: registry.New(server, scripts, prefix)}, nil
}

// Open returns the store by the caller's client, and calls AwaitReplicas. If the client is
// nil, it makes one by the options, and closing closes it.
func Open(rdb redis.UniversalClient, options *redis.UniversalOptions, prefix string, replicas int) (s *Store,
	closing func() error, err error) {
	server, closing, err := luascript.Dial(rdb, options)
	if err != nil {
		return nil, nil, err
	}
	if s, err = newStore(server, prefix); err == nil {
		err = s.AwaitReplicas(replicas)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closing())
	}
	return s, closing, nil
}

// Client returns the client of the store's Redis. The first call may ask what kind of
// client that is.
func (s *Store) Client(ctx context.Context) redis.UniversalClient { return s.server.Client(ctx) }

// Registry returns what Redis has of the whole fleet and of the list of topics.
func (s *Store) Registry() *registry.Registry { return s.registry }

// Scripts returns what sends the store's scripts.
func (s *Store) Scripts() *luascript.Client { return s.scripts }

// AwaitReplicas sets the number of replicas to wait for. Then every call that stores,
// moves or removes tasks returns when n replicas have its writes (WAIT), or with a
// *ReplicasError after a second. Call it before the store is used. The default is 0.
func (s *Store) AwaitReplicas(n int) error { return s.scripts.AwaitReplicas(n) }

// Now estimates Redis's clock, in ms.
func (s *Store) Now(ctx context.Context) (int64, error) { return s.scripts.Now(ctx) }

// Relearn asks a Redis Cluster which of its servers hold which slots.
func (s *Store) Relearn(ctx context.Context) { s.scripts.Relearn(ctx) }

// Place returns the address and the database of this store's Redis, for messages.
func (s *Store) Place() (addr string, db int) {
	known := s.server.Known()
	switch rdb := known.(type) {
	case *redis.Client:
		return rdb.Options().Addr, rdb.Options().DB
	case *redis.ClusterClient:
		return strings.Join(rdb.Options().Addrs, ","), 0
	}
	return fmt.Sprintf("%T", known), 0
}

// Clustered reports whether Redis is known to be a cluster.
func (s *Store) Clustered() bool {
	_, ok := s.server.Known().(*redis.ClusterClient)
	return ok
}

// Topic gives access to the keys and scripts of one topic.
type Topic struct {
	store *Store
	name  string
	draws atomic.Pointer[[]string] // the keys of the last draw
}

// Topic returns the handle of one topic. The name must have passed task.CheckTopic.
func (s *Store) Topic(name string) *Topic { return &Topic{store: s, name: name} }

// Now estimates Redis's clock, in ms.
func (t *Topic) Now(ctx context.Context) (int64, error) { return t.store.Now(ctx) }

// Deadline returns the Redis time in ms after which a call that begins now must do
// nothing. If ctx has ended it returns ctx's error: the call must not begin.
func (t *Topic) Deadline(ctx context.Context) (int64, error) { return t.store.scripts.Deadline(ctx) }

// Store returns the store that the topic is in.
func (t *Topic) Store() *Store { return t.store }

// Name returns the topic's name.
func (t *Topic) Name() string { return t.name }

// Shard is one of a topic's sorted sets, with its other keys. Most methods run one
// script.
type Shard struct {
	topic *Topic
	n     int
}

// Shard returns a handle of shard n, from 0; the shard need not exist.
func (t *Topic) Shard(n int) Shard { return Shard{t, n} }

// Node returns the address of the master that holds the shard, as the client knows it. It
// asks nobody, so the answer may be out of date for a moment after a failover. It is ""
// if Redis is no cluster: then all shards have one node.
func (s Shard) Node(ctx context.Context) string { return s.topic.store.nodeOf(ctx, s.due()) }

// nodeOf returns the address of the master that holds a key, as the client knows it. It is
// "" if Redis isn't a cluster, or if no master is known.
func (s *Store) nodeOf(ctx context.Context, key string) string {
	cluster, ok := s.server.Known().(*redis.ClusterClient)
	if !ok {
		return ""
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// key names one key of a shard. The braces put all keys of a shard into one
// slot of a Redis Cluster.
func (s Shard) key(kind string) string {
	return s.topic.store.prefix + ":" + kind + ":{" + s.topic.name + ":" + strconv.Itoa(s.n) + "}"
}

func (s Shard) due() string { return s.key("due") }

func (s Shard) tasks() string { return s.key("task") }

func (s Shard) fence() string { return s.key("fence") }

func (s Shard) handled() string { return s.key("handled") }

// group returns one key of the topic's index of groups. The index has the same keys whatever M
// is; see group.go.
func (s Shard) group() string { return s.key("group") }

// events returns the prefix of the keys that hold the events, one for each hour.
func (s Shard) events() string { return s.key("events") + ":" }

// Wake names the sharded channel that announces tasks that become the shard's earliest. A
// message is such a task's score in ms.
func (s Shard) Wake() string { return s.key("wake") }

// memory names the key that keeps a claimant's last batch until its lease ends, so that a
// repeated request gets the same answer.
func (s Shard) memory(claimant string) string {
	return s.key("claim") + ":" + claimant
}

func (t *Topic) topicKey(kind string) string {
	return t.store.prefix + ":" + kind + ":{" + t.name + "}"
}

// changes names the sharded channel that announces each placement put in force.
func (t *Topic) changes() string { return t.topicKey("wake") }

func (t *Topic) ticketKey() string { return t.topicKey("ticket") }

// drawnKey names who drew which tickets.
func (t *Topic) drawnKey() string { return t.topicKey("drawn") }

func (t *Topic) placementKey() string { return t.topicKey("placement") }

// sweepKey names the lease of the scanner that sweeps the index of groups.
func (t *Topic) sweepKey() string { return t.topicKey("sweep") }

// taskKeys returns the four keys of most scripts, then more.
func (s Shard) taskKeys(more ...string) []string {
	return append([]string{s.due(), s.tasks(), s.fence(), s.handled()}, more...)
}
