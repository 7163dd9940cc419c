package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/duefleet/duefleet/internal/wake"
)

const (
	// filePoll is how often the file is read.
	filePoll = time.Second
	// fileSettles is how long it takes to read it again once it has changed.
	fileSettles = 250 * time.Millisecond
)

// File is the Source that reads the topics of a config file. It reads the file often. A
// change counts when two readings in a row had the same content, so that a half-written
// file is not used. When reload asks for it, one reading is enough.
type File struct {
	// Beat says when in a second Watch reads.
	Beat wake.Beat

	path   string
	reload <-chan struct{}

	turn sync.Mutex // held while the file is read for callers of Read

	mu    sync.Mutex
	next  *sharedReading // the one that begins next; nil: nobody waits for it
	state string         // hash of the content, or the error of reading it
	last  Snapshot       // the snapshot for state
	docs  map[string]Document
}

// NewFile returns the source of the topics in the file at path. A value from the channel
// reload makes it read and use the file at once. reload may be nil.
func NewFile(path string, reload <-chan struct{}) *File {
	return &File{path: path, reload: reload}
}

// Watch implements Source. If the file can't be read, or has a mistake anywhere, apply
// gets one Snapshot with Err. It gets another one when the file or the error changes.
func (f *File) Watch(ctx context.Context, apply func(Snapshot)) error {
	current, applied := f.look(), uint64(0)
	stable := true
	for {
		if stable {
			if s := f.snapshotOf(current); s.Index != applied {
				applied = s.Index
				apply(s)
			}
		}
		pause := fileSettles
		if stable {
			pause = f.Beat.Until(filePoll)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.reload:
			current, stable = f.look(), true
		case <-time.After(pause):
			seen := current.state
			current = f.look()
			stable = current.state == seen
		}
	}
}

// Read implements Source.
func (f *File) Read(ctx context.Context, topic string) (Document, bool, error) {
	current := f.lookTogether()
	for stable := f.known() == current.state; !stable; {
		select {
		case <-ctx.Done():
			return Document{}, false, fmt.Errorf("read topic %s: %w", topic, ctx.Err())
		case <-time.After(fileSettles):
		}
		seen := current.state
		current = f.lookTogether()
		stable = current.state == seen
	}
	s := f.snapshotOf(current)
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

// look reads the file. The reading of a state that is known has no content, which could be large.
func (f *File) look() reading {
	if known := f.known(); known != "" {
		if state, err := digestFile(f.path); err == nil && state == known {
			return reading{state: state}
		}
	}
	content, err := readLimited(f.path, maxDocument)
	if err != nil {
		return reading{state: err.Error(), err: fmt.Errorf("read config: %w", err)}
	}
	return reading{state: fmt.Sprintf("%x", sha256.Sum256(content)), content: content}
}

// sharedReading is one reading for all callers that waited for it to begin.
type sharedReading struct {
	once sync.Once
	reading
}

// lookTogether returns a reading that begins after the call. Callers share it: a scanner with a
// thousand topics asks a thousand times when it starts.
func (f *File) lookTogether() reading {
	f.mu.Lock()
	if f.next == nil {
		f.next = &sharedReading{}
	}
	shared := f.next
	f.mu.Unlock()
	shared.once.Do(func() {
		f.turn.Lock()
		defer f.turn.Unlock()
		f.mu.Lock()
		f.next = nil // those who call from now on need a later one
		f.mu.Unlock()
		shared.reading = f.look()
	})
	return shared.reading
}

// digestFile returns the state of a file that can be read.
func digestFile(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	_, err = io.Copy(digest, io.LimitReader(file, maxDocument+1))
	return fmt.Sprintf("%x", digest.Sum(nil)), errors.Join(err, file.Close())
}

// known returns the state that the last snapshot is of; "" before the first.
func (f *File) known() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// snapshotOf returns the snapshot for a reading. If the state hasn't changed, it returns the
// last snapshot. A document that didn't change keeps its index.
func (f *File) snapshotOf(g reading) Snapshot {
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

// ReadTopics returns the topics of a file, sorted by name. The file is either a
// configuration file, whose other settings are checked but not used, or only a map of
// topics. In the result, Raw is an equivalent document without comments. The error is
// Errors with all mistakes, or the error of reading the file.
func ReadTopics(path string) ([]Document, error) {
	text, err := readLimited(path, maxDocument)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	errs := &errorList{file: path}
	var docs []Document
	for name, t := range topicsIn(text, errs) {
		docs = append(docs, Document{Name: name, Raw: t.doc, Topic: t.topic})
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	slices.SortFunc(docs, func(a, b Document) int { return strings.Compare(a.Name, b.Name) })
	return docs, nil
}

// topicsIn reads a file as a configuration if it has the key topics, else as a map of
// topics by name.
func topicsIn(text []byte, errs *errorList) map[string]fileTopic {
	quiet := &errorList{file: errs.file}
	root := parse(text, maxFileMarks, quiet)
	if root == nil || slices.ContainsFunc(quiet.pairs("", root), func(p pair) bool { return p.key == "topics" }) {
		return readFile(text, errs).topics
	}
	return readMap(root, errs)
}

func readMap(root ast.Node, errs *errorList) map[string]fileTopic {
	topics := map[string]fileTopic{}
	readTopics(root, topics, errs)
	for i := range errs.list { // the map is the whole file
		errs.list[i].Key = strings.TrimPrefix(strings.TrimPrefix(errs.list[i].Key, "topics"), ".")
	}
	return topics
}
