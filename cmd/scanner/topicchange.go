package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/consul"
)

// errMeanwhile is about a document that is not what was looked at any more.
var errMeanwhile = errors.New("was changed by somebody else meanwhile")

// write makes raw the document of the topic that was found, or of one that was not there,
// and returns it as it is now. It is an errMeanwhile, and nothing is written, if
// somebody else wrote it since.
func (c consulTopics) write(cmd *cobra.Command, found config.Document, topic string, raw []byte) (config.Document, error) {
	index, err := c.change(cmd, topic, found, consul.Change{Document: raw})
	if err != nil {
		return found, err
	}
	return config.ParseDocument(topic, raw, index), nil
}

// change replaces or removes a topic's document and keeps that in its history. A token
// that may not write the history, as none needed to before there was one, changes the
// document all the same, and that is told on standard error.
func (c consulTopics) change(cmd *cobra.Command, topic string, found config.Document, change consul.Change) (index uint64, err error) {
	ctx := cmd.Context()
	change.At, change.Verb = time.Now().UTC().Truncate(time.Second), cmd.Name()
	change.By, change.Reason = c.author(cmd), flagOf(cmd, reasonFlag)
	ok := false
	h, err := c.client.History(ctx, topic)
	if err == nil {
		index, ok, err = c.client.Commit(ctx, h.Seen(found.Raw, found.Index > 0), found.Index, change)
	}
	if consul.Forbidden(err) {
		unkept := err
		if index, ok, err = c.changeAlone(ctx, topic, found.Index, change); err == nil && ok {
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "topic %s: the change is not in its history: %v\n", topic, unkept)
		}
	}
	if err == nil && !ok {
		done := "written"
		if change.Removed {
			done = "removed"
		}
		err = fmt.Errorf("topic %s %w; nothing was %s, look at it and try again", topic, errMeanwhile, done)
	}
	return index, err
}

// changeAlone replaces or removes a document, and leaves its history as it is.
func (c consulTopics) changeAlone(ctx context.Context, topic string, index uint64, change consul.Change) (written uint64, ok bool, err error) {
	if change.Removed {
		ok, err = c.client.Delete(ctx, topic, index)
		return 0, ok, err
	}
	if ok, err = c.client.Put(ctx, topic, change.Document, index); err != nil || !ok {
		return 0, false, err
	}
	now, there, err := c.client.Get(ctx, topic) // for its index
	if err == nil && !there {
		err = fmt.Errorf("topic %s: its document was removed by somebody else meanwhile", topic)
	}
	return now.Index, true, err
}
