// Package luascript sends Lua scripts to Redis: one server, sentinels or a cluster. Its
// arguments and replies have types. It estimates Redis's clock, waits for replicas, repeats
// calls whose reply was lost, and words refusals so that they name the missing right. It
// knows no key and no script by itself.
package luascript

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/retry"
	"github.com/duefleet/duefleet/task"
)

// Client sends scripts to one Redis. It is safe for concurrent use.
type Client struct {
	server   *Server
	scripts  map[string]script
	clock    clock
	replicas int // to wait for; see AwaitReplicas
}

// script is one script. Redis knows it by the hash of its text.
type script struct{ hash, text string }

// New returns a client for scripts, which are texts by name. It sends nothing.
func New(server *Server, texts map[string]string) *Client {
	c := &Client{server: server, scripts: make(map[string]script, len(texts))}
	for name, text := range texts {
		c.scripts[name] = script{hash: redis.NewScript(text).Hash(), text: text}
	}
	return c
}

// Call is one execution of a script.
type Call struct {
	Script string
	Keys   []string
	// Args are strings, bytes, whole numbers, bools (sent as 1 or 0) and DeadlineArg.
	Args []any
	// Deadline is a Redis time in ms after which the script does nothing. It is sent in
	// the place of DeadlineArg. 0: the call has none and may be repeated at any time.
	Deadline int64
	// Renew returns the arguments of a repeat, nil if nobody waits for the call any more.
	// A nil Renew repeats Args.
	Renew func() []any
	// ReplicasKey is the hash that notes how many replicas were waited for, if replicas
	// must have what the call writes. "": they need not.
	ReplicasKey string
}

// DeadlineArg stands for Call.Deadline among the arguments.
type DeadlineArg struct{}

// once is a command that go-redis never repeats by itself.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis not to repeat the command.
func (once) NoRetry() bool { return true }

const (
	// Repeats bounds how often a call with a deadline is sent again.
	Repeats = 5
	// redirectFor bounds how long a script is sent again while the nodes of a Redis
	// Cluster redirect it to each other. After a slot moved, a busy cluster takes some
	// seconds to agree on its owner.
	redirectFor = 10 * time.Second
	// redirectPause is the longest pause between these tries.
	redirectPause = 500 * time.Millisecond
)

// Run executes one script; see RunAll.
func (c *Client) Run(ctx context.Context, call Call) Reply { return c.RunAll(ctx, []Call{call})[0] }

// RunAll executes scripts in one round trip, and returns their replies in order. go-redis
// may repeat a call without a deadline by itself. RunAll repeats a call with a deadline
// once no copy of it can be executed any more. Otherwise a copy held up in a socket would
// undo later changes. Once such a repeat has failed, the other calls keep their errors,
// since to repeat each of them would take too long.
func (c *Client) RunAll(ctx context.Context, calls []Call) []Reply {
	cmds := make([]*redis.Cmd, len(calls))
	for i := range calls {
		cmds[i] = c.command(ctx, &calls[i], false)
	}
	c.send(ctx, calls, cmds)
	replies := make([]Reply, len(calls))
	lost, vain := false, false
	for i := range calls {
		call, cmd := &calls[i], cmds[i]
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			cmd = c.sendText(ctx, call)
		}
		switch {
		case call.Deadline == 0:
			lost = lost || unanswered(cmd.Err())
		case vain:
			observe(ctx, cmd.Err())
		default:
			cmd = c.repeat(ctx, *call, cmd)
			vain = notExecuted(cmd.Err()) || unanswered(cmd.Err())
		}
		replies[i] = Reply{script: call.Script, value: cmd.Val()}
		if err := cmd.Err(); err != nil {
			replies[i].err = c.explain(err)
		}
	}
	if lost {
		c.Relearn(ctx)
	}
	return replies
}

