package topicdocs

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

// ErrMeanwhile is about a document that is not what was read any more.
var ErrMeanwhile = errors.New("was changed by somebody else meanwhile")

const (
	// MaxAuthor bounds what a history keeps of who made a change, in bytes.
	MaxAuthor = 128
	// MaxReason bounds what it keeps of why, in bytes.
	MaxReason = 512
)

// Author is who changes a document, for its history.
type Author struct {
	// Name of who it is. Defaults to that of Consul's token, else to the caller.
	Name string
	// Verb is how, as in "set".
	Verb string
	// Reason is why; empty if that is not said.
	Reason string
}

// Committed is what a change left.
type Committed struct {
	// Document as it is now; without a name if it was removed.
	Document config.Document
	// Unkept is why the change is not in the topic's history; nil if it is.
	Unkept error
}

// Write makes raw the document of a topic: in place of the one that was found, or of none if
// found has no index. It is an ErrMeanwhile, and nothing is written, if somebody else wrote
// the document since. A token that may not write the history, as none needed to before there
// was one, changes the document all the same.
func (d Documents) Write(
	ctx context.Context, topic string, found config.Document, raw []byte, by Author,
) (Committed, error) {
	done, err := d.change(ctx, topic, found, consul.Change{Document: raw}, by)
	if err != nil {
		return Committed{Document: found}, err
	}
	return Committed{config.ParseDocument(topic, raw, done.index), done.unkept}, nil
}

// Remove removes the document that was found, as Write writes.
func (d Documents) Remove(ctx context.Context, found config.Document, by Author) (Committed, error) {
	done, err := d.change(ctx, found.Name, found, consul.Change{Removed: true}, by)
	return Committed{Unkept: done.unkept}, err
}

// changed is the index of a document that was written, and why that is not in its history.
type changed struct {
	index  uint64
	unkept error
}

func (d Documents) change(
	ctx context.Context, topic string, found config.Document, change consul.Change, by Author,
) (done changed, err error) {
	change.At, change.Verb = time.Now().UTC().Truncate(time.Second), by.Verb
	change.By, change.Reason = d.author(ctx, by.Name), by.Reason
	ok := false
	h, err := d.Consul.History(ctx, topic)
	if err == nil {
		done.index, ok, err = d.Consul.Commit(ctx, h.Seen(found.Raw, found.Index > 0), found.Index, change)
	}
	if consul.Forbidden(err) {
		done.unkept = err
		done.index, ok, err = d.changeAlone(ctx, topic, found.Index, change)
	}
	if err == nil && !ok {
		did := "written"
		if change.Removed {
			did = "removed"
		}
		err = fmt.Errorf("topic %s %w; nothing was %s, look at it and try again", topic, ErrMeanwhile, did)
	}
	return done, err
}

// changeAlone replaces or removes a document, and leaves its history as it is.
func (d Documents) changeAlone(
	ctx context.Context, topic string, index uint64, change consul.Change,
) (written uint64, ok bool, err error) {
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

// author names the author of a change: as, if that is given, else the name of Consul's token,
// else the caller.
func (d Documents) author(ctx context.Context, as string) string {
	if as != "" {
		return as
	}
	// Where Consul has no ACLs it is an error to ask.
	if name, err := d.Consul.TokenName(ctx); err == nil && name != "" {
		return name[:min(len(name), MaxAuthor)]
	}
	return Caller(os.Getenv)
}

// Caller returns the user who calls the program, as user@host: the one behind sudo or SSH if
// the environment names one, else the process's.
func Caller(getenv func(string) string) string {
	name := fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = cmp.Or(getenv("SUDO_USER"), getenv("SSH_USER"), name)
	host, _ := os.Hostname() // without one there is nothing better
	return name + "@" + cmp.Or(host, "?")
}
