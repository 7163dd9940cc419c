package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/task"
)

const (
	// maxChanges is how many documents of a topic its history holds.
	maxChanges = 20
	// maxHistory bounds a history, in bytes as it is stored. A transaction of Consul takes
	// 512 KB, in which the history is a third larger, beside the document.
	maxHistory = 192 << 10
)

// Change is one entry of a topic's history: a document, and how it came to be in force.
type Change struct {
	// Number counts the changes of a topic from 1.
	Number uint64 `json:"number"`
	// At is when, by the clock of who did it; zero if that is not known.
	At time.Time `json:"at,omitzero"`
	// By is who, as user@host or a name that was given; empty if that is not known, as of a client of Consul that
	// keeps no history.
	By string `json:"by,omitempty"`
	// Verb is how, as in "set"; empty where By is.
	Verb string `json:"verb,omitempty"`
	// Reason is why, in the words of who did it; empty if that was not said.
	Reason string `json:"reason,omitempty"`
	// Document is what was in force from then on. It is base64 in Consul, for it may be no
	// UTF-8.
	Document []byte `json:"document,omitempty"`
	// Removed says that from then on there was no document.
	Removed bool `json:"removed,omitempty"`
	// Dropped says that the document was too large to be kept.
	Dropped bool `json:"dropped,omitempty"`
}

// History is the newest changes of a topic's document, by those who keep one.
type History struct {
	Topic string `json:"-"`
	// Changes are the oldest first.
	Changes []Change `json:"changes"`
	// Index grows whenever the history does; 0 if there is none.
	Index uint64 `json:"-"`
}

// History returns a topic's history as Consul's leader has it now; an empty one if there
// is none. One that is no history is an error, and says how to begin it anew.
func (c *Client) History(ctx context.Context, topic string) (History, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	h := History{Topic: topic}
	q := &api.QueryOptions{RequireConsistent: true}
	pair, _, err := c.client.KV().Get(c.historyKey(topic), q.WithContext(ctx))
	switch {
	case err != nil:
		return h, c.fail(err, "read history of topic %s from consul", topic)
	case pair == nil:
		return h, nil
	}
	h.Index = pair.ModifyIndex
	if err := json.Unmarshal(pair.Value, &h); err != nil {
		return h, fmt.Errorf("history of topic %s is not to be read, begin it anew with `consul kv delete %s`: %w", topic, c.historyKey(topic), err)
	}
	return h, nil
}

// historyKey lies beside the documents and not among them: who watches those hears
// nothing of it.
func (c *Client) historyKey(topic string) string { return c.prefix + "/history/" + topic }

// Newest is the last change, or false if there is none.
func (h History) Newest() (Change, bool) {
	if len(h.Changes) == 0 {
		return Change{}, false
	}
	return h.Changes[len(h.Changes)-1], true
}

// Before is the change in front of the newest one, or false if there is none or it left no
// document.
func (h History) Before() (Change, bool) {
	if len(h.Changes) < 2 {
		return Change{}, false
	}
	before := h.Changes[len(h.Changes)-2]
	return before, !before.Removed && !before.Dropped
}

// Seen returns the history with the document that was found: if it is not what the
// newest change left, somebody changed it who keeps no history, and that is a change
// by nobody who is known. there is false where no document was found.
func (h History) Seen(document []byte, there bool) History {
	newest, known := h.Newest()
	switch {
	case !there && (!known || newest.Removed):
		return h
	case there && known && !newest.Removed && (newest.Dropped || bytes.Equal(newest.Document, document)):
		return h
	}
	return h.with(Change{Document: document, Removed: !there})
}

// with returns the history with one more change, and without what is too much.
func (h History) with(change Change) History {
	newest, _ := h.Newest()
	change.Number = newest.Number + 1
	h.Changes = append(slices.Clone(h.Changes), change)
	h.Changes = h.Changes[max(0, len(h.Changes)-maxChanges):]
	return h
}

// stored is the history as bytes: the oldest changes go while it is too large, and at
// last the document of the newest.
func (h History) stored() ([]byte, error) {
	for {
		text, err := json.Marshal(h)
		if err != nil || len(text) <= maxHistory {
			return text, err
		}
		if len(h.Changes) > 1 {
			h.Changes = h.Changes[1:]
			continue
		}
		h.Changes = slices.Clone(h.Changes)
		h.Changes[0].Document, h.Changes[0].Dropped = nil, true
	}
}

// Commit replaces or removes a topic's document as change says, and enters that into the
// history: both, or neither. h is what History returned and Seen made of it, index that of
// the document; 0 where there must be none. It returns the document's new index, or
// false if the document or its history was written meanwhile. An error that is Forbidden
// may be about the history alone.
func (c *Client) Commit(ctx context.Context, h History, index uint64, change Change) (written uint64, ok bool, err error) {
	if err := task.CheckTopic(h.Topic); err != nil {
		return 0, false, err
	}
	kept, err := h.with(change).stored()
	if err != nil {
		return 0, false, fmt.Errorf("history of topic %s: %w", h.Topic, err)
	}
	document := &api.KVTxnOp{Verb: api.KVCAS, Key: c.key(h.Topic), Value: change.Document, Index: index}
	if change.Removed {
		document = &api.KVTxnOp{Verb: api.KVDeleteCAS, Key: c.key(h.Topic), Index: index}
	}
	history := &api.KVTxnOp{Verb: api.KVCAS, Key: c.historyKey(h.Topic), Value: kept, Index: h.Index}
	results, ok, err := c.transact(ctx, document, history)
	if err != nil {
		return 0, false, c.fail(err, "write topic %s and its history to consul", h.Topic)
	}
	for _, r := range results { // a document that was so before keeps its index
		if r.KV != nil && r.KV.Key == c.key(h.Topic) {
			written = r.KV.ModifyIndex
		}
	}
	return written, ok, nil
}

// transact carries out all operations, or none. False is a conflict: an index is not that
// of its key any more.
func (c *Client) transact(ctx context.Context, ops ...*api.KVTxnOp) (results api.TxnResults, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	all := make(api.TxnOps, len(ops))
	for i, op := range ops {
		all[i] = &api.TxnOp{KV: op}
	}
	ok, answer, _, err := c.client.Txn().Txn(all, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil || ok {
		if ok {
			results = answer.Results
		}
		return results, ok, err
	}
	for _, e := range answer.Errors {
		if strings.Contains(e.What, "Permission denied") {
			return nil, false, fmt.Errorf("%w: %s", errDenied, e.What)
		}
		if !strings.Contains(e.What, "index is stale") {
			return nil, false, errors.New(e.What)
		}
	}
	return nil, false, nil
}
