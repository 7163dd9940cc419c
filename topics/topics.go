// Package topics reads and writes the topics' documents in Consul, as `scanner topic` does
// with ls, get, create and set: with the same checks, only if nobody else wrote meanwhile,
// and with the topic's history. Running scanners apply what is written within seconds.
//
// It is for programs that make topics, as one for each tenant. It doesn't wait for scanners,
// and removes no topic: `scanner topic rm` does, for a topic's tasks are in Redis. The
// token in Consul needs the rights of docs/deploy.md for who calls `scanner topic`.
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
	"github.com/duefleet/duefleet/internal/topicdocs"
	"github.com/duefleet/duefleet/task"
)

// ErrChanged: somebody else wrote the document since it was read. Nothing was written: read
// it again, and decide anew.
var ErrChanged = topicdocs.ErrMeanwhile

// Config of a Client.
type Config struct {
	// Addr is Consul's, as host:port or an http or https URL. Required.
	Addr string
	// Token of Consul's ACL. Defaults to CONSUL_HTTP_TOKEN's.
	Token string
	// TLS encrypts the connections. Defaults to none, unless Addr is an https URL.
	TLS *tls.Config
	// Prefix of every key; the scanners' consul.prefix. Defaults to "duefleet".
	Prefix string
	// Author is who makes the changes, for the topics' histories; up to 128 bytes. Defaults to
	// the description of the token, else user@host.
	Author string
	// Log takes changes that the token may not enter into a topic's history. Defaults to
	// slog.Default().
	Log *slog.Logger
}

// Client reads and writes documents. It is safe for concurrent use.
type Client struct {
	documents topicdocs.Documents
	author    string
	log       *slog.Logger
}

// New returns a client; it connects when it is first used.
func New(cfg Config) (*Client, error) {
	if cfg.Addr == "" {
		return nil, errors.New("topics: Config.Addr must name a Consul, as in 127.0.0.1:8500")
	}
	if err := checkText("Config.Author", cfg.Author, topicdocs.MaxAuthor); err != nil {
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
	return &Client{documents: topicdocs.Documents{Consul: client}, author: cfg.Author, log: cfg.Log}, nil
}

func checkText(field, text string, most int) error {
	if len(text) > most || !utf8.ValidString(text) {
		rule := fmt.Sprintf("must be valid UTF-8 of at most %d bytes", most)
		return &task.RuleError{Field: field, Rule: rule, Got: fmt.Sprintf("%d bytes", len(text))}
	}
	return nil
}

// Document is one topic's, as Consul has it.
type Document struct {
	// Topic is its name.
	Topic string
	// Settings are all of the topic's, with the defaults of those that the document leaves
	// out, by the keys of config.example.yaml with a dot behind a section: "shards",
	// "declare.queue". Those of a section that it lacks aren't there. Nil if Err is set.
	Settings map[string]string
	// Raw is the document as it is stored, YAML or JSON.
	Raw []byte
	// Index grows whenever the document changes; see Change.Index.
	Index uint64
	// Err says why scanners refuse the document: each mistake on a line of its own. Nil if
	// they don't.
	Err error
}

func newDocument(d config.Document) Document {
	shown := Document{Topic: d.Name, Raw: d.Raw, Index: d.Index, Err: d.Err}
	if d.Err == nil {
		shown.Settings = config.Effective(d.Topic)
	}
	return shown
}

// List returns the documents of all topics, by name, as Consul's leader has them now.
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

// Get returns a topic's document as Consul's leader has it now, or task.ErrNotFound.
func (c *Client) Get(ctx context.Context, topic string) (Document, error) {
	if err := task.CheckTopic(topic); err != nil {
		return Document{}, err
	}
	doc, err := c.documents.Find(ctx, topic)
	return newDocument(doc), err
}

// Change is what Create and Set write.
type Change struct {
	// Settings by their keys, as in Document: {"shards": "8", "backoff.max": "1m"}. An empty
	// value goes back to the default. Those that aren't named stay as they are.
	Settings map[string]string
	// Replace begins from an empty document: what isn't named gets its default, shards too.
	Replace bool
	// Index is that of the Document which the change was made of: with another one nothing
	// is written, and the error is ErrChanged. Defaults to 0: any.
	Index uint64
	// Reason of the change, for the topic's history; up to 512 bytes.
	Reason string
}

// Create makes a new topic, whatever its name, and returns its document. Errors:
// task.ErrExists if it has a document already; what is wrong with the settings, each mistake
// on a line of its own; ErrChanged; Consul's.
func (c *Client) Create(ctx context.Context, topic string, change Change) (Document, error) {
	return c.write(ctx, topic, "create", change)
}

// Set changes settings of a topic, or makes a new one, and returns its document. It keeps the
// document's comments and order. Where the settings are so already nothing is written.
// Errors: as of Create, and task.ErrNotFound if there is no such topic and another's name is so
// much like it that it is likely a slip, or if Change.Index is set.
func (c *Client) Set(ctx context.Context, topic string, change Change) (Document, error) {
	return c.write(ctx, topic, "set", change)
}

func (c *Client) write(ctx context.Context, topic, verb string, change Change) (Document, error) {
	edit := topicdocs.Edit{Replace: change.Replace, Create: verb == "create"}
	var err error
	if edit.Assignments, err = change.assignments(); err == nil {
		err = errors.Join(task.CheckTopic(topic), checkText("reason", change.Reason, topicdocs.MaxReason))
	}
	if err != nil {
		return Document{}, err
	}
	found, err := c.find(ctx, topic, change.Index, edit.Create)
	if err != nil {
		return Document{}, err
	}
	edited, err := edit.Of(topic, found)
	var exists topicdocs.ExistsError
	if errors.As(err, &exists) {
		err = fmt.Errorf("%w: %w", task.ErrExists, err)
	}
	if err != nil || edited.Same {
		return newDocument(found), err
	}
	by := topicdocs.Author{Name: c.author, Verb: verb, Reason: change.Reason}
	written, err := c.documents.Write(ctx, topic, found, edited.Raw, by)
	if err != nil {
		return Document{}, err
	}
	if written.Unkept != nil {
		c.log.WarnContext(ctx, "change of a topic is not in its history", "topic", topic, "error", written.Unkept)
	}
	return newDocument(written.Document), nil
}

// find reads the document that is changed; without an index there is none.
func (c *Client) find(ctx context.Context, topic string, index uint64, create bool) (config.Document, error) {
	found, there, err := c.documents.Read(ctx, topic)
	switch {
	case err != nil:
	case !there && index > 0:
		err = topicdocs.NoDocumentError(topic)
	case !there && !create:
		err = c.documents.RefuseSlip(ctx, topic)
		if slip := (topicdocs.SlipError{}); errors.As(err, &slip) {
			err = fmt.Errorf("%w: %w", task.ErrNotFound, err)
		}
	case there && index > 0 && found.Index != index:
		err = fmt.Errorf("topic %s %w; nothing was written, read it again", topic, ErrChanged)
	}
	return found, err
}

// assignments are the settings in the order of their keys.
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
