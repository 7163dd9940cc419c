package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http/httptrace"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/internal/retry"
)

// errOtherConnection is about a query whose index belongs to another connection.
var errOtherConnection = errors.New("not the connection of the last answer")

// strangeGap is the most between two queries where something between here and
// Consul ends the connection after each answer.
const strangeGap = time.Second

// Watch calls apply at the start and after every change, by blocking queries, and
// blocks until ctx ends, which is no error. A Consul that can't be read is one
// Snapshot with Err, until it answers again.
func (c *Client) Watch(ctx context.Context, apply func(Snapshot)) error {
	defer c.http.CloseIdleConnections()
	w := watch{client: c, apply: apply}
	for ctx.Err() == nil {
		asked := time.Now()
		pause := w.step(ctx)
		retry.Sleep(ctx, pause-time.Since(asked))
	}
	return nil
}

// watch is where one Watch stands. Each step asks for news after index and
// gets an answer when there is some, or when the wait is over: an answer means
// that something may have changed. An index that fell belongs to another
// history, so the next step asks without one, as it does after an error.
type watch struct {
	client *Client
	apply  func(Snapshot)

	index   uint64            // 0: answer at once
	conn    net.Conn          // that index came on
	strange int               // queries in a row that got another connection
	seen    map[string]uint64 // index of each key that was applied
	down    bool
	retries int
	warned  bool
}

// step returns the least time from its beginning to that of the next one.
func (w *watch) step(ctx context.Context) time.Duration {
	pairs, meta, err := w.ask(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if errors.Is(err, errOtherConnection) {
		w.index = 0
		w.strange++
		return min(w.client.pace.gap<<min(w.strange, 8), strangeGap)
	}
	if err != nil {
		return w.fail(err)
	}
	w.retries = 0
	if w.index > 0 {
		w.strange = 0
	}
	fell := meta.LastIndex < w.index
	w.index = meta.LastIndex
	now := map[string]uint64{}
	for _, p := range pairs {
		now[p.Key] = p.ModifyIndex
	}
	if _, ok := now[w.client.folder()]; !ok {
		w.makeFolder(ctx)
	}
	delete(now, w.client.folder())
	if w.down || fell || w.seen == nil || !maps.Equal(now, w.seen) {
		w.down, w.seen = false, now
		w.apply(Snapshot{Documents: w.client.documents(pairs), Index: meta.LastIndex})
	}
	if fell {
		w.index = 0
	}
	return w.client.pace.gap
}

// ask sends one query. An index holds on the connection that it came on: what
// listens at the address when there is a new one may be another Consul, restored or
// empty, whose indexes are lower, and there a query for more would hear nothing
// until its wait is over. net/http takes a new connection without a word, also to
// send a query again whose connection ended without an answer; so one with an
// index that is given another connection is given up, and the error says so.
func (w *watch) ask(ctx context.Context) (api.KVPairs, *api.QueryMeta, error) {
	pace := w.client.pace
	limit := pace.limit
	if w.index > 0 {
		limit += pace.wait + pace.wait/16 // Consul adds up to a sixteenth
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	conn := w.conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if conn = got.Conn; w.index > 0 && conn != w.conn {
			stop(errOtherConnection)
		}
	}})
	pairs, meta, err := w.client.query(ctx, w.client.watcher, &api.QueryOptions{WaitIndex: w.index, WaitTime: pace.wait})
	if err != nil && errors.Is(context.Cause(ctx), errOtherConnection) {
		return nil, nil, errOtherConnection
	}
	w.conn = conn
	return pairs, meta, err
}

// fail returns how long to wait: doubled with each error, half of it by chance.
func (w *watch) fail(err error) time.Duration {
	if !w.down {
		w.down = true
		w.apply(Snapshot{Err: err})
	}
	w.index = 0
	pace := w.client.pace
	most := min(pace.minRetry<<min(w.retries, 16), pace.maxRetry)
	w.retries++
	return most/2 + rand.N(most/2+1)
}

// makeFolder creates the key that all topics' keys begin with: a watch on a
// prefix without any key wakes at every write to the store. A token that may
// only read can do without.
func (w *watch) makeFolder(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.client.pace.limit)
	defer cancel()
	pair := &api.KVPair{Key: w.client.folder()}
	_, _, err := w.client.watcher.KV().CAS(pair, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil && !w.warned {
		w.warned = true
		w.client.log.WarnContext(ctx, "can't create the folder of the topics in consul; watching it costs more",
			"key", w.client.folder(), "error", fmt.Sprint(err))
	}
}
