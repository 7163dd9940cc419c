package topicconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

// ErrMeanwhile: the document changed since it was read.
var ErrMeanwhile = errors.New("was changed by somebody else meanwhile")

const (
	// MaxAuthor is the longest author in a history, in bytes.
	MaxAuthor = 128
	// MaxReason is the longest reason in a history, in bytes.
	MaxReason = 512
)

// Author describes a change of a document for the topic's history.
type Author struct {
	// Name of the author. Defaults to the name of Consul's token, else to Caller.
	Name string
	// Verb is the command, as in "set".
	Verb string
	// Reason of the change; empty if none was given.
	Reason string
}

// Committed is the result of a change.
type Committed struct {
	// Document after the change; without a name if it was removed.
	Document config.Document
	// Unkept is the error that kept the change out of the topic's history; nil if it is
	// there.
	Unkept error
}

// Commit writes the document of a plan. It replaces the document found, or creates one if
// found has no index. If somebody else wrote the document since, Commit writes nothing and
// returns an ErrMeanwhile. If the token may not write the history, Commit still writes the
// document, because older tokens lack that right; see Committed.Unkept.
func (d Documents) Commit(ctx context.Context, p Plan, by Author) (Committed, error) {
	return d.commit(ctx, p, by, d.Consul.History)
}

func (d Documents) commit(ctx context.Context, p Plan, by Author, read readHistory) (Committed, error) {
	change := consul.Change{Document: p.After.Raw}
	index, unkept, err := d.change(ctx, p.After.Name, p.Found, change, by, read)
	p.After.Index = index
	return Committed{p.After, unkept}, err
}

// Remove removes the document found, under the same conditions as Commit.
func (d Documents) Remove(ctx context.Context, found config.Document, by Author) (Committed, error) {
	_, unkept, err := d.change(ctx, found.Name, found, consul.Change{Removed: true}, by, d.Consul.History)
	return Committed{Unkept: unkept}, err
}

// readHistory returns a topic's history, as consul.Client.History does.
type readHistory func(ctx context.Context, topic string) (consul.History, error)

// readTogether returns the histories of topics that are written together. It reads many in one
// request. If that fails, for example because the token may read only some, each topic's history
// is read when the topic is written.
func (d Documents) readTogether(ctx context.Context, topics int) readHistory {
	if topics <= writtenAtOnce {
		return d.Consul.History
	}
	all, err := d.Consul.Histories(ctx)
	if err != nil {
		return d.Consul.History
	}
	return func(_ context.Context, topic string) (consul.History, error) {
		if h, there := all[topic]; there {
			return h.History, h.Err
		}
		return consul.History{Topic: topic}, nil
	}
}

// change returns the new index of the document, and the error that kept the change out of
// its history.
func (d Documents) change(ctx context.Context, topic string, found config.Document, change consul.Change,
	by Author, read readHistory) (index uint64, unkept, err error) {
	change.At, change.Verb = time.Now().UTC().Truncate(time.Second), by.Verb
	change.By, change.Reason = d.author(ctx, by.Name), by.Reason
	ok := false
	h, err := read(ctx, topic)
	if err == nil {
		index, ok, err = d.Consul.Commit(ctx, h.Seen(found.Raw, found.Index > 0), found.Index, change)
	}
	if consul.Forbidden(err) {
		unkept = err
		index, ok, err = d.changeAlone(ctx, topic, found.Index, change)
	}
	if err == nil && !ok {
		did := "written"
		if change.Removed {
			did = "removed"
		}
		err = fmt.Errorf("topic %s %w; nothing was %s, look at it and try again", topic, ErrMeanwhile, did)
	}
	return index, unkept, err
}

// changeAlone replaces or removes a document and doesn't touch its history.
func (d Documents) changeAlone(ctx context.Context, topic string, index uint64, change consul.Change) (written uint64,
	ok bool, err error) {
	if change.Removed {
		ok, err = d.Consul.Delete(ctx, topic, index)
		return 0, ok, err
	}
	if ok, err = d.Consul.Put(ctx, topic, change.Document, index); err != nil || !ok {
		return 0, false, err
	}
	now, there, err := d.Consul.Get(ctx, topic) // for its index
	if err == nil && !there {
		err = fmt.Errorf("topic %s: its document was removed by somebody else meanwhile", topic)
	}
	return now.Index, true, err
}

// author returns the author of a change: as if it is given, else the name of Consul's
// token, else Caller.
func (d Documents) author(ctx context.Context, as string) string {
	if as != "" {
		return as
	}
	// Without ACLs in Consul this call returns an error.
	if name, err := d.Consul.TokenName(ctx); err == nil && name != "" {
		return name[:min(len(name), MaxAuthor)]
	}
	return Caller(os.Getenv)
}

// Caller returns the user who runs the program, as user@host. That is the user behind
// sudo or SSH if the environment names one, else the user of the process.
func Caller(getenv func(string) string) string {
	name := fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = cmp.Or(getenv("SUDO_USER"), getenv("SSH_USER"), name)
	host, _ := os.Hostname() // on an error: "?"
	return name + "@" + cmp.Or(host, "?")
}