// Relearn asks a Redis Cluster which of its servers hold which slots. The client asks by
// itself only once a minute, and when a server says that a slot moved. A dead server
// doesn't say so.
func (c *Client) Relearn(ctx context.Context) {
	if cluster, ok := c.server.Client(ctx).(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// command returns the command that executes a script: by its hash, or by its text if
// Redis doesn't know the hash.
func (c *Client) command(ctx context.Context, call *Call, text bool) *redis.Cmd {
	script := c.scripts[call.Script]
	args := make([]any, 3, 3+len(call.Keys)+len(call.Args))
	args[0], args[1], args[2] = "evalsha", script.hash, len(call.Keys)
	if text {
		args[0], args[1] = "eval", script.text
	}
	for _, k := range call.Keys {
		args = append(args, k)
	}
	for _, arg := range call.Args {
		if _, ok := arg.(DeadlineArg); ok {
			arg = call.Deadline
		}
		args = append(args, arg)
	}
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// send executes commands once, in one round trip.
func (c *Client) send(ctx context.Context, calls []Call, cmds []*redis.Cmd) {
	if len(calls) == 1 && !c.waits(&calls[0]) {
		if calls[0].Deadline > 0 {
			_ = c.server.Client(ctx).Process(ctx, once{cmds[0]}) // the command carries its own error
		} else {
			_ = c.server.Client(ctx).Process(ctx, cmds[0])
		}
		return
	}
	var others sync.WaitGroup
	all := c.pipelines(ctx, calls, cmds)
	for i, p := range all {
		if i < len(all)-1 {
			others.Go(func() { c.exec(ctx, p, calls, cmds) })
		} else {
			c.exec(ctx, p, calls, cmds)
		}
	}
	others.Wait()
}

// waits reports whether a call waits for replicas.
func (c *Client) waits(call *Call) bool { return c.replicas > 0 && call.ReplicasKey != "" }

// sendText sends a call that Redis doesn't know by the hash of its script.
func (c *Client) sendText(ctx context.Context, call *Call) *redis.Cmd {
	cmd := c.command(ctx, call, true)
	c.send(ctx, []Call{*call}, []*redis.Cmd{cmd})
	return cmd
}

// repeat sends a call again as long as its last answer allows it. That is so if the call
// was not executed, or if it is unknown whether it was.
func (c *Client) repeat(ctx context.Context, call Call, last *redis.Cmd) *redis.Cmd {
	began, pause := time.Now(), 20*time.Millisecond
	for tries := 0; tries < Repeats || redirected(last.Err()) && time.Since(began) < redirectFor; tries++ {
		observe(ctx, last.Err())
		switch err := last.Err(); {
		case notExecuted(err):
			c.Relearn(ctx)
			if !retry.Sleep(ctx, pause) {
				return last
			}
			if pause *= 3; redirected(err) {
				pause = min(pause, redirectPause)
			}
		case unanswered(err):
			c.Relearn(ctx)
			if !c.awaitExpiry(ctx, call) {
				return last
			}
		default:
			return last
		}
		deadline, err := c.Deadline(ctx)
		if err != nil {
			return last
		}
		call.Deadline = deadline
		if call.Renew != nil {
			if call.Args = call.Renew(); call.Args == nil {
				return last
			}
		}
		last = c.command(ctx, &call, false)
		c.send(ctx, []Call{call}, []*redis.Cmd{last})
		if redis.HasErrorPrefix(last.Err(), "NOSCRIPT") {
			last = c.sendText(ctx, &call)
		}
	}
	observe(ctx, last.Err())
	return last
}

// awaitExpiry waits until no copy of the call can do anything any more, and reports
// whether it succeeded. It asks the server of the call's keys for the time. The estimate
// of Redis's clock may come from a server that was replaced, or from another server of a
// Redis Cluster.
func (c *Client) awaitExpiry(ctx context.Context, call Call) bool {
	now, err := c.Now(ctx)
	for range 3 {
		left := time.Duration(call.Deadline-now+1) * time.Millisecond
		if err != nil || !retry.Sleep(ctx, min(left, CallLife)) {
			return false
		}
		if now, err = c.clockOf(ctx, call.Keys[0]); err == nil && now > call.Deadline {
			c.ForgetClock()
			return true
		}
	}
	return false
}

// Reply is the answer to one call. A reply of another type than the one asked for is an
// error that names the script.
type Reply struct {
	script string
	value  any
	err    error
}

// Err returns the error of the call. With a *ReplicasError there is an answer too.
func (r Reply) Err() error { return r.err }

// Int returns a reply that is an integer.
func (r Reply) Int() (int64, error) {
	l := r.only()
	return l.Int(), l.Err()
}

// Text returns a reply that is a text.
func (r Reply) Text() (string, error) {
	l := r.only()
	return l.Text(), l.Err()
}

// only returns a list of the reply itself.
func (r Reply) only() *Values { return &Values{script: r.script, values: []any{r.value}, err: r.err} }

// Values returns the reader of a reply that is a list. The error of a call is the reader's,
// except a *ReplicasError: then the list is read, and the caller asks Err.
func (r Reply) Values() *Values {
	l := &Values{script: r.script, err: r.err}
	if r.err != nil && !errors.Is(r.err, task.ErrReplicas) {
		return l
	}
	values, ok := r.value.([]any)
	if l.values, l.err = values, nil; !ok {
		l.err = fmt.Errorf("script %s answered %s, not a list", r.script, kind(r.value))
	}
	return l
}

// Values reads the elements of a reply one after the other. After the first element of
// another type than the one asked for, it returns zero values; Err says why.
type Values struct {
	script string
	values []any
	at     int // of the next element
	err    error
}

// Err returns the first error.
func (l *Values) Err() error { return l.err }

// Left returns how many elements were not read, 0 after an error.
func (l *Values) Left() int {
	if l.err != nil {
		return 0
	}
	return len(l.values) - l.at
}

// Text returns the next element, which must be a text.
func (l *Values) Text() string { return next[string](l, "a text") }

// TextIf returns the next element if it is a text; it may also be nil.
func (l *Values) TextIf() (text string, there bool) {
	if l.at < len(l.values) && l.values[l.at] == nil && l.err == nil {
		l.at++
		return "", false
	}
	return l.Text(), l.err == nil
}

// Int returns the next element, which must be an integer.
func (l *Values) Int() int64 { return next[int64](l, "an integer") }

// next returns the next element, which must be of the wanted kind: a T.
func next[T any](l *Values, wanted string) (element T) {
	if l.err != nil {
		return element
	}
	if l.at == len(l.values) {
		l.err = fmt.Errorf("script %s answered %d elements; %s is missing", l.script, l.at, wanted)
		return element
	}
	v := l.values[l.at]
	l.at++
	element, ok := v.(T)
	if !ok {
		l.err = fmt.Errorf("script %s answered %s as element %d, not %s", l.script, kind(v), l.at, wanted)
	}
	return element
}

func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return "a text"
	case int64:
		return "an integer"
	case []any:
		return "a list"
	case redis.Error:
		return "the error " + v.Error()
	}
	return fmt.Sprintf("a %T", v)
}
