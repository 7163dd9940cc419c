// Package consul is what duefleet has in Consul: one document a topic under
// <prefix>/topics/, which are watched, listed and written by check-and-set; the
// histories of those documents under <prefix>/history/; the scanners in the catalog; and
// the notes they leave under <prefix>/status/. A document is bytes here; what they mean
// is config's.
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

// Config is where Consul is.
type Config struct {
	// Addr is host:port or an http or https URL.
	Addr string
	// Token returns the ACL token of the next request; "" is what CONSUL_HTTP_TOKEN
	// says, as for every client of Consul. Defaults to "".
	Token func() string
	// TLS returns how to encrypt connections from now on, the same pointer until that
	// changes; nil is not at all, and stays so. Defaults to nil.
	TLS func() *tls.Config
	// Prefix begins every key.
	Prefix string
	// Advice is what to do about an error, by its text, to be written behind
	// it; "" if there is none. Defaults to none.
	Advice func(text string) string
	Log    *slog.Logger
}

// Document is one topic's, as Consul has it.
type Document struct {
	// Topic is the topic's name, which nobody has checked: any client of
	// Consul may write any key.
	Topic string
	// Raw is all that was written.
	Raw []byte
	// Index grows whenever this document changes. It starts anew only with a
	// new Consul.
	Index uint64
}

// Snapshot is all documents at one moment.
type Snapshot struct {
	// Documents by topic; nil if Err is set.
	Documents map[string]Document
	// Index grows with every change, as a document's does.
	Index uint64
	// Err says why Consul can't be read right now. It is an *Error.
	Err error
}

// Client talks to one Consul. Its errors are *Error unless they are about an
// argument.
type Client struct {
	client *api.Client
	// watcher asks for what a Watch waits for, over connections that nobody
	// else uses; see watch.ask. http is what it asks with.
	watcher *api.Client
	http    *http.Client
	addr    string
	prefix  string
	advice  func(text string) string
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

// New makes the client; nothing is sent yet. The error is that of the address.
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
	kept := &http.Client{Transport: newRenewed(transport, cfg)}
	watcher, err := api.NewClient(&api.Config{Address: cfg.Addr, Scheme: scheme, HttpClient: kept})
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	client, err := api.NewClient(&api.Config{Address: cfg.Addr, Scheme: scheme, HttpClient: &http.Client{Transport: newRenewed(once, cfg)}})
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

// Get returns a topic's document as Consul's leader has it now, or false if there
// is none. The leader makes sure that it still is one before it answers.
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

// List returns all topics' documents as Consul's leader has them now, by name.
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

// Put writes a topic's document only if its index still is the one given: 0 where
// there must be none yet. False is a conflict: somebody else wrote, and nothing
// was changed.
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

// Delete removes a topic's document only if its index still is the one given.
// False is a conflict. The name may be one that no topic may have, as List returns it:
// the key goes as data, for in a URL some of its bytes would name another one.
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

// folder is the key that all topics' keys begin with.
func (c *Client) folder() string { return c.prefix + "/topics/" }

func (c *Client) key(topic string) string { return c.folder() + topic }

// query lists the keys of all topics. An answer that lacks what the token may
// not see is an error: topics would look deleted. Consul says so when it left
// out some, but not when it left out all.
func (c *Client) query(ctx context.Context, client *api.Client, q *api.QueryOptions) (api.KVPairs, *api.QueryMeta, error) {
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

// documents leaves out the keys of folders.
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
