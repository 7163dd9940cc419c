package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/duefleet/duefleet/task"
	"github.com/hashicorp/consul/api"
)

// ConsulSource is the Source that keeps one document a topic in Consul's
// store, under <prefix>/topics/, and what an operator does to them.
type ConsulSource struct {
	client *api.Client
	// watcher asks for what a Watch waits for, over connections that nobody
	// else uses; see watch.ask. http is what it asks with.
	watcher *api.Client
	http    *http.Client
	addr    string
	prefix  string
	log     *slog.Logger
	pace    pace
}

// pace is how a watch spaces its queries.
type pace struct {
	wait     time.Duration // how long Consul holds a query that has no news
	gap      time.Duration // the least between two queries, whatever Consul answers
	limit    time.Duration // for an answer, beyond wait
	minRetry time.Duration
	maxRetry time.Duration
}

// NewConsul makes the client; nothing is sent yet. The error is that of the
// address or the TLS files.
func NewConsul(cfg Consul, log *slog.Logger) (*ConsulSource, error) {
	secure, err := cfg.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("consul.tls: %w", err)
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
	}
	once := transport.Clone()
	once.DisableKeepAlives = true
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	kept := &http.Client{Transport: transport}
	watcher, err := api.NewClient(&api.Config{Address: cfg.Addr, Scheme: scheme, Token: cfg.Token, HttpClient: kept})
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	client, err := api.NewClient(&api.Config{Address: cfg.Addr, Scheme: scheme, Token: cfg.Token, HttpClient: &http.Client{Transport: once}})
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	return &ConsulSource{
		client:  client,
		watcher: watcher,
		http:    kept,
		addr:    cfg.Addr,
		prefix:  cfg.Prefix,
		log:     log,
		pace: pace{
			wait:     30 * time.Second,
			gap:      100 * time.Millisecond,
			limit:    10 * time.Second,
			minRetry: 250 * time.Millisecond,
			maxRetry: 10 * time.Second,
		},
	}, nil
}

// Read implements Source. Consul's leader makes sure that it still is one
// before it answers.
func (c *ConsulSource) Read(ctx context.Context, topic string) (Document, bool, error) {
	return c.Get(ctx, topic)
}

// Get returns a topic's document as Consul's leader has it now.
func (c *ConsulSource) Get(ctx context.Context, topic string) (Document, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	q := &api.QueryOptions{RequireConsistent: true}
	pair, _, err := c.client.KV().Get(c.key(topic), q.WithContext(ctx))
	if err != nil {
		return Document{}, false, consulError(err, "read topic %s from consul", topic)
	}
	if pair == nil {
		return Document{}, false, nil
	}
	return parseDocument(topic, pair.Value, pair.ModifyIndex), true, nil
}

// List returns all topics' documents as Consul's leader has them now, by name.
func (c *ConsulSource) List(ctx context.Context) ([]Document, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pairs, _, err := c.query(ctx, c.client, &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		return nil, err
	}
	var list []Document
	for _, d := range c.documents(pairs) {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Document) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Put writes a topic's document, if it parses, and only if its index still is
// the one given: 0 where there must be none yet. False is a conflict: somebody
// else wrote, and nothing was changed.
func (c *ConsulSource) Put(ctx context.Context, topic string, doc []byte, index uint64) (bool, error) {
	if _, err := ParseTopic(topic, doc); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pair := &api.KVPair{Key: c.key(topic), Value: doc, ModifyIndex: index}
	ok, _, err := c.client.KV().CAS(pair, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return false, consulError(err, "write topic %s to consul", topic)
	}
	return ok, nil
}

// Delete removes a topic's document only if its index still is the one given.
// False is a conflict.
func (c *ConsulSource) Delete(ctx context.Context, topic string, index uint64) (bool, error) {
	if err := task.CheckTopic(topic); err != nil {
		return false, err
	}
	if index == 0 { // Consul would answer true and delete nothing
		return false, fmt.Errorf("delete topic %s from consul: %w", topic, errors.New("index is 0"))
	}
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pair := &api.KVPair{Key: c.key(topic), ModifyIndex: index}
	ok, _, err := c.client.KV().DeleteCAS(pair, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return false, consulError(err, "delete topic %s from consul", topic)
	}
	return ok, nil
}

// folder is the key that all topics' keys begin with.
func (c *ConsulSource) folder() string { return c.prefix + "/topics/" }

func (c *ConsulSource) key(topic string) string { return c.folder() + topic }

// query lists the keys of all topics. An answer that lacks what the token may
// not see is an error: topics would look deleted. Consul says so when it left
// out some, but not when it left out all.
func (c *ConsulSource) query(ctx context.Context, client *api.Client, q *api.QueryOptions) (api.KVPairs, *api.QueryMeta, error) {
	pairs, meta, err := client.KV().List(c.folder(), q.WithContext(ctx))
	switch {
	case err == nil && meta.ResultsFilteredByACLs:
		err = fmt.Errorf("%w %s", errUnreadable, c.folder())
	case err == nil && len(pairs) == 0:
		_, _, err = client.KV().Get(c.folder(), (&api.QueryOptions{}).WithContext(ctx))
	}
	if err != nil {
		return nil, nil, consulError(err, "read topics from consul")
	}
	return pairs, meta, nil
}

// documents leaves out the keys of folders.
func (c *ConsulSource) documents(pairs api.KVPairs) map[string]Document {
	all := map[string]Document{}
	for _, p := range pairs {
		name := strings.TrimPrefix(p.Key, c.folder())
		if name != "" && !strings.HasSuffix(name, "/") {
			all[name] = parseDocument(name, p.Value, p.ModifyIndex)
		}
	}
	return all
}

var _ Source = (*ConsulSource)(nil)
