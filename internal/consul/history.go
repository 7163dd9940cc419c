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
	// maxChanges is how many changes a topic's history holds.
	maxChanges = 20
	// maxHistory bounds a stored history, in bytes. Consul limits a transaction to 512
	// KB. It has to hold the document and the history, which its encoding makes a third
	// larger.
	maxHistory = 192 << 10
)

// Change is one entry of a topic's history: a document and how it came into effect.
type Change struct {
	// Number counts the changes of a topic from 1.
	Number uint64 `json:"number"`
	// At is the time by the clock of the machine that made the change; zero if unknown.
	At time.Time `json:"at,omitzero"`
	// By names the person or program that made the change, as user@host or as a given
	// name. It is empty if unknown, for example if a client of Consul wrote the document
	// without the history.
	By string `json:"by,omitempty"`
	// Verb is the kind of change, as in "set"; empty if By is.
	Verb string `json:"verb,omitempty"`
	// Reason is the reason that the author gave; empty if there was none.
	Reason string `json:"reason,omitempty"`
	// Document is the document in effect from then on. It is base64 in Consul, because it
	// may not be UTF-8.
	Document []byte `json:"document,omitempty"`
	// Removed is true if there was no document from then on.
	Removed bool `json:"removed,omitempty"`
	// Dropped is true if the document was too large to be kept.
	Dropped bool `json:"dropped,omitempty"`
}

// History holds the newest changes of a topic's document. duefleet's programs add their
// changes to it. Other clients of Consul don't; see Seen.
type History struct {
	Topic string `json:"-"`
	// Changes begin with the oldest.
	Changes []Change `json:"changes"`
	// Index grows whenever the history changes; 0 if there is none.
	Index uint64 `json:"-"`
}

// History returns a topic's history as Consul's leader has it now; an empty one if there
// is none. If the value isn't a history, the error says how to start a new one.
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
	return c.parseHistory(topic, pair)
}

// parseHistory reads a stored history.
func (c *Client) parseHistory(topic string, pair *api.KVPair) (History, error) {
	h := History{Topic: topic, Index: pair.ModifyIndex}
	if err := json.Unmarshal(pair.Value, &h); err != nil {
		return h, fmt.Errorf("history of topic %s can't be read, start a new one with `consul kv delete %s`: %w", topic,
			c.historyKey(topic), err)
	}
	return h, nil
}

// HistoryRead is a history, or the error of Client.History.
type HistoryRead struct {
	History History
	Err     error
}

// Histories returns all histories by topic, in one request. Removed topics have one, too. The
// read is consistent, as in Get. If the token may not read all histories, the error is
// Forbidden.
func (c *Client) Histories(ctx context.Context) (map[string]HistoryRead, error) {
	ctx, cancel := context.WithTimeout(ctx, c.pace.limit)
	defer cancel()
	folder := c.historyKey("")
	q := &api.QueryOptions{RequireConsistent: true}
	pairs, meta, err := c.client.KV().List(folder, q.WithContext(ctx))
	switch {
	case err == nil && meta.ResultsFilteredByACLs:
		err = fmt.Errorf("%w %s", errUnreadable, folder)
	case err == nil && len(pairs) == 0: // Consul doesn't report that it left out all
		_, _, err = c.client.KV().Get(folder, q.WithContext(ctx))
	}
	if err != nil {
		return nil, c.fail(err, "list histories of topics in consul")
	}
	all := make(map[string]HistoryRead, len(pairs))
	for _, pair := range pairs {
		name := strings.TrimPrefix(pair.Key, folder)
		if name != "" && !strings.HasSuffix(name, "/") {
			h, err := c.parseHistory(name, pair)
			all[name] = HistoryRead{h, err}
		}
	}
	return all, nil
}

// historyKey is not in the documents' folder, so that a change of the history wakes no
// watch of the documents.
func (c *Client) historyKey(topic string) string { return c.prefix + "/history/" + topic }

// Newest returns the last change, or false if there is none.
func (h History) Newest() (Change, bool) {
	if len(h.Changes) == 0 {
		return Change{}, false
	}
	return h.Changes[len(h.Changes)-1], true
}

// Before returns the change before the newest one. It returns false if there is none or
// if it left no document.
func (h History) Before() (Change, bool) {
	if len(h.Changes) < 2 {
		return Change{}, false
	}
	before := h.Changes[len(h.Changes)-2]
	return before, !before.Removed && !before.Dropped
}

// Seen compares the history with the document that Consul has now; there is false if it
// has none. If the newest change doesn't have this document, somebody wrote it without
// the history. Seen then returns the history with that change added, without an author.
// Otherwise it returns h.
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

// with returns the history with one more change, and without the oldest if there are more
// than maxChanges.
func (h History) with(change Change) History {
	newest, _ := h.Newest()
	change.Number = newest.Number + 1
	h.Changes = append(slices.Clone(h.Changes), change)
	h.Changes = h.Changes[max(0, len(h.Changes)-maxChanges):]
	return h
}

// stored returns the history as bytes of at most maxHistory. To make it fit, it drops the
// oldest changes, and at last the document of the newest change.
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

// Commit replaces or removes a topic's document as change says, and adds the change to
// the history, in one transaction. h is the result of History and then Seen. index is the
// document's present index, or 0 to require that there is no document.
//
// It returns the document's new index. It returns false if somebody wrote the document or
// its history meanwhile; Commit then changed nothing. If an error is Forbidden, the token
// may lack only the right to write the history.
func (c *Client) Commit(ctx context.Context, h History, index uint64, change Change) (written uint64, ok bool,
	err error) {
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
	for _, r := range results { // writing the same document again keeps its index
		if r.KV != nil && r.KV.Key == c.key(h.Topic) {
			written = r.KV.ModifyIndex
		}
	}
	return written, ok, nil
}

// transact executes all operations or none. It returns false on a conflict: a key's index
// has changed.
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
