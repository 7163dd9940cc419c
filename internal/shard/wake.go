package shard

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/wake"
)

const (
	// wakePause is how long a Listener waits before it tries again to listen to channels that
	// it lost.
	wakePause = 300 * time.Millisecond
	// wakeSilence is how long a connection may be silent before it is pinged.
	wakeSilence = 5 * time.Second
	// wakeChannels bounds the channels of one SSUBSCRIBE.
	wakeChannels = 500
)

// Hearing takes what a Listener hears of one topic. Its functions must not block.
type Hearing struct {
	// Woken takes each score, in ms, that became a shard's earliest.
	Woken func(shard int, score int64)
	// Placed is called for each placement that was put in force.
	Placed func()
	// Listens takes each error by which Redis denies this user to listen (see Denied), and
	// nil while it listens.
	Listens func(error)
}

// Listener listens to the wake channels of topics, on one connection for each Redis node.
// Messages are lost while a connection is down. A worker that waits for the next due time
// notices at the end of its tick. It is safe for concurrent use.
type Listener struct {
	store  *Store
	added  wake.Signal // a channel was added
	failed wake.Signal // a channel was lost

	mu       sync.Mutex
	channels map[string]*wakeChannel // by name
	topics   map[string]*Listening   // by name
	lost     map[string]*wakeChannel // those that no node is asked for
	nodes    map[string]*wakeNode    // by name
}

// Listening is one topic's part of a Listener.
type Listening struct {
	listener *Listener
	topic    *Topic
	hearing  Hearing

	channels   []*wakeChannel // the topic's own, then one for each shard; listener.mu protects these
	subscribed int            // how many of them are
	renewals   uint64         // how often one of them was subscribed to
}

// wakeChannel is one channel of a topic.
type wakeChannel struct {
	name       string
	of         *Listening
	shard      int       // or noShard
	node       *wakeNode // that is asked for it; nil: none is
	subscribed bool
}

// noShard stands for the topic's own channel.
const noShard = -1

// wakeNode is the connection to one node.
type wakeNode struct {
	name   string
	sub    *redis.PubSub   // nil until it is connected
	queue  []string        // channels to subscribe to
	asking map[string]bool // the channels of the command under way
}

// NewListener returns a Listener. It listens while Run runs.
func (s *Store) NewListener() *Listener {
	return &Listener{store: s, added: wake.NewSignal(), failed: wake.NewSignal(), channels: map[string]*wakeChannel{},
		topics: map[string]*Listening{}, lost: map[string]*wakeChannel{}, nodes: map[string]*wakeNode{}}
}

// Listen prepares listening to a topic; Listening.Shards begins it. It ends what an earlier
// call began for the topic.
func (l *Listener) Listen(t *Topic, h Hearing) *Listening {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.topics[t.name]; before != nil {
		before.leave(0)
	}
	one := &Listening{listener: l, topic: t, hearing: h}
	l.topics[t.name] = one
	return one
}

// Shards listens to the first n shards of the topic and to the topic's own channel, and no
// longer to others.
func (o *Listening) Shards(n int) {
	l := o.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics[o.topic.name] != o {
		return
	}
	for at := len(o.channels) - 1; at < n; at++ {
		c := &wakeChannel{name: o.topic.changes(), of: o, shard: at}
		if at != noShard {
			c.name = o.topic.Shard(at).Wake()
		}
		o.channels = append(o.channels, c)
		l.channels[c.name], l.lost[c.name] = c, c
	}
	o.leave(n + 1)
	l.added.Send()
}

// Close ends listening to the topic.
func (o *Listening) Close() {
	o.listener.mu.Lock()
	defer o.listener.mu.Unlock()
	if o.listener.topics[o.topic.name] == o {
		delete(o.listener.topics, o.topic.name)
		o.leave(0)
	}
}

// leave ends listening to all but the first n channels; listener.mu is held. Their messages
// are ignored. SUNSUBSCRIBE would be one more right for a scanner.
func (o *Listening) leave(n int) {
	n = min(n, len(o.channels))
	for _, c := range o.channels[n:] {
		if c.subscribed {
			o.subscribed--
		}
		delete(o.listener.channels, c.name)
		delete(o.listener.lost, c.name)
	}
	o.channels = slices.Clip(o.channels[:n])
}

// Heard reports whether every message about the topic is heard now. While it returns the
// same number of renewals, none can have been lost.
func (o *Listening) Heard() (renewals uint64, all bool) {
	o.listener.mu.Lock()
	defer o.listener.mu.Unlock()
	return o.renewals, len(o.channels) > 0 && o.subscribed == len(o.channels)
}

// Run listens until ctx ends.
func (l *Listener) Run(ctx context.Context) {
	var connections sync.WaitGroup
	defer connections.Wait()
	for ctx.Err() == nil {
		err := l.store.server.Find(ctx)
		if err != nil {
			l.tell(err, nil)
		} else {
			for _, n := range l.assign(ctx) {
				connections.Go(func() { l.serve(ctx, n) })
			}
		}
		l.rest(ctx, err != nil)
	}
}

// rest waits until a channel is added, or for a pause once one is lost or again is true.
func (l *Listener) rest(ctx context.Context, again bool) {
	var paused <-chan time.Time
	for {
		if paused == nil && (again || l.lacks()) {
			paused = time.After(wakePause)
		}
		select {
		case <-l.failed:
			continue
		case <-ctx.Done():
		case <-l.added:
		case <-paused:
		}
		return
	}
}

// lacks reports whether there is a channel that no node is asked for.
func (l *Listener) lacks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lost) > 0
}

