package shard

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/dial"
)

// Store gives access to duefleet's keys under one prefix in one Redis.
type Store struct {
	rdb     redis.UniversalClient
	prefix  string
	scripts map[string]script
	clock   clock
	// replicas to wait for; see AwaitReplicas.
	replicas int

	routing sync.Mutex
	routers map[string]*Router // by topic
}

// New returns the store under prefix. The prefix must not have braces, because they would
// change a key's slot in a Redis Cluster. New sends nothing to Redis.
func New(rdb redis.UniversalClient, prefix string) (*Store, error) {
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("prefix %q must not have braces, which change a key's slot in a Redis Cluster", prefix)
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

// checkGiven returns an error unless exactly one of client and options is given.
func checkGiven(rdb redis.UniversalClient, options *redis.UniversalOptions) error {
	switch {
	case rdb == nil && options == nil:
		return errors.New("neither Config.Redis nor Config.Options is given; give one of them")
	case rdb != nil && options != nil:
		return errors.New("both Config.Redis and Config.Options are given; give one of them")
	}
	if v := reflect.ValueOf(rdb); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("Config.Redis is a nil %T; give a client, or Config.Options alone", rdb)
	}
	return nil
}

// Open calls New and AwaitReplicas with the caller's client. If that is nil, it makes a
// client by the options, and closing closes it.
func Open(rdb redis.UniversalClient, options *redis.UniversalOptions, prefix string, replicas int) (s *Store,
	closing func() error, err error) {
	if err := checkGiven(rdb, options); err != nil {
		return nil, nil, err
	}
	closing = func() error { return nil }
	if rdb == nil {
		if err := checkAddrs(options); err != nil {
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

// checkAddrs returns an error for an address that can't be dialed. The error doesn't
// quote the address, because a URL may hold a password.
func checkAddrs(options *redis.UniversalOptions) error {
	if len(options.Addrs) == 0 {
		return errors.New("Config.Options.Addrs must name a Redis, as in 127.0.0.1:6379")
	}
	for i, addr := range options.Addrs {
		if mistake := dial.OptionMistake(addr, options.Dialer != nil); mistake != "" {
			return fmt.Errorf("Config.Options.Addrs[%d] %s; it %s", i, dial.AddrForm, mistake)
		}
	}
	return nil
}

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
	*Store
	name string
}

// Topic returns the handle of one topic. The name must have passed task.CheckTopic.
func (s *Store) Topic(name string) *Topic { return &Topic{s, name} }

// Name returns the topic's name.
func (t *Topic) Name() string { return t.name }
