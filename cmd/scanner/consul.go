package main

import (
	"context"
	"log/slog"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

// openConsul makes a client of the configured Consul; nothing is sent yet.
func openConsul(cfg config.Consul, log *slog.Logger) (*consul.Client, error) {
	token, secure, err := cfg.Fresh(log)
	if err != nil {
		return nil, err
	}
	return consul.New(consul.Config{
		Addr: cfg.Addr, Token: token, TLS: secure, Prefix: cfg.Prefix, Log: log,
		Advice: func(text string) string { return config.Advice("consul", text) },
	})
}

// consulTopics is the config.Source whose topics lie in Consul: it joins what holds
// them to what knows what they say.
type consulTopics struct{ client *consul.Client }

var _ config.Source = consulTopics{}

// Watch implements config.Source.
func (c consulTopics) Watch(ctx context.Context, apply func(config.Snapshot)) error {
	return c.client.Watch(ctx, func(s consul.Snapshot) {
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
func (c consulTopics) Read(ctx context.Context, topic string) (config.Document, bool, error) {
	doc, there, err := c.client.Get(ctx, topic)
	if err != nil || !there {
		return config.Document{}, false, err
	}
	return parsed(doc), true, nil
}

// List returns all topics' documents, by name.
func (c consulTopics) List(ctx context.Context) ([]config.Document, error) {
	list, err := c.client.List(ctx)
	docs := make([]config.Document, len(list))
	for i, doc := range list {
		docs[i] = parsed(doc)
	}
	return docs, err
}

func parsed(d consul.Document) config.Document {
	return config.ParseDocument(d.Topic, d.Raw, d.Index)
}
