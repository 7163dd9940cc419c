package config

import "context"

// Document is one topic as its source holds it.
type Document struct {
	// Name is the topic's, as the source has it: not checked if Err is set.
	Name string
	// Raw is the document by itself, as ParseTopic reads it.
	Raw []byte
	// Topic is what Raw says; empty if Err is set.
	Topic Topic
	// Err says why the document can't be applied: usually Errors.
	Err error
	// Index grows whenever this document changes. It starts anew only with a
	// new Consul, or a new process that reads a file.
	Index uint64
}

// Snapshot is all topics of a source at one moment.
type Snapshot struct {
	// Documents by topic; nil if Err is set.
	Documents map[string]Document
	// Index grows with every change, as a document's does.
	Index uint64
	// Err says why the source can't be read right now. What was applied
	// before stays as it is.
	Err error
}

// Source is where the topics' settings come from: File, or the documents in
// Consul, which a command joins to ParseDocument.
type Source interface {
	// Watch calls apply at the start and after every change, and blocks until
	// ctx ends, which is no error.
	Watch(ctx context.Context, apply func(Snapshot)) error
	// Read returns one topic as it is at this moment, or false if there is no
	// such document.
	Read(ctx context.Context, topic string) (Document, bool, error)
}

// FileSource names the source of documents that is a configuration file: each scanner has
// its own.
const FileSource = "file"

// ConsulSource names the source that is Consul's folder of a prefix, at any address.
func ConsulSource(prefix string) string { return "consul:" + prefix }

// ParseDocument makes a Document of one that a source holds. It never fails: a
// broken one says so in its Err.
func ParseDocument(name string, raw []byte, index uint64) Document {
	t, err := ParseTopic(name, raw)
	return Document{Name: name, Raw: raw, Topic: t, Err: err, Index: index}
}
