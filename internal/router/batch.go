package router

import "github.com/duefleet/duefleet/internal/shard"

// batch has the entries that one script takes, by their indexes. They lie in one shard and
// share the arguments that a script takes only once.
type batch struct {
	key     batchKey
	entries []int
	bytes   int
}

type batchKey struct {
	shard  int
	op     shard.Op // of puts
	absent bool     // entries with IfAbsent
	moving bool     // entries that go from one shard to another in this change
}

// group puts entries with the same key into batches of at most that many entries, and of
// at most scriptBytes unless an entry is larger.
func group(todo []int, most int, keyOf func(i int) batchKey, bytesOf func(i int) int) []*batch {
	open := map[batchKey]*batch{}
	var all []*batch
	for _, i := range todo {
		key, bytes := keyOf(i), bytesOf(i)
		b := open[key]
		if b == nil || len(b.entries) == most || b.bytes+bytes > scriptBytes {
			b = &batch{key: key}
			open[key] = b
			all = append(all, b)
		}
		b.entries = append(b.entries, i)
		b.bytes += bytes
	}
	return all
}

// names returns the tasks of a batch.
func (b *batch) names(idOf func(i int) string) shard.Names {
	n := shard.Names{Shard: b.key.shard, IDs: make([]string, len(b.entries))}
	for j, i := range b.entries {
		n.IDs[j] = idOf(i)
	}
	return n
}

// upTo returns the indexes of n entries.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// without returns the entries of todo that are not in some.
func without(todo, some []int) (left []int) {
	if len(some) == 0 {
		return todo
	}
	in := make(map[int]bool, len(some))
	for _, i := range some {
		in[i] = true
	}
	for _, i := range todo {
		if !in[i] {
			left = append(left, i)
		}
	}
	return left
}