// assign gives each lost channel to the node that holds its slot now. It returns the nodes
// without a connection.
func (l *Listener) assign(ctx context.Context) (fresh []*wakeNode) {
	l.mu.Lock()
	names := make([]string, 0, len(l.lost))
	for name := range l.lost {
		names = append(names, name)
	}
	l.mu.Unlock()
	at := make([]string, len(names))
	for i, name := range names {
		at[i] = l.store.nodeOf(ctx, name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, name := range names {
		c := l.lost[name]
		if c == nil || at[i] == "" && l.store.Clustered() { // not wanted any more, or nobody holds the slot
			continue
		}
		n := l.nodes[at[i]]
		if n == nil {
			n = &wakeNode{name: at[i], asking: map[string]bool{}}
			l.nodes[n.name] = n
			fresh = append(fresh, n)
		}
		delete(l.lost, name)
		c.node, n.queue = n, append(n.queue, name)
	}
	for _, n := range l.nodes {
		l.subscribe(ctx, n)
	}
	return fresh
}

// subscribe sends a node the next command, unless one is under way; l.mu is held. An error
// doesn't name the channel, so the next command waits for the answer. In a Redis Cluster a
// command can't name channels of several slots.
func (l *Listener) subscribe(ctx context.Context, n *wakeNode) {
	if n.sub == nil || len(n.asking) > 0 || len(n.queue) == 0 {
		return
	}
	most := wakeChannels
	if l.store.Clustered() {
		most = 1
	}
	names := n.queue[:min(most, len(n.queue))]
	n.queue = n.queue[len(names):]
	for _, name := range names {
		n.asking[name] = true
	}
	_ = n.sub.SSubscribe(ctx, names...) // receive gets the error of a lost connection
}

// serve listens on one connection until it is lost.
func (l *Listener) serve(ctx context.Context, n *wakeNode) {
	l.mu.Lock()
	first := n.queue[0]
	n.queue, n.asking[first] = n.queue[1:], true
	l.mu.Unlock()
	sub := l.store.Client(ctx).SSubscribe(ctx, first) // connects to the node of this channel
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	l.mu.Lock()
	n.sub = sub
	l.mu.Unlock()
	err := l.receive(ctx, n)
	if Denied(err) {
		l.tell(err, n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, n.name)
	for _, c := range l.channels {
		if c.node == n {
			l.lose(c)
		}
	}
}

// lose notes that a channel isn't listened to; l.mu is held.
func (l *Listener) lose(c *wakeChannel) {
	if c.subscribed {
		c.of.subscribed--
	}
	c.subscribed, c.node, l.lost[c.name] = false, nil, c
	l.failed.Send()
}

// receive passes messages on until the connection is lost.
func (l *Listener) receive(ctx context.Context, n *wakeNode) error {
	pinged := false
	for {
		m, err := n.sub.ReceiveTimeout(ctx, wakeSilence)
		var network net.Error
		var refusal redis.Error
		if !pinged && errors.As(err, &network) && network.Timeout() {
			if err = n.sub.Ping(ctx); err != nil {
				return err
			}
			pinged = true
			continue
		}
		pinged = false
		switch m := m.(type) {
		case *redis.Subscription:
			l.subscription(ctx, n, m)
		case *redis.Pong:
			l.tell(nil, n)
		case *redis.Message:
			l.pass(m)
		default:
			if !errors.As(err, &refusal) || !l.refused(ctx, n, err) {
				return err
			}
		}
	}
}

// subscription notes that a subscription began, or that it ended because the slot moved.
func (l *Listener) subscription(ctx context.Context, n *wakeNode, m *redis.Subscription) {
	l.mu.Lock()
	delete(n.asking, m.Channel)
	c := l.channels[m.Channel]
	var listens func(error)
	switch {
	case c == nil || c.node != n:
	case m.Kind == "sunsubscribe":
		l.lose(c)
	case !c.subscribed:
		c.subscribed = true
		c.of.subscribed++
		c.of.renewals++
		listens = c.of.hearing.Listens
	}
	l.subscribe(ctx, n)
	l.mu.Unlock()
	if listens != nil {
		listens(nil)
	}
}

// refused notes that Redis refused a command, and reports whether the connection is still
// of use. The channels of the command are tried again after a pause. If no command is under
// way, it was a PING.
func (l *Listener) refused(ctx context.Context, n *wakeNode, err error) bool {
	if Denied(err) {
		l.tell(err, n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(n.asking) == 0 {
		return Denied(err)
	}
	for name := range n.asking {
		if c := l.channels[name]; c != nil && c.node == n {
			l.lose(c)
		}
	}
	clear(n.asking)
	l.subscribe(ctx, n)
	return true
}

// pass passes on a message.
func (l *Listener) pass(m *redis.Message) {
	l.mu.Lock()
	c := l.channels[m.Channel]
	if c == nil {
		l.mu.Unlock()
		return
	}
	hearing := c.of.hearing
	l.mu.Unlock()
	if c.shard == noShard {
		hearing.Placed()
	} else if score, err := strconv.ParseFloat(m.Payload, 64); err == nil {
		hearing.Woken(c.shard, int64(score))
	}
}

// tell passes on to the topics of a node, or to all topics, that Redis lets this user
// listen, or why not.
func (l *Listener) tell(err error, n *wakeNode) {
	if err != nil && !Denied(err) {
		return
	}
	l.mu.Lock()
	var all []func(error)
	for _, t := range l.topics {
		if n == nil || slices.ContainsFunc(t.channels, func(c *wakeChannel) bool { return c.node == n }) {
			all = append(all, t.hearing.Listens)
		}
	}
	l.mu.Unlock()
	for _, listens := range all {
		listens(err)
	}
}
