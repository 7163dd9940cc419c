// Package topics reads and writes the topics' documents in Consul: the settings that
// scanners apply, one document for each topic. It makes the same checks as the verbs ls,
// get, create and set of `scanner topic`. It writes only if nobody else wrote meanwhile,
// and records each change in the topic's history. Running scanners apply a change within
// seconds.
//
// The package is for programs that create topics, for example one for each tenant. It
// doesn't wait for scanners. It can't remove a topic, because the topic's tasks are in
// Redis: use `scanner topic rm`. The Consul token needs the same rights as for `scanner
// topic`; see docs/deploy.md.
package topics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

// ErrChanged: somebody else wrote the document since it was read, so the call wrote
// nothing. Read the document again before you repeat the change.
var ErrChanged = topicconfig.ErrMeanwhile

// Config configures a Client.
type Config struct {
	// Addr of Consul: host:port, or an http or https URL. Required.
	Addr string
	// Token is an ACL token of Consul. Defaults to CONSUL_HTTP_TOKEN.
	Token string
	// TLS encrypts the connections. Defaults to none, unless Addr is an https URL.
	TLS *tls.Config
	// Prefix of every key: consul.prefix of the scanners. Defaults to "duefleet".
	Prefix string
	// Author names the author of changes in the topics' histories; up to 128 bytes.
	// Defaults to the description of the token, else user@host.
	Author string
	// Log gets a warning if the token has no right to write a topic's history. Defaults
	// to slog.Default().
	Log *slog.Logger
}

// Client reads and writes documents. It is safe for concurrent use.
type Client struct {
	documents topicconfig.Documents
	author    string
	log       *slog.Logger
}

