//go:build measure

package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestMeasureBulk measures how late 500 tasks a second are while an operator moves 300,000 others
// of the topic, by turns with a change and without.
func TestMeasureBulk(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const others, calm, rounds = 300_000, 20 * time.Second, 3
	w := newFixture(t, map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)})
	lateness := &stopwatch{}
	w.tap = lateness.note
	w.start(3)
	w.consume("orders.due")
	client, err := producer.New(producer.Config{
		Options: &redis.UniversalOptions{Addrs: []string{w.settings.RedisAddr}}, Prefix: w.settings.RedisPrefix,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for from := 0; from < others; from += 1000 {
		var batch []producer.Request
		for i := range 1000 {
			batch = append(batch, producer.Request{
				Topic: "orders", ID: fmt.Sprint("p-", from+i), When: producer.In(24 * time.Hour), Payload: make([]byte, 100),
			})
		}
		for _, r := range client.ScheduleMany(t.Context(), batch) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	const long = 3 * time.Minute
	w.schedule(orders("orders", "n", int(long/(2*time.Millisecond)), time.Now().Add(10*time.Second), long, 0)...)
	w.stays(15*time.Second, func() bool { return true })
	for round := range rounds {
		lateness.begin(fmt.Sprint("without ", round))
		w.stays(calm, func() bool { return true })
		lateness.begin(fmt.Sprint("with ", round))
		began := time.Now()
		out := w.scanner("tasks", "move", "orders", "--id-prefix", "p-", "--by", "1h", "--yes")
		if out.Code != 0 {
			t.Fatal(out.Stdout, out.Stderr)
		}
		t.Logf("moved %d in %s", others, time.Since(began).Round(time.Millisecond))
	}
	lateness.begin("after")
	for _, s := range lateness.stretches {
		slices.Sort(s.lateness)
		t.Logf("%s: p50 %s, p99 %s, max %s of %d tasks", s.name, s.lateness.At(0.5), s.lateness.At(0.99), s.lateness.At(1),
			len(s.lateness))
	}
}
