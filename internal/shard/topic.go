package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/luascript"
)

// Store gives access to duefleet's keys under one prefix in one Redis.
type Store struct {
	rdb     redis.UniversalClient
	prefix  string
	scripts *luascript.Client
}

// New returns the store under prefix. The prefix must not have braces, because they would
// change a key's slot in a Redis Cluster. New sends nothing to Redis.
func New(rdb redis.UniversalClient, prefix string) (*Store, error) {
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("prefix %q must not have braces, which change a key's slot in a Redis Cluster", prefix)
	}
	texts, err := scriptTexts()
	if err != nil {
		return nil, err
	}
	return &Store{rdb: rdb, prefix: prefix, scripts: luascript.New(rdb, texts)}, nil
}

// Open calls New and AwaitReplicas with the caller's client. If that is nil, it makes a
// client by the options, and closing closes it.
func Open(rdb redis.UniversalClient, options *redis.UniversalOptions, prefix string, replicas int) (s *Store,
	closing func() error, err error) {
	rdb, closing, err = luascript.Dial(rdb, options)
	if err != nil {
		return nil, nil, err
	}
	if s, err = New(rdb, prefix); err == nil {
		err = s.AwaitReplicas(replicas)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closing())
	}
	return s, closing, nil
}

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
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return rdb.Options().Addr, rdb.Options().DB
	case *redis.ClusterClient:
		return strings.Join(rdb.Options().Addrs, ","), 0
	}
	return fmt.Sprintf("%T", s.rdb), 0
}

// Topic gives access to the keys and scripts of one topic.
type Topic struct {
	store *Store
	name  string
}

// Topic returns the handle of one topic. The name must have passed task.CheckTopic.
func (s *Store) Topic(name string) *Topic { return &Topic{store: s, name: name} }

// Now estimates Redis's clock, in ms.
func (t *Topic) Now(ctx context.Context) (int64, error) { return t.store.Now(ctx) }

// Deadline returns the Redis time in ms after which a call that begins now must do
// nothing. If ctx has ended it returns ctx's error: the call must not begin.
func (t *Topic) Deadline(ctx context.Context) (int64, error) { return t.store.scripts.Deadline(ctx) }

func (t *Topic) run(ctx context.Context, call luascript.Call) luascript.Reply {
	return t.store.scripts.Run(ctx, call)
}

func (t *Topic) runAll(ctx context.Context, calls []luascript.Call) []luascript.Reply {
	return t.store.scripts.RunAll(ctx, calls)
}

// Store returns the store that the topic is in.
func (t *Topic) Store() *Store { return t.store }

// Name returns the topic's name.
func (t *Topic) Name() string { return t.name }

// Clustered reports whether Redis is a cluster.
func (s *Store) Clustered() bool {
	_, ok := s.rdb.(*redis.ClusterClient)
	return ok
}
