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
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// In every fixture, each program logs in to Redis as a user of its own, with exactly the
// rights that deploy/redis gives its role. So the whole suite shows that these rights are
// enough. A test with its own credentials doesn't use these users.

// role is a role at Redis: the name of a file in deploy/redis.
type role string

const (
	scannerRole  role = "scanner"
	operatorRole role = "operator"
	producerRole role = "producer"
)

// rolePassword is the password of all users of a fixture.
const rolePassword = "least"

// user returns the name of a role's Redis user in this fixture. It is unique, and not a
// prefix of another name.
func (w *fixture) user(r role) string { return w.settings.RedisPrefix + "." + string(r) }

// enroll makes the fixture's users, and removes them when the test ends. The test then
// fails if Redis has refused them anything.
func (w *fixture) enroll() {
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

// dismiss fails the test if Redis has refused a command, and deletes the users. Call it
// after all scanners have stopped.
func (w *fixture) dismiss() {
	w.t.Helper()
	w.onNodes(context.WithoutCancel(w.t.Context()), func(ctx context.Context, node *redis.Client) error {
		for _, refusal := range refusals(ctx, w.t, node,
			func(user string) bool { return strings.HasPrefix(user, w.settings.RedisPrefix+".") }) {
			w.t.Error(refusal)
		}
		return node.Do(ctx, "ACL", "DELUSER", w.user(scannerRole), w.user(operatorRole), w.user(producerRole)).Err()
	})
}

// narrowed returns the rights of a file in deploy/redis with this fixture's prefix. The
// file's example allows a producer only topic orders; a fixture's producers may write to
// all topics. A cluster client needs some more commands.
func (w *fixture) narrowed(line []string) []string {
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

// onNodes calls do for every server of the fixture's Redis, since each server has its own
// users.
func (w *fixture) onNodes(ctx context.Context, do func(context.Context, *redis.Client) error) {
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
		w.t.Fatalf("unexpected kind of client: %T", client)
	}
	if err != nil {
		w.t.Errorf("the users of a fixture: %v", err)
	}
}

// file returns the path of the configuration of a role's programs.
func (w *fixture) file(r role) string {
	if !w.enrolled || r == scannerRole {
		return w.config
	}
	return filepath.Join(w.dir, "role-"+string(r)+".yaml")
}

// document returns the content of a role's file: the fixture's settings, and the role's
// credentials unless the test sets its own.
func (w *fixture) document(r role) map[string]any {
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

// newClient returns a producer with a producer's rights. It has not read a placement yet.
func (w *fixture) newClient() *producer.Client {
	w.t.Helper()
	options := w.own
	if w.enrolled {
		options.Username, options.Password = w.user(producerRole), rolePassword
	}
	client, err := producer.New(producer.Config{Options: &options, Prefix: w.settings.RedisPrefix})
	check.OK(w.t, err)
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestRolesAreHeldToTheirRights: Redis limits a fixture's users to the rights in
// deploy/redis, and the suite would notice a refusal. A producer may read the placement
// but not write it.
func TestRolesAreHeldToTheirRights(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nil)
	line := w.narrowed(redisRights(t, string(producerRole)))
	line[2] = "intruder." + w.settings.RedisPrefix // a user that dismiss doesn't check
	options := w.own
	options.Username, options.Password = line[2], rolePassword
	client := redis.NewUniversalClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	w.onNodes(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.Do(ctx, words(line, rolePassword)...).Err()
	})
	placement := w.settings.RedisPrefix + ":placement:{orders}"
	if err := client.HGet(t.Context(), placement, "value").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a producer reads the placement: %v, want redis.Nil", err)
	}
	if err := client.HSet(t.Context(), placement, "value", "1 4096 4096 stable").Err(); err == nil ||
		!strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("a producer writes the placement: %v, want NOPERM", err)
	}
	var found []string
	w.onNodes(t.Context(), func(ctx context.Context, node *redis.Client) error {
		found = append(found, refusals(ctx, t, node, func(user string) bool { return user == line[2] })...)
		return node.Do(ctx, "ACL", "DELUSER", line[2]).Err()
	})
	if len(found) != 1 || !strings.Contains(found[0], placement) {
		t.Errorf("refusals %q, want one of %s", found, placement)
	}
}
