// Package consul reads and writes duefleet's keys in Consul. Under <prefix>, topics/ has
// one document for each topic, with its settings. history/ has the earlier documents of
// each topic. status/ has a note of each scanner about its configuration. The package
// also registers scanners in Consul's catalog. It treats documents as bytes; package
// config reads them.
package consul

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/task"
)

// Config says how to reach Consul.
type Config struct {
	// Addr is host:port or an http or https URL.
	Addr string
	// Token returns the ACL token for the next request. With "" the client uses
	// CONSUL_HTTP_TOKEN, as every client of Consul does. Defaults to "".
	Token func() string
	// TLS returns the TLS configuration for new connections; the pointer changes only if
	// the configuration does. If it returns nil at New, connections are never encrypted.
	// Defaults to nil.
	TLS func() *tls.Config
	// Prefix begins every key.
	Prefix string
	// Advice returns what to do about an error with this text; the client appends it to
	// the error. "" means no advice. Defaults to no advice.
	Advice func(text string) string
	Log    *slog.Logger
}

// Document is one topic's document in Consul.
type Document struct {
	// Topic is the topic's name. It may be invalid, because any client of Consul may
	// write any key.
	Topic string
	// Raw is the whole value.
	Raw []byte
	// Index grows whenever this document changes. Only a new Consul cluster begins with
	// low numbers again.
	Index uint64
}

// Snapshot is all documents at one moment.
type Snapshot struct {
	// Documents by topic; nil if Err is set.
	Documents map[string]Document
	// Index grows with every change, as a document's index does.
	Index uint64
	// Err says why Consul can't be read right now. It is an *Error.
	Err error
}

// Client talks to one Consul. Its errors are *Error unless they are about an
// argument.
type Client struct {
	client *api.Client
	// watcher sends a Watch's blocking queries. Nothing else uses its connections; see
	// watch.ask. http is the watcher's HTTP client.
	watcher *api.Client
	http    *http.Client
	addr    string
	prefix  string
	advice  func(text string) string
	log     *slog.Logger
	pace    pace
}

// pace holds the times between the queries of a watch.
type pace struct {
	wait     time.Duration // how long Consul holds a query that has no news
	gap      time.Duration // the shortest time between two queries
	limit    time.Duration // time for an answer, in addition to wait
	minRetry time.Duration
	maxRetry time.Duration
}

// New returns a client and sends nothing. An error is about the address.
func New(cfg Config) (*Client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
	}
	once := transport.Clone()
	once.DisableKeepAlives = true
	scheme := "http"
	if cfg.TLS != nil && cfg.TLS() != nil {
		scheme = "https"
	}
	kept := &http.Client{Transport: newRefreshingTransport(transport, cfg)}
	watcher, err := api.NewClient(&api.Config{Address: cfg.Addr, Scheme: scheme, HttpClient: kept})
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	client, err := api.NewClient(&api.Config{Address: cfg.Addr, Scheme: scheme,
		HttpClient: &http.Client{Transport: newRefreshingTransport(once, cfg)}})
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	return &Client{
		client:  client,
		watcher: watcher,
		http:    kept,
		addr:    cfg.Addr,
		prefix:  cfg.Prefix,
		advice:  cfg.Advice,
		log:     cfg.Log,
		pace: pace{
			wait:     30 * time.Second,
			gap:      100 * time.Millisecond,
			limit:    10 * time.Second,
			minRetry: 250 * time.Millisecond,
			maxRetry: 10 * time.Second,
		},
	}, nil
}

// Get returns a topic's current document, or false if there is none. The read is
// consistent: Consul's leader answers after it has verified that it still is the leader.
func (c *Client) Get(ctx context.Context, topic string) (Document, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	q := &api.QueryOptions{RequireConsistent: true}
	pair, _, err := c.client.KV().Get(c.key(topic), q.WithContext(ctx))
	if err != nil {
		return Document{}, false, c.fail(err, "read topic %s from consul", topic)
	}
	if pair == nil {
		return Document{}, false, nil
	}
	return Document{Topic: topic, Raw: pair.Value, Index: pair.ModifyIndex}, true, nil
}

// List returns all topics' current documents, sorted by name. The read is consistent, as
// in Get.
func (c *Client) List(ctx context.Context) ([]Document, error) {
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
	slices.SortFunc(list, func(a, b Document) int { return strings.Compare(a.Topic, b.Topic) })
	return list, nil
}

// Put writes a topic's document if its index is still the one given; 0 means that there
// is no document. It returns false on a conflict: somebody else wrote, and Put changed
// nothing.
func (c *Client) Put(ctx context.Context, topic string, doc []byte, index uint64) (bool, error) {
	if err := task.CheckTopic(topic); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	pair := &api.KVPair{Key: c.key(topic), Value: doc, ModifyIndex: index}
	ok, _, err := c.client.KV().CAS(pair, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return false, c.fail(err, "write topic %s to consul", topic)
	}
	return ok, nil
}

// Delete removes a topic's document if its index is still the one given. It returns false
// on a conflict. topic may be an invalid name that List returned. So the request has the
// key in its body, because in a URL some bytes would change the key.
func (c *Client) Delete(ctx context.Context, topic string, index uint64) (bool, error) {
	if index == 0 { // Consul would answer true and delete nothing
		return false, fmt.Errorf("delete topic %s from consul: %w", topic, errors.New("index is 0"))
	}
	_, ok, err := c.transact(ctx, &api.KVTxnOp{Verb: api.KVDeleteCAS, Key: c.key(topic), Index: index})
	if err != nil {
		return false, c.fail(err, "delete topic %s from consul", topic)
	}
	return ok, nil
}

// folder returns the prefix of all topics' keys.
func (c *Client) folder() string { return c.prefix + "/topics/" }

func (c *Client) key(topic string) string { return c.folder() + topic }

// query lists the keys of all topics. It returns an error if Consul left out keys that
// the token may not read, because those topics would look deleted. Consul reports that it
// left out some keys, but not that it left out all. So if the list is empty, query reads
// the folder's key, which fails if the token may not read it.
func (c *Client) query(ctx context.Context, client *api.Client, q *api.QueryOptions) (api.KVPairs, *api.QueryMeta,
	error) {
	pairs, meta, err := client.KV().List(c.folder(), q.WithContext(ctx))
	switch {
	case err == nil && meta.ResultsFilteredByACLs:
		err = fmt.Errorf("%w %s", errUnreadable, c.folder())
	case err == nil && len(pairs) == 0:
		_, _, err = client.KV().Get(c.folder(), (&api.QueryOptions{}).WithContext(ctx))
	}
	if err != nil {
		return nil, nil, c.fail(err, "read topics from consul")
	}
	return pairs, meta, nil
}

// documents returns the documents by topic. It skips keys that stand for folders.
func (c *Client) documents(pairs api.KVPairs) map[string]Document {
	all := map[string]Document{}
	for _, p := range pairs {
		name := strings.TrimPrefix(p.Key, c.folder())
		if name != "" && !strings.HasSuffix(name, "/") {
			all[name] = Document{Topic: name, Raw: p.Value, Index: p.ModifyIndex}
		}
	}
	return all
}