// New returns a client. It connects at the first call.
func New(cfg Config) (*Client, error) {
	if cfg.Addr == "" {
		return nil, errors.New("topics: Config.Addr must name a Consul, as in 127.0.0.1:8500")
	}
	if err := checkText("Config.Author", cfg.Author, topicconfig.MaxAuthor); err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	if cfg.Prefix == "" {
		cfg.Prefix = "duefleet"
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	client, err := consul.New(consul.Config{
		Addr: cfg.Addr, Prefix: cfg.Prefix, Log: cfg.Log,
		Token: func() string { return cfg.Token },
		TLS:   func() *tls.Config { return cfg.TLS },
	})
	if err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	return &Client{documents: topicconfig.Documents{Consul: client}, author: cfg.Author, log: cfg.Log}, nil
}

func checkText(field, text string, most int) error {
	if len(text) > most || !utf8.ValidString(text) {
		rule := fmt.Sprintf("must be valid UTF-8 of at most %d bytes", most)
		return &task.RuleError{Field: field, Rule: rule, Got: fmt.Sprintf("%d bytes", len(text))}
	}
	return nil
}

// Document is the document of one topic in Consul.
type Document struct {
	// Topic is the topic's name.
	Topic string
	// Settings are all settings of the topic, defaults included. Their keys are as in
	// config.example.yaml, with a dot after a section: "shards", "declare.queue". If the
	// document lacks a section, the settings of that section are missing too. Nil if Err
	// is set.
	Settings map[string]string
	// Raw is the document as it is stored, YAML or JSON.
	Raw []byte
	// Index grows whenever the document changes; see Change.Index.
	Index uint64
	// Err is the reason why scanners refuse the document, each mistake on its own line.
	// Nil if they accept it.
	Err error
}

func newDocument(d config.Document) Document {
	shown := Document{Topic: d.Name, Raw: d.Raw, Index: d.Index, Err: d.Err}
	if d.Err == nil {
		shown.Settings = config.Effective(d.Topic)
	}
	return shown
}

// List returns the documents of all topics, by name, as Consul's leader has them.
func (c *Client) List(ctx context.Context) ([]Document, error) {
	docs, err := c.documents.List(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Document, len(docs))
	for i, d := range docs {
		list[i] = newDocument(d)
	}
	return list, nil
}

// Get returns a topic's document as Consul's leader has it, or task.ErrNotFound.
func (c *Client) Get(ctx context.Context, topic string) (Document, error) {
	if err := task.CheckTopic(topic); err != nil {
		return Document{}, err
	}
	doc, err := c.documents.Find(ctx, topic)
	return newDocument(doc), err
}

// Change is a change that Create or Set writes.
type Change struct {
	// Settings to change, with the keys of Document.Settings: {"shards": "8",
	// "backoff.max": "1m"}. An empty value restores the default. Settings that aren't
	// named stay the same.
	Settings map[string]string
	// Replace starts from an empty document: settings that aren't named get their
	// defaults, shards too.
	Replace bool
	// Index is the Document.Index that the change is based on. If the document has
	// another index by now, nothing is written, and the error is ErrChanged. Defaults to
	// 0: no check.
	Index uint64
	// Reason of the change, for the topic's history: up to 512 bytes.
	Reason string
}

// Create creates a topic and returns its document. Unlike Set, it accepts a name that looks
// like a typing error for another topic's.
//
// Errors: task.ErrExists if the topic has a document; the mistakes in the settings, each on
// its own line; ErrChanged; errors of Consul. Create also refuses a circle of topics, and a
// queue that another topic's intake needs alone.
func (c *Client) Create(ctx context.Context, topic string, change Change) (Document, error) {
	return c.write(ctx, topic, "create", change)
}

// Set changes settings of a topic, or creates the topic, and returns its document. It
// keeps the document's comments and order. If nothing changes, it writes nothing.
//
// Errors are as from Create. In addition, task.ErrNotFound if the topic doesn't exist and
// its name looks like a typing error for another topic's, or if Change.Index is set.
func (c *Client) Set(ctx context.Context, topic string, change Change) (Document, error) {
	return c.write(ctx, topic, "set", change)
}

func (c *Client) write(ctx context.Context, topic, verb string, change Change) (Document, error) {
	edit := topicconfig.Edit{Replace: change.Replace, Create: verb == "create"}
	var err error
	if edit.Assignments, err = change.assignments(); err == nil {
		err = errors.Join(task.CheckTopic(topic), checkText("reason", change.Reason, topicconfig.MaxReason))
	}
	if err != nil {
		return Document{}, err
	}
	found, err := c.find(ctx, topic, change.Index, edit.Create)
	if err != nil {
		return Document{}, err
	}
	plan, err := edit.Of(topic, found)
	var exists topicconfig.ExistsError
	if errors.As(err, &exists) {
		err = fmt.Errorf("%w: %w", task.ErrExists, err)
	}
	if err != nil || plan.Same {
		return newDocument(found), err
	}
	if err := c.documents.CheckTogether(ctx, &plan); err != nil {
		return newDocument(found), err
	}
	by := topicconfig.Author{Name: c.author, Verb: verb, Reason: change.Reason}
	written, err := c.documents.Commit(ctx, plan, by)
	if err != nil {
		return Document{}, err
	}
	if written.Unkept != nil {
		c.log.WarnContext(ctx, "change of a topic is not in its history", "topic", topic, "error", written.Unkept)
	}
	return newDocument(written.Document), nil
}

// find returns the document to change. If there is none, the result has no index.
func (c *Client) find(ctx context.Context, topic string, index uint64, create bool) (config.Document, error) {
	found, there, err := c.documents.Read(ctx, topic)
	switch {
	case err != nil:
	case !there && index > 0:
		err = topicconfig.NoDocumentError(topic)
	case !there && !create:
		err = c.documents.RefuseLikelyTypo(ctx, topic)
		if typo := (topicconfig.LikelyTypoError{}); errors.As(err, &typo) {
			err = fmt.Errorf("%w: %w", task.ErrNotFound, err)
		}
	case there && index > 0 && found.Index != index:
		err = fmt.Errorf("topic %s %w; nothing was written, read it again", topic, ErrChanged)
	}
	return found, err
}

// assignments returns the settings as key=value, sorted by key.
func (c Change) assignments() ([]string, error) {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(c.Settings)) {
		if strings.Contains(key, "=") {
			return nil, &task.RuleError{Field: "settings", Rule: "must have keys without =", Got: fmt.Sprintf("%.40q", key)}
		}
		all = append(all, key+"="+c.Settings[key])
	}
	return all, nil
}
