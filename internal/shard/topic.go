package shard

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Store is duefleet's keys in one Redis, all under one prefix.
type Store struct {
	rdb     redis.UniversalClient
	prefix  string
	scripts map[string]script
	clock   clock
	// replicas that are waited for; see AwaitReplicas.
	replicas int

	routing sync.Mutex
	routers map[string]*Router // by topic
}

// New returns the store under prefix, which must not hold braces: they would
// decide which slot of a Redis Cluster a key is in. New doesn't talk to Redis.
func New(rdb redis.UniversalClient, prefix string) (*Store, error) {
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("prefix %q: must not hold braces", prefix)
	}
	s := &Store{rdb: rdb, prefix: prefix, scripts: map[string]script{}, routers: map[string]*Router{}}
	for _, name := range scriptFiles() {
		text, err := Script(name)
		if err != nil {
			return nil, err
		}
		s.scripts[name] = script{redis.NewScript(text), text}
	}
	return s, nil
}

// Open is New, and AwaitReplicas, on the caller's client or, where that is nil, on
// one of its own by the options, which closing closes.
func Open(rdb redis.UniversalClient, options *redis.UniversalOptions, prefix string, replicas int) (s *Store, closing func() error, err error) {
	closing = func() error { return nil }
	if rdb == nil {
		if err := checkAddrs(options.Addrs); err != nil {
			return nil, nil, err
		}
		own := Dialing(options)
		own.ContextTimeoutEnabled = true
		rdb = redis.NewUniversalClient(own)
		closing = rdb.Close
	}
	if s, err = New(rdb, prefix); err == nil {
		err = s.AwaitReplicas(replicas)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closing())
	}
	return s, closing, nil
}

// checkAddrs refuses URLs, which the client would take for a host and quote in its
// errors, with the password that may be in them.
func checkAddrs(addrs []string) error {
	for i, addr := range addrs {
		if strings.Contains(addr, "://") || strings.Contains(addr, "@") {
			return fmt.Errorf("address %d of Redis: must be host:port; it is a URL: user, password and TLS are options of their own", i+1)
		}
	}
	return nil
}

// Topic is one topic's keys and scripts.
type Topic struct {
	*Store
	name string
}

// Topic returns the handle of one topic; the name must have passed
// task.CheckTopic.
func (s *Store) Topic(name string) *Topic { return &Topic{s, name} }

// Name of the topic.
func (t *Topic) Name() string { return t.name }
