package machine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/internal/luascript"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/test/faults"
)

// clockKey holds the drawn clock, in ms.
const clockKey = "machine:now"

// scripts are the names of the scripts that the interceptor changes.
var scripts = []string{
	"import", "claim", "delete", "export", "scan_pass", "mark_clean", "cas_placement", "purge", "put",
	"read", "fetch", "release", "replay", "reschedule", "settle", "advance", "stats", "fence",
}

// script is a script as the interceptor sends it: with the drawn clock, and perhaps with
// a defect.
type script struct{ name, text, sha string }

// interceptor replaces the scripts on their way, answers TIME with the drawn clock, and
// stops actors before every command.
type interceptor struct {
	scripts map[string]script // by the SHA-1 of the product's text
	now     int64
	topic   *shard.Topic
}

// newInterceptor loads the scripts and puts a defect into one of them, unless d is none.
func newInterceptor(d defect) (*interceptor, error) {
	l := &interceptor{scripts: map[string]script{}}
	for _, name := range scripts {
		text, err := shard.Script(name)
		if err != nil {
			return nil, err
		}
		changed := strings.ReplaceAll(text, "redis.call('TIME')", "{0, redis.call('GET', '"+clockKey+"') * 1000}")
		if name == d.script {
			if strings.Count(changed, d.from) != 1 {
				return nil, fmt.Errorf("script %s holds %q %d times", name, d.from, strings.Count(changed, d.from))
			}
			changed = strings.Replace(changed, d.from, d.to, 1)
		}
		l.scripts[hash(text)] = script{name, changed, hash(changed)}
	}
	return l, nil
}

// amqpBody is the body of a message of AMQP whose routing key is its payload. The producer
// library schedules none, so the interceptor puts it into the command.
func amqpBody(payload string) []byte {
	b, err := amqpmsg.Encode(amqpmsg.Message{RoutingKey: payload, Headers: map[string]any{"n": int8(1)},
		Body: []byte(payload)})
	if err != nil {
		panic(err)
	}
	return b
}

func hash(text string) string { return redis.NewScript(text).Hash() }

// around takes the place of a request.
func (l *interceptor) around(ctx context.Context, r faults.Request) error {
	if r.Pipelined {
		for _, cmd := range r.Commands {
			l.change(cmd)
		}
		return r.Send(ctx)
	}
	cmd := r.Commands[0]
	if clock, ok := cmd.(*redis.TimeCmd); ok {
		clock.SetVal(time.UnixMilli(l.now))
		return nil
	}
	name := l.change(cmd)
	send := func() error {
		if scan, ok := cmd.(*redis.ScanCmd); ok {
			return l.scan(ctx, scan, r)
		}
		return r.Send(ctx)
	}
	a, ok := ctx.Value(actorKey{}).(*actor)
	if !ok {
		return send()
	}
	a.noteOp(name, cmd)
	if name == "put" && a.op != nil && a.op.amqp {
		args := cmd.Args()
		args[len(args)-1] = amqpBody(a.op.name)
	}
	return a.call(name, send, func() {
		l.extend(name, cmd)
		if name == "put" {
			l.rejoin(ctx, cmd)
		}
	})
}

// change replaces the script of a command, if it has one, and returns the command's name.
func (l *interceptor) change(cmd redis.Cmder) string {
	args := cmd.Args()
	text, _ := args[min(1, len(args)-1)].(string)
	switch cmd.Name() {
	case "evalsha":
		s := l.scripts[text]
		args[1] = s.sha
		return s.name
	case "eval":
		if s, known := l.scripts[hash(text)]; known {
			args[1] = s.text
			return s.name
		}
	}
	return cmd.Name()
}

// arg returns the index of a script's n-th argument in its command.
func arg(cmd redis.Cmder, n int) int {
	keys, _ := cmd.Args()[2].(int)
	return 3 + keys + n
}

// extend gives a repeated command a new deadline, as the product does.
func (l *interceptor) extend(name string, cmd redis.Cmder) {
	n, ok := map[string]int{"put": 2, "reschedule": 2, "delete": 1}[name]
	if ok {
		cmd.Args()[arg(cmd, n)] = l.now + 3000
	}
}

// rejoin gives the task of a repeated put a new mark, if it is in a group, as the product does.
func (l *interceptor) rejoin(ctx context.Context, cmd redis.Cmder) {
	luascript.CarriedOut(ctx)
	args, first := cmd.Args(), arg(cmd, 7)
	var members []shard.Member
	for at := first; at+2 < len(args); at += 3 {
		id, _ := args[at].(string)
		body, _ := args[at+2].([]byte)
		members = append(members, shard.NewMark(l.now).Set(id, body))
	}
	if err := errors.Join(l.topic.Join(context.WithoutCancel(ctx), members)...); err != nil {
		panic(err)
	}
}

// scan answers ZSCAN in an order that is the same in each run. Redis's own order isn't:
// it depends on a random hash seed of the server. Like Redis, scan goes through the
// members in the order of a hash, so it gives the same guarantee as ZSCAN.
func (l *interceptor) scan(ctx context.Context, scan *redis.ScanCmd, r faults.Request) error {
	args := scan.Args()
	members := redis.NewStringSliceCmd(ctx, "zrange", args[1], 0, -1)
	r.Commands = []redis.Cmder{members}
	if err := r.Send(ctx); err != nil {
		return err
	}
	ids := members.Val()
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(xxhash.Sum64String(a), xxhash.Sum64String(b)) })
	from, err := strconv.ParseUint(fmt.Sprint(args[2]), 10, 64)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(fmt.Sprint(args[len(args)-1]))
	if err != nil {
		return err
	}
	first, _ := slices.BinarySearchFunc(ids, from, func(id string,
		at uint64) int {
		return cmp.Compare(xxhash.Sum64String(id), at)
	})
	page, cursor := []string{}, uint64(0)
	for i, id := range ids[first:] {
		if i == count {
			cursor = xxhash.Sum64String(id)
			break
		}
		page = append(page, id, "0")
	}
	scan.SetVal(page, cursor)
	return nil
}
