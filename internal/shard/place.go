package shard

import "github.com/cespare/xxhash/v2"

// Place says which of shards holds id: jump consistent hashing over the 64-bit
// xxHash of the ID, so that going from M to M+1 shards moves 1/(M+1) of the
// tasks and no others (Lamping and Veach, "A Fast, Minimal Memory, Consistent
// Hash Algorithm", 2014). shards must be at least 1. Other languages must place
// alike: testdata/place.json and docs/protocol.md hold vectors.
func Place(id string, shards int) int {
	return jump(xxhash.Sum64String(id), shards)
}

func jump(key uint64, buckets int) int {
	var b, j int64 = -1, 0
	for j < int64(buckets) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64((key>>33)+1)))
	}
	return int(b)
}
