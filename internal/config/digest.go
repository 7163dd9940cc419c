package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Digest identifies a document by its text, as 16 hex digits. It is no protection against
// people who forge a text with a given digest.
func Digest(raw []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(raw)) }

// HashAll identifies a set of documents by topic and Digest. Two sets have the same hash
// if every topic's document is the same in both.
func HashAll(digests map[string]string) uint64 {
	all := xxhash.New()
	for _, topic := range slices.Sorted(maps.Keys(digests)) {
		fmt.Fprintf(all, "%s %s\n", topic, digests[topic])
	}
	return all.Sum64()
}
