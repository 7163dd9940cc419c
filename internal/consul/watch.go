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

// errOtherConnection means that a query got another connection than its index came on.
var errOtherConnection = errors.New("not the connection of the last answer")

// otherConnGap is the longest pause between two queries if each of them gets a new
// connection. That happens with a proxy that closes the connection after each answer.
const otherConnGap = time.Second

// Watch calls apply at the start and after every change, until ctx ends; then it returns
// nil. It uses Consul's blocking queries, which Consul answers at the next change. If
// Consul can't be read, apply gets one Snapshot with Err, and the next one when Consul
// answers again.
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

// watch is the state of one Watch. Each step asks for changes after index. Consul answers
// when there is one or when the wait is over, so an answer doesn't prove a change. If an
// answer has a lower index than the last one, Consul was replaced or restored. Then, and
// after an error, the next step asks without an index.
type watch struct {
	client *Client
	apply  func(Snapshot)

	index      uint64            // 0: answer at once
	conn       net.Conn          // index came on it
	otherConns int               // queries in a row that got another connection
	seen       map[string]uint64 // index of each key in the last snapshot
	down       bool
	retries    int
	warned     bool
}

// step sends one query and applies the answer. It returns the shortest time from its
// beginning to the beginning of the next step.
func (w *watch) step(ctx context.Context) time.Duration {
	pairs, meta, err := w.ask(ctx)
	if ctx.Err() != nil {
		return 0
	}
	if errors.Is(err, errOtherConnection) {
		w.index = 0
		w.otherConns++
		return min(w.client.pace.gap<<min(w.otherConns, 8), otherConnGap)
	}
	if err != nil {
		return w.fail(err)
	}
	w.retries = 0
	if w.index > 0 {
		w.otherConns = 0
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

// ask sends one query. An index is valid only on the connection it came on. On a new
// connection another Consul may answer, restored or empty, whose indexes are lower. It
// would hold a query with a higher index until the wait is over, and a change would be
// seen late.
//
// net/http opens a new connection without telling the caller. It even repeats a query on
// a new one if the old one ended without an answer. So if a query with an index gets
// another connection, ask cancels it and returns errOtherConnection.
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

// fail reports the first of several errors to apply, and returns how long to wait. The
// time doubles with each error; half of it is random.
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

// makeFolder creates the key of the topics' folder. While there is no key under the
// folder, every write to Consul's store ends a blocking query. With a token that may only
// read, the watch works without the key.
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
