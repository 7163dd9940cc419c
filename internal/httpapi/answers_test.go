package httpapi

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// through makes the server use a library of its own; change may change its configuration.
func through(t *testing.T, r *fixture.Redis, change func(*producer.Config)) func(*Config) {
	t.Helper()
	cfg := producer.Config{Options: servertest.RedisOptions(r.Addr), Prefix: r.Prefix, MaxPayload: 1000,
		Timeout: 2 * time.Second}
	change(&cfg)
	client, err := producer.New(cfg)
	check.OK(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return func(c *Config) { c.Tasks, c.Batches = client, client }
}

// TestTheProducersRightsAreEnough: the server works as the user of deploy/redis. Without
// one of its rights the answer is 503, the log names the right, and no task changes.
func TestTheProducersRightsAreEnough(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/redis/producer.acl")
	check.OK(t, err)
	server := servertest.OwnRedis(t)
	r := fixture.At(t, server.Addr(), "duefleet")
	setUser := func(rules ...string) {
		t.Helper()
		words := []any{"ACL", "SETUSER"}
		for _, rule := range rules {
			words = append(words, rule)
		}
		check.OK(t, r.Client.Do(t.Context(), words...).Err())
	}
	rules := strings.Fields(strings.Replace(string(text), ">PASSWORD", ">least", 1))
	user := rules[1]
	setUser(rules[1:]...)
	d := openAt(t, r, through(t, r, func(c *producer.Config) { c.Options.Username, c.Options.Password = user, "least" }))
	d.do("PUT", path("a")+"?in=1h", "old").want(t, "schedule", 200, nil)
	d.do("PUT", path("b")+"?in=1h", "old", "If-None-Match: *").want(t, "schedule", 201, nil)
	d.do("PUT", path("b")+"?in=1h", "old", "If-Match: *").want(t, "replace", 200, nil)
	d.do("PATCH", path("a")+"?in=2h", "").want(t, "move", 200, nil)
	d.do("GET", path("a"), "").want(t, "get", 200, nil)
	d.do("DELETE", path("b"), "").want(t, "cancel", 200, nil)
	lines := `{"verb":"schedule","id":"c","in":"1h"}` + "\n" + `{"verb":"cancel","id":"c"}`
	answers, err := d.batch(strings.NewReader(lines))
	check.OK(t, err)
	check.Equal(t, "lines", fmt.Sprint(answers[0]["status"], answers[1]["status"]), "200 200")
	refused, err := r.Client.Do(t.Context(), "ACL", "LOG").Slice()
	check.OK(t, err)
	check.Equal(t, "refused by Redis", len(refused), 0)

	setUser(user, "-hset")
	a := d.do("PUT", path("a")+"?in=1h", "new")
	a.want(t, "without hset", 503, "denied")
	check.Equal(t, "done", a.body["done"], any("maybe"))
	check.Equal(t, "Retry-After", a.header.Get("Retry-After"), "10")
	if log := d.log.String(); !strings.Contains(log, "NOPERM") || !strings.Contains(log, "'hset'") {
		t.Errorf("the log doesn't name the right:\n%s", log)
	}
	answers, err = d.batch(strings.NewReader(lines))
	check.OK(t, err)
	check.Equal(t, "the batch's schedule", fmt.Sprint(answers[0]["status"], answers[0]["code"]), "503denied")
	s, _ := d.stored("a")
	check.Equal(t, "payload", string(s.Payload), "old")
	setUser(user, "+hset")
	d.do("PUT", path("a")+"?in=1h", "new").want(t, "with hset again", 200, nil)
}

// TestTooFewReplicas: the task is stored, and the answer has its due time.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	r := fixture.New(t)
	// A server that doesn't have the script yet waits for replicas twice, a second each.
	d := openAt(t, r, through(t, r, func(c *producer.Config) { c.MinReplicas, c.Timeout = 1, 10*time.Second }))
	a := d.do("PUT", path("a")+"?in=1h", "x")
	a.want(t, "schedule", 504, "replicas")
	s, there := d.stored("a")
	check.Equal(t, "stored", there, true)
	check.Equal(t, "due", a.body["due_ms"], any(float64(s.Due.UnixMilli())))
}

// TestOtherErrorsOfRedis: a key of a wrong type is an error of Redis, and its text stays
// in the log. A Redis that is away is unavailable.
func TestOtherErrorsOfRedis(t *testing.T) {
	t.Parallel()
	server := servertest.OwnRedis(t)
	r := fixture.At(t, server.Addr(), "duefleet")
	d := openAt(t, r, nil)
	for n := range 3 {
		check.OK(t, r.Client.Set(t.Context(), fmt.Sprintf("duefleet:task:{orders:%d}", n), "x", 0).Err())
	}
	a := d.do("GET", path("a"), "")
	a.want(t, "a wrong type", 502, "redis")
	if detail := fmt.Sprint(a.body["detail"]); strings.Contains(detail, "WRONGTYPE") ||
		!strings.Contains(d.log.String(), "WRONGTYPE") {
		t.Errorf("detail %q, log:\n%s", detail, d.log)
	}
	d.do("GET", "/v1/topics/nobody/tasks/a", "").want(t, "an unknown topic", 404, "unknown_topic")
	check.OK(t, server.Kill())
	a = d.do("GET", path("a"), "")
	a.want(t, "no Redis", 503, "unavailable")
	check.Equal(t, "done", a.body["done"], any("no"))
}
