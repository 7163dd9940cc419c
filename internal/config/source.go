package config

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Document is one topic's document in a source.
type Document struct {
	// Name is the topic's name in the source. It may be invalid if Err is set.
	Name string
	// Raw is the topic's own document, for ParseTopic.
	Raw []byte
	// Topic is the parsed Raw; empty if Err is set.
	Topic Topic
	// Err says why the document can't be applied: usually Errors.
	Err error
	// Index grows whenever this document changes. It begins with low numbers again only
	// with a new Consul cluster, or with a new process that reads a file.
	Index uint64
}

// Snapshot is all topics of a source at one moment.
type Snapshot struct {
	// Documents by topic; nil if Err is set.
	Documents map[string]Document
	// Index grows with every change, as a document's does.
	Index uint64
	// Err says why the source can't be read right now. The applied settings stay as they
	// are.
	Err error
}

// Source provides the topics' settings. One Source is File. The other is in package
// topicconfig, and reads Consul's documents with ParseDocument.
type Source interface {
	// Watch calls apply at the start and after every change, until ctx ends; then it
	// returns nil.
	Watch(ctx context.Context, apply func(Snapshot)) error
	// Read returns a topic's current document, or false if there is none.
	Read(ctx context.Context, topic string) (Document, bool, error)
}

// FileSource is the name of every source that is a configuration file, although each
// scanner has its own file.
const FileSource = "file"

// ConsulSource returns the name of the source for Consul's documents under a prefix.
// Consul's address is no part of it.
func ConsulSource(prefix string) string { return "consul:" + prefix }

// ParseDocument makes a Document from the value in a source. It never fails: Err reports
// a broken document.
func ParseDocument(name string, raw []byte, index uint64) Document {
	t, err := ParseTopic(name, raw)
	return Document{Name: name, Raw: raw, Topic: t, Err: err, Index: index}
}

// Digest identifies a document by its text, as 16 hex digits. It is no protection against
// people who forge a text with a given digest.
func Digest(raw []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(raw)) }

// HashAll identifies a set of documents by topic and Digest. Two sets have the same hash
// if every topic's document is the same in both.
func HashAll(digests map[string]string) uint64 {
	all := xxhash.New()
	for _, topic := range slices.Sorted(maps.Keys(digests)) {
		fmt.Fprintf(all, "%s %s\n", topic, digests[topic])
	}
	return all.Sum64()
}
