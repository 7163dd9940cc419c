// Package conform tests whether a producer follows docs/protocol.md. It starts the
// producer as a program that speaks docs/pipe.md, with a proxy in front of Redis, and
// plays transcripts with it. A transcript has requests, and events during them: a change
// of the shard count, a delayed script, or a lost reply. The package then compares the
// answers, the scripts that were sent, and the stored tasks.
//
// It is for producers in other languages. The command is `producer conform`.
package conform

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config configures a Kit.
type Config struct {
	// Options are the options for Redis, which must be a single server. The program
	// doesn't get them.
	Options *redis.UniversalOptions
	// Prefix is the prefix under which the kit makes a sandbox. The kit removes the
	// sandbox in the end, and touches no other keys.
	Prefix string
	// Command is the program under test and its arguments.
	Command []string
	// Environ is the program's environment. Variables with DUEFLEET_REDIS_ are replaced:
	// DUEFLEET_REDIS_ADDRS and DUEFLEET_REDIS_PREFIX tell the program where Redis is.
	Environ []string
	// Patience is how long the program may take for one answer. Defaults to 1 minute.
	Patience time.Duration
	// Parallel is how many transcripts are played at the same time. Defaults to 4.
	Parallel int
}

// patience is the default of Config.Patience, and the timeout of the kit's own
// connections.
const patience = time.Minute

// Kit plays transcripts.
type Kit struct {
	cfg     Config
	rdb     redis.UniversalClient
	prefix  string
	scripts map[string]script
}

// Result is the result of one transcript.
type Result struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Failures name what differs from the transcript. If there are none, it passed.
	Failures []string `json:"failures"`
}

// New returns a kit, which must be closed. It doesn't connect to Redis.
func New(cfg Config) (*Kit, error) {
	if len(cfg.Options.Addrs) != 1 || cfg.Options.MasterName != "" {
		return nil, errors.New("conform plays with one Redis server, and not with a cluster or sentinels: name one with " +
			"--redis-addr")
	}
	if len(cfg.Command) == 0 {
		return nil, errors.New("conform: Config.Command must name a program")
	}
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 4
	}
	scripts, err := published()
	if err != nil {
		return nil, err
	}
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails: crypto/rand
	prefix := cfg.Prefix + ":conform-" + hex.EncodeToString(random)
	options := *cfg.Options
	options.DialTimeout, options.ReadTimeout = patience, patience // a slow reply is not a lost one
	return &Kit{cfg: cfg, rdb: redis.NewUniversalClient(&options), prefix: prefix, scripts: scripts}, nil
}

// Close closes the connections to Redis.
func (k *Kit) Close() error { return k.rdb.Close() }

// Play plays transcripts, several at the same time, and passes each result to tell in the
// order of the transcripts. It returns an error if they could not be played. A failed
// transcript is not an error.
func (k *Kit) Play(ctx context.Context, all []Transcript, tell func(Result)) error {
	if err := k.load(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	results := make([]chan Result, len(all))
	next := make(chan int)
	var players sync.WaitGroup
	for i := range all {
		results[i] = make(chan Result, 1)
	}
	for range min(k.cfg.Parallel, len(all)) {
		players.Go(func() {
			for i := range next {
				r, err := k.play(ctx, all[i])
				if err != nil {
					stop(fmt.Errorf("transcript %s: %w", all[i].Name, err))
				}
				results[i] <- r
			}
		})
	}
	players.Go(func() {
		defer close(next)
		for i := range all {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	for i := range all {
		select {
		case r := <-results[i]:
			if ctx.Err() == nil {
				tell(r)
			}
		case <-ctx.Done():
		}
	}
	players.Wait()
	return context.Cause(ctx)
}

// load loads the scripts into Redis. Whether a program can load them itself is the
// subject of one transcript.
func (k *Kit) load(ctx context.Context) error {
	for _, s := range k.scripts {
		if err := k.rdb.ScriptLoad(ctx, s.text).Err(); err != nil {
			return fmt.Errorf("load the scripts into Redis: %w", err)
		}
	}
	return nil
}

// plays is how often a transcript is played if scripts took longer than the protocol
// allows. Such a result says nothing about the program.
const plays = 5

// play plays one transcript.
func (k *Kit) play(ctx context.Context, t Transcript) (r Result, err error) {
	for range plays {
		var slow bool
		r, slow, err = k.playOnce(ctx, t)
		if err != nil || !slow || len(r.Failures) == 0 {
			return r, err
		}
	}
	r.Failures = append(r.Failures, fmt.Sprintf("%d times scripts came late, or the program didn't wait for their "+
		"answers, though nothing held them up", plays))
	return r, nil
}

// playOnce plays one transcript in a topic of its own.
func (k *Kit) playOnce(ctx context.Context, t Transcript) (r Result, slow bool, err error) {
	r = Result{Name: t.Name, About: t.About, Failures: []string{}}
	at := sandbox{prefix: k.prefix, topic: t.Name, keys: &keySet{all: map[string]bool{}}}
	n, err := k.rdb.Exists(ctx, at.placement()).Result()
	if err != nil {
		return r, false, err
	}
	if n > 0 {
		return r, false, fmt.Errorf("the topic %s exists under the prefix %s", t.Name, k.prefix)
	}
	w, err := newFixture(k.rdb, at)
	if err != nil {
		return r, false, err
	}
	defer func() { err = errors.Join(err, w.clear(context.WithoutCancel(ctx), t.ids())) }()
	running, stop := context.WithCancel(ctx)
	defer stop()
	proxy, err := newProxy(running, k.cfg.Options, k.rdb, at, k.scripts)
	if err != nil {
		return r, false, err
	}
	defer proxy.close()
	defer stop() // before the proxy waits for the commands that it delays
	it, err := start(running, k.cfg.Command, k.environ(proxy.addr()), k.cfg.Patience)
	if err != nil {
		return r, false, err
	}
	p := &player{fixture: w, proxy: proxy, program: it, result: &r}
	err = p.play(running, t)
	if len(r.Failures) > 0 {
		stop() // it may be stuck
	}
	if ended := it.finish(running, stop); ended != nil {
		p.fail("%v", ended)
	}
	return r, proxy.wasSlow(), err
}

// environ returns the program's environment. It names the proxy, which needs no password
// and no TLS, and has selected the database.
func (k *Kit) environ(addr string) []string {
	var environ []string
	for _, line := range k.cfg.Environ {
		if !strings.HasPrefix(line, "DUEFLEET_REDIS_") {
			environ = append(environ, line)
		}
	}
	return append(environ,
		"DUEFLEET_REDIS_ADDRS="+addr, "DUEFLEET_REDIS_PREFIX="+k.prefix,
		"DUEFLEET_REDIS_MASTER_NAME=", "DUEFLEET_REDIS_DB=0", "DUEFLEET_REDIS_TLS_ENABLED=false")
}
