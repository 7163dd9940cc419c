package shard

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/test/check"
)

// golden reads a file of testdata.
func golden[T any](t testing.TB, name string) T {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	check.OK(t, err)
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

type placeVectors struct {
	Shards []int `json:"shards"`
	IDs    []struct {
		ID    string `json:"id"`
		Hash  string `json:"xxhash64"`
		Place []int  `json:"place"`
	} `json:"ids"`
}

func TestPlaceAgreesWithTheVectorsForOtherLanguages(t *testing.T) {
	t.Parallel()
	vectors := golden[placeVectors](t, "place.json")
	if len(vectors.IDs) < 30 || len(vectors.Shards) < 20 {
		t.Fatalf("%d IDs and %d shard counts: the file is cut short", len(vectors.IDs), len(vectors.Shards))
	}
	for _, v := range vectors.IDs {
		if got := fmt.Sprintf("%016x", xxhash.Sum64String(v.ID)); got != v.Hash {
			t.Errorf("hash of %q: got %s, want %s", v.ID, got, v.Hash)
		}
		for i, shards := range vectors.Shards {
			if got := Place(v.ID, shards); got != v.Place[i] {
				t.Errorf("place of %q among %d: got %d, want %d", v.ID, shards, got, v.Place[i])
			}
		}
	}
}

func TestJumpAgreesWithThePublishedVectors(t *testing.T) {
	t.Parallel()
	// From the tests of Google's Guava (Hashing.consistentHash) and others that
	// implement the same paper.
	for _, v := range []struct {
		key           uint64
		buckets, want int
	}{
		{10863919174838991, 11, 6}, {2016238256797177309, 11, 3}, {1673758223894951030, 11, 5},
		{2, 100001, 80343}, {2201, 100001, 22152}, {2202, 100001, 15018},
	} {
		if got := jump(v.key, v.buckets); got != v.want {
			t.Errorf("jump(%d, %d): got %d, want %d", v.key, v.buckets, got, v.want)
		}
	}
}

func TestOneMoreShardTakesTasksAndMovesNoOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		shards := rapid.IntRange(1, MaxShards-1).Draw(t, "shards")
		before, after := Place(id, shards), Place(id, shards+1)
		if before < 0 || before >= shards {
			t.Fatalf("place %d among %d shards", before, shards)
		}
		if after != before && after != shards {
			t.Fatalf("from %d to %d shards: moved from %d to %d, not to the new one", shards, shards+1, before, after)
		}
	})
}

func TestFromFourToFiveShardsMovesAFifth(t *testing.T) {
	t.Parallel()
	const n = 100_000
	moved := 0
	var counts [5]int
	for i := range n {
		id := "order-" + strconv.Itoa(i)
		after := Place(id, 5)
		counts[after]++
		if after != Place(id, 4) {
			moved++
		}
	}
	if moved < n*18/100 || moved > n*22/100 {
		t.Errorf("%d of %d moved, want a fifth", moved, n)
	}
	for s, count := range counts {
		if count < n*18/100 || count > n*22/100 {
			t.Errorf("shard %d holds %d of %d, want a fifth", s, count, n)
		}
	}
}

func TestKeysOfOneShardShareTheirHashTag(t *testing.T) {
	t.Parallel()
	store, err := New(nil, "fleet")
	check.OK(t, err)
	topic := store.Topic("orders")
	for _, key := range append(topic.Shard(3).taskKeys(topic.Shard(3).Wake()), topic.Shard(3).memory("host:1:0")) {
		if !strings.HasPrefix(key, "fleet:") || strings.Count(key, "{orders:3}") != 1 {
			t.Errorf("key %s: want the prefix fleet: and the tag {orders:3}", key)
		}
	}
	if got, want := topic.Shard(3).due(), "fleet:due:{orders:3}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := topic.ticketKey(), "fleet:ticket:{orders}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
