package shard

import "strconv"

// key names one key of a shard. The braces put all keys of a shard into one
// slot of a Redis Cluster.
func (s Shard) key(kind string) string {
	return s.topic.store.prefix + ":" + kind + ":{" + s.topic.name + ":" + strconv.Itoa(s.n) + "}"
}

func (s Shard) due() string { return s.key("due") }

func (s Shard) tasks() string { return s.key("task") }

func (s Shard) fence() string { return s.key("fence") }

func (s Shard) handled() string { return s.key("handled") }

// Wake names the sharded channel that announces tasks that become the shard's earliest. A
// message is such a task's score in ms.
func (s Shard) Wake() string { return s.key("wake") }

// memory names the key that keeps a claimant's last batch until its lease ends, so that a
// repeated request gets the same answer.
func (s Shard) memory(claimant string) string {
	return s.key("claim") + ":" + claimant
}

func (t *Topic) topicKey(kind string) string {
	return t.store.prefix + ":" + kind + ":{" + t.name + "}"
}

// changes names the sharded channel that announces each placement put in force.
func (t *Topic) changes() string { return t.topicKey("wake") }

func (t *Topic) ticketKey() string { return t.topicKey("ticket") }

func (t *Topic) placementKey() string { return t.topicKey("placement") }

func (t *Topic) rateKey() string { return t.topicKey("rate") }

func (t *Topic) documentKey() string { return t.topicKey("document") }

// sourceKey names the record of where the document comes from. It begins with the
// document's key, so that users with rights to documents have them here too.
func (t *Topic) sourceKey() string { return t.documentKey() + ":source" }

func (s *Store) topicsKey() string { return s.prefix + ":topics" }

func (s *Store) fleetKey() string { return s.prefix + ":fleet" }

func (s *Store) fleetNotesKey() string { return s.prefix + ":fleet:notes" }

// taskKeys returns the four keys of most scripts, then more.
func (s Shard) taskKeys(more ...string) []string {
	return append([]string{s.due(), s.tasks(), s.fence(), s.handled()}, more...)
}
