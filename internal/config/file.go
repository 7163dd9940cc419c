package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"
)

// filePoll is how often the file is read.
const filePoll = 250 * time.Millisecond

// File is the Source that reads the topics of a config file. A change counts once two
// readings in a row saw the same content, so that a file is not used while somebody is
// writing it. After a signal it counts at once.
type File struct {
	path   string
	reload <-chan struct{}

	mu    sync.Mutex
	state string   // hash of the content, or the error of reading it
	last  Snapshot // the snapshot for state
	docs  map[string]Document
}

// NewFile returns the source of the topics in the file at path. A receive from reload,
// which may be nil, makes it read the file at once.
func NewFile(path string, reload <-chan struct{}) *File {
	return &File{path: path, reload: reload}
}

// Watch implements Source. A file that can't be read, or has an error anywhere, gives one
// Snapshot with Err each time it changes.
func (f *File) Watch(ctx context.Context, apply func(Snapshot)) error {
	ticker := time.NewTicker(filePoll)
	defer ticker.Stop()
	current, applied := f.look(), uint64(0)
	settled := true
	for {
		if settled {
			if s := f.take(current); s.Index != applied {
				applied = s.Index
				apply(s)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.reload:
			current, settled = f.look(), true
		case <-ticker.C:
			seen := current.state
			current = f.look()
			settled = current.state == seen
		}
	}
}

// Read implements Source.
func (f *File) Read(ctx context.Context, topic string) (Document, bool, error) {
	current := f.look()
	for settled := f.known(current); !settled; {
		select {
		case <-ctx.Done():
			return Document{}, false, fmt.Errorf("read topic %s: %w", topic, ctx.Err())
		case <-time.After(filePoll):
		}
		seen := current.state
		current = f.look()
		settled = current.state == seen
	}
	s := f.take(current)
	if s.Err != nil {
		return Document{}, false, fmt.Errorf("read topic %s: %w", topic, s.Err)
	}
	d, ok := s.Documents[topic]
	return d, ok, nil
}

// reading is the result of reading the file once.
type reading struct {
	state   string
	content []byte
	err     error
}

func (f *File) look() reading {
	content, err := readLimited(f.path, maxDocument)
	if err != nil {
		return reading{state: err.Error(), err: fmt.Errorf("read config: %w", err)}
	}
	return reading{state: fmt.Sprintf("%x", sha256.Sum256(content)), content: content}
}

func (f *File) known(g reading) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last.Index > 0 && f.state == g.state
}

// take returns the snapshot for a reading. The same state gives the same snapshot. A
// document that didn't change keeps its index.
func (f *File) take(g reading) Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last.Index > 0 && f.state == g.state {
		return f.last
	}
	f.state = g.state
	next := Snapshot{Index: f.last.Index + 1, Err: g.err}
	errs := &errorList{file: f.path}
	if next.Err == nil {
		parsed := readFile(g.content, errs)
		next.Err = errs.err()
		next.Documents = f.documents(parsed.topics, next.Index)
	}
	if next.Err != nil {
		next.Documents = nil
	} else {
		f.docs = next.Documents
	}
	f.last = next
	return next
}

func (f *File) documents(topics map[string]fileTopic, index uint64) map[string]Document {
	all := make(map[string]Document, len(topics))
	for name, t := range topics {
		d := Document{Name: name, Raw: t.doc, Topic: t.topic, Index: index}
		if old, ok := f.docs[name]; ok && bytes.Equal(old.Raw, d.Raw) {
			d.Index = old.Index
		}
		all[name] = d
	}
	return all
}

var _ Source = (*File)(nil)
