//go:build measure

package e2e_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
)

// TestMeasureAThousandTopics: scanners with 1,000 topics in Consul start, take 1,000 changed
// documents, and stop within seconds, and operators' commands answer.
func TestMeasureAThousandTopics(t *testing.T) { //nolint:paralleltest // it has the machine to itself
	const topics = 1000
	w := newConsulSource(t).fixture
	documents := func(rate int) string {
		all := map[string]any{}
		for i := range topics {
			name := fmt.Sprintf("topic-%04d", i)
			all[name] = fleet.DeclaredTopic(name, fleet.Topic{"rate": rate})
		}
		path := filepath.Join(t.TempDir(), "topics.yaml")
		check.OK(t, fleet.WriteConfig(path, map[string]any{"topics": all}))
		return path
	}
	took := func(what string, most time.Duration, do func()) (commands int64) {
		t.Helper()
		began, before := time.Now(), w.commands()
		do()
		d, commands := time.Since(began), w.commands()-before
		t.Logf("%s: %.1f s, %d Redis commands", what, d.Seconds(), commands)
		if d > most {
			t.Errorf("%s took %s, want at most %s", what, d, most)
		}
		return commands
	}
	took("topic apply of 1,000 new topics", 2*time.Second, func() {
		must(t, w.scanner("topic", "apply", "-f", documents(1000), "--yes", "--no-wait"))
	})
	took("three scanners until they are ready", 5*time.Second, func() { w.start(3) })
	w.pass(30 * time.Second)
	rest := took("30 s of rest", time.Minute, func() { w.pass(30 * time.Second) })
	for _, args := range [][]string{{"status"}, {"doctor"}, {"check"}, {"topic", "ls"}} {
		took(fmt.Sprint("scanner ", args), 2*time.Second, func() { must(t, w.scanner(args...)) })
	}
	var index uint64
	commands := took("1,000 changed documents, and 5 s", 8*time.Second, func() {
		index = w.rewriteAll("rate: 1000", "rate: 2000")
		w.pass(5 * time.Second)
	})
	if most := rest/5 + 10*topics*3; commands > most {
		t.Errorf("%d commands for 1,000 documents in three scanners, want at most %d", commands, most)
	}
	for _, m := range w.status().Fleet {
		if m.Applied < index {
			t.Errorf("after 5 s a scanner has the documents up to %d, want %d", m.Applied, index)
		}
	}
	took("three scanners until they have stopped", 2*time.Second, w.stop)
}

// rewriteAll replaces a text in all documents, and returns the index of Consul after that.
func (w *fixture) rewriteAll(old, now string) (index uint64) {
	w.t.Helper()
	client, err := consul.NewClient(&consul.Config{Address: w.settings.ConsulAddr})
	check.OK(w.t, err)
	all, _, err := client.KV().List(w.settings.ConsulPrefix+"/topics/", nil)
	check.OK(w.t, err)
	var changes consul.TxnOps
	for _, kv := range all {
		if len(kv.Value) == 0 {
			continue // the folder
		}
		value := bytes.Replace(kv.Value, []byte(old), []byte(now), 1)
		if bytes.Equal(value, kv.Value) {
			w.t.Fatalf("%s has no %q:\n%s", kv.Key, old, kv.Value)
		}
		changes = append(changes, &consul.TxnOp{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: kv.Key, Value: value}})
	}
	for some := range slices.Chunk(changes, 64) {
		ok, answer, _, err := client.Txn().Txn(some, nil)
		if err != nil || !ok {
			w.t.Fatalf("%v, %+v", err, answer)
		}
		index = max(index, answer.Results[0].KV.ModifyIndex)
	}
	return index
}

// commands returns how many commands Redis has executed.
func (w *fixture) commands() int64 {
	w.t.Helper()
	info, err := w.redis.InfoMap(w.t.Context(), "stats").Result()
	check.OK(w.t, err)
	n, err := strconv.ParseInt(info["Stats"]["total_commands_processed"], 10, 64)
	check.OK(w.t, err)
	return n
}
