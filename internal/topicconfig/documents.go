// Package topicconfig reads, checks and writes the topics' documents in Consul, for
// `scanner topic` and package topics. It joins internal/consul, which stores documents
// and their histories, with internal/config, which parses and checks them.
package topicconfig

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/connect"
	"github.com/duefleet/duefleet/internal/consul"
	"github.com/duefleet/duefleet/internal/didyoumean"
	"github.com/duefleet/duefleet/task"
)

// Documents are the topics' documents in one Consul. It implements config.Source.
type Documents struct{ Consul *consul.Client }

var _ config.Source = Documents{}

// Open returns the documents of the configured Consul. It sends nothing yet.
func Open(cfg config.Consul, log *slog.Logger) (Documents, error) {
	token, secure, err := connect.Consul(cfg, log)
	if err != nil {
		return Documents{}, err
	}
	client, err := consul.New(consul.Config{
		Addr: cfg.Addr, Token: token, TLS: secure, Prefix: cfg.Prefix, Log: log,
		Advice: func(text string) string { return connect.Advice("consul", text) },
	})
	return Documents{client}, err
}

// Watch implements config.Source.
func (d Documents) Watch(ctx context.Context, apply func(config.Snapshot)) error {
	return d.Consul.Watch(ctx, func(s consul.Snapshot) {
		snapshot := config.Snapshot{Index: s.Index, Err: s.Err}
		if s.Err == nil {
			snapshot.Documents = make(map[string]config.Document, len(s.Documents))
		}
		for topic, doc := range s.Documents {
			snapshot.Documents[topic] = parsed(doc)
		}
		apply(snapshot)
	})
}

// Read implements config.Source.
func (d Documents) Read(ctx context.Context, topic string) (config.Document, bool, error) {
	doc, there, err := d.Consul.Get(ctx, topic)
	if err != nil || !there {
		return config.Document{}, false, err
	}
	return parsed(doc), true, nil
}

// Find is like Read, but a missing document is a NoDocumentError.
func (d Documents) Find(ctx context.Context, topic string) (config.Document, error) {
	doc, there, err := d.Read(ctx, topic)
	if err == nil && !there {
		err = NoDocumentError(topic)
	}
	return doc, err
}

// Superseded returns an error if the topic's document was removed or asks for another
// shard count than doc. It returns nil if Consul doesn't answer: scanners then go on with
// the document that they know.
func (d Documents) Superseded(ctx context.Context, doc config.Document) error {
	now, there, err := d.Read(ctx, doc.Name)
	why := ""
	switch {
	case err == nil && !there:
		why = "document was removed"
	case err == nil && now.Err == nil && now.Topic.Shards != doc.Topic.Shards:
		why = fmt.Sprintf("document says %d shards now (index %d)", now.Topic.Shards, now.Index)
	default:
		return nil
	}
	return fmt.Errorf("topic %s: the change to %d shards was superseded: the topic's %s", doc.Name, doc.Topic.Shards, why)
}

// List returns the documents of all topics, by name.
func (d Documents) List(ctx context.Context) ([]config.Document, error) {
	list, err := d.Consul.List(ctx)
	docs := make([]config.Document, len(list))
	for i, doc := range list {
		docs[i] = parsed(doc)
	}
	return docs, err
}

// Misnamed returns the document with a name that no topic may have. Without one the error
// is task.ErrNotFound.
func (d Documents) Misnamed(ctx context.Context, name string) (config.Document, error) {
	docs, err := d.List(ctx)
	if err != nil {
		return config.Document{}, err
	}
	at := slices.IndexFunc(docs, func(doc config.Document) bool { return doc.Name == name })
	if at < 0 {
		return config.Document{}, fmt.Errorf("no document in consul is named %q, nor is a topic: %w: %w", name,
			task.CheckTopic(name), task.ErrNotFound)
	}
	return docs[at], nil
}

// RemoveMisnamed removes a document of Misnamed, unless somebody else wrote it since.
func (d Documents) RemoveMisnamed(ctx context.Context, doc config.Document) error {
	ok, err := d.Consul.Delete(ctx, doc.Name, doc.Index)
	if err == nil && !ok {
		err = fmt.Errorf("document %q %w; nothing was removed", doc.Name, ErrMeanwhile)
	}
	return err
}

// LikelyMeant returns the existing topic that a new topic's name is probably a typing error for,
// or "".
func (d Documents) LikelyMeant(ctx context.Context, topic string) (string, error) {
	docs, err := d.List(ctx)
	names := make([]string, len(docs))
	for i, doc := range docs {
		names[i] = doc.Name
	}
	return didyoumean.Of(topic, names), err
}

// RefuseLikelyTypo returns a LikelyTypoError if LikelyMeant finds a topic.
func (d Documents) RefuseLikelyTypo(ctx context.Context, topic string) error {
	like, err := d.LikelyMeant(ctx, topic)
	if err == nil && like != "" {
		err = LikelyTypoError{topic, like}
	}
	return err
}

// LikelyTypoError says that Topic doesn't exist, and Like was probably meant.
type LikelyTypoError struct{ Topic, Like string }

func (e LikelyTypoError) Error() string {
	return fmt.Sprintf("there is no topic %s; did you mean %s? `scanner topic create %s key=value...` makes a new one; "+
		"nothing was written", e.Topic, e.Like, e.Topic)
}

// History returns a topic's history and its document as they were at one moment. The
// newest change in it is the one that made the document. Without a history and a document
// the error is a NoDocumentError.
func (d Documents) History(ctx context.Context, topic string) (consul.History, config.Document, error) {
	h, err := d.Consul.History(ctx, topic)
	for err == nil {
		var doc config.Document
		if doc, _, err = d.Read(ctx, topic); err != nil {
			break
		}
		read := h.Index
		if h, err = d.Consul.History(ctx, topic); err != nil || h.Index != read {
			continue // written while the document was read
		}
		if h = h.Seen(doc.Raw, doc.Index > 0); len(h.Changes) == 0 {
			err = NoDocumentError(topic)
		}
		return h, doc, err
	}
	return h, config.Document{}, err
}

// NoDocumentError says that the topic has no document in Consul. It matches task.ErrNotFound.
type NoDocumentError string

func (e NoDocumentError) Error() string {
	const text = "topic %s has no document in consul; `scanner topic create %s key=value...` makes one"
	return fmt.Sprintf(text, string(e), string(e))
}

// Is makes the error match task.ErrNotFound.
func (e NoDocumentError) Is(target error) bool { return target == task.ErrNotFound }

func parsed(d consul.Document) config.Document {
	return config.ParseDocument(d.Topic, d.Raw, d.Index)
}
