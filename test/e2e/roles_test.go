package e2e_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
)

// Every program of every world is a user of Redis of its own, with the rights that
// deploy/redis gives its role and no others: the whole suite shows that they
// suffice. A test that brings credentials of its own does without.

// role is who somebody is to Redis: the name of a file in deploy/redis.
type role string

const (
	scannerRole  role = "scanner"
	operatorRole role = "operator"
	producerRole role = "producer"
)

// rolePassword is that of all users of a world.
const rolePassword = "least"

// user is a role's name at Redis in this world. No other world has it, and no other
// user's name begins as it does.
func (w *world) user(r role) string { return w.settings.RedisPrefix + "." + string(r) }

// enroll makes the world's users, and removes them when the test is over. What Redis
// refused them by then fails the test.
func (w *world) enroll() {
	w.t.Helper()
	for _, r := range []role{scannerRole, operatorRole, producerRole} {
		line := w.narrowed(redisRights(w.t, string(r)))
		line[2] = w.user(r)
		w.onNodes(w.t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.Do(ctx, words(line, rolePassword)...).Err()
		})
	}
	w.enrolled = true
	w.t.Cleanup(w.dismiss)
}

// dismiss runs when all scanners have stopped.
func (w *world) dismiss() {
	w.t.Helper()
	w.onNodes(context.WithoutCancel(w.t.Context()), func(ctx context.Context, node *redis.Client) error {
		for _, refusal := range refusals(ctx, w.t, node, func(user string) bool { return strings.HasPrefix(user, w.settings.RedisPrefix+".") }) {
			w.t.Error(refusal)
		}
		return node.Do(ctx, "ACL", "DELUSER", w.user(scannerRole), w.user(operatorRole), w.user(producerRole)).Err()
	})
}

// narrowed are the rights of a file in deploy/redis with this world's prefix. The
// file gives a producer the one topic orders, as an example; a world's producers
// write to all of its topics. On a cluster the client needs some more.
func (w *world) narrowed(line []string) []string {
	narrow := strings.NewReplacer("duefleet:", w.settings.RedisPrefix+":", "{orders:*}", "{*:*}", "{orders}", "{*}")
	for i, word := range line {
		if strings.ContainsAny(word[:1], "~&%") {
			line[i] = narrow.Replace(word)
		}
	}
	if _, ok := w.redis.(*redis.ClusterClient); ok {
		line = append(line, "+cluster|slots", "+asking", "+command") // as docs/deploy.md has it
	}
	return line
}

// onNodes does something at every server of the world's Redis: rights are each
// server's own.
func (w *world) onNodes(ctx context.Context, do func(context.Context, *redis.Client) error) {
	w.t.Helper()
	var err error
	switch client := w.redis.(type) {
	case *redis.ClusterClient:
		var one sync.Mutex
		err = client.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
			one.Lock()
			defer one.Unlock()
			return do(ctx, node)
		})
	case *redis.Client:
		err = do(ctx, client)
	default:
		w.t.Fatalf("a client of a kind that no world has: %T", client)
	}
	if err != nil {
		w.t.Errorf("the users of a world: %v", err)
	}
}

// file is the configuration of a role's programs.
func (w *world) file(r role) string {
	if !w.enrolled || r == scannerRole {
		return w.config
	}
	return filepath.Join(w.dir, "role-"+string(r)+".yaml")
}

// document is what a role's file holds: the world's settings, and the role's
// credentials unless the test brings others.
func (w *world) document(r role) map[string]any {
	settings := w.settings
	if _, own := settings.More["redis"]["password"]; w.enrolled && !own {
		more := fleet.Topic(settings.More["redis"]).With(fleet.Topic{"username": w.user(r), "password": rolePassword})
		settings.More = map[string]fleet.Topic{"redis": more}
		for section, keys := range w.settings.More {
			if section != "redis" {
				settings.More[section] = keys
			}
		}
	}
	return settings.Document()
}

// newClient is a producer that knows nothing yet, with a producer's rights.
func (w *world) newClient() *producer.Client {
	w.t.Helper()
	options := w.own
	if w.enrolled {
		options.Username, options.Password = w.user(producerRole), rolePassword
	}
	client, err := producer.New(producer.Config{Options: &options, Prefix: w.settings.RedisPrefix})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestRolesAreHeldToTheirRights: a world's users are held to the files of deploy/redis,
// and a refusal would be seen. A producer may read the placement and not write it.
func TestRolesAreHeldToTheirRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	line := w.narrowed(redisRights(t, string(producerRole)))
	line[2] = "intruder." + w.settings.RedisPrefix // whom dismiss doesn't ask for
	options := w.own
	options.Username, options.Password = line[2], rolePassword
	client := redis.NewUniversalClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	w.onNodes(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.Do(ctx, words(line, rolePassword)...).Err()
	})
	placement := w.settings.RedisPrefix + ":placement:{orders}"
	if err := client.HGet(t.Context(), placement, "value").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a producer reads the placement: %v, want that there is none", err)
	}
	if err := client.HSet(t.Context(), placement, "value", "1 4096 4096 stable").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a producer writes the placement: %v, want NOPERM", err)
	}
	var found []string
	w.onNodes(t.Context(), func(ctx context.Context, node *redis.Client) error {
		found = append(found, refusals(ctx, t, node, func(user string) bool { return user == line[2] })...)
		return node.Do(ctx, "ACL", "DELUSER", line[2]).Err()
	})
	if len(found) != 1 || !strings.Contains(found[0], placement) {
		t.Errorf("refusals %q, want that of %s", found, placement)
	}
}
