package shard

import "strconv"

// Topic is one topic's keys and scripts.
type Topic struct {
	*Store
	name string
}

// Topic returns the handle of one topic; the name must have passed
// task.CheckTopic.
func (s *Store) Topic(name string) *Topic { return &Topic{s, name} }

// Name of the topic.
func (t *Topic) Name() string { return t.name }

// key names one key of a shard. The braces put all keys of a shard into one
// slot of a Redis Cluster.
func (t *Topic) key(kind string, shard int) string {
	return t.prefix + ":" + kind + ":{" + t.name + ":" + strconv.Itoa(shard) + "}"
}

func (t *Topic) due(shard int) string    { return t.key("due", shard) }
func (t *Topic) tasks(shard int) string  { return t.key("task", shard) }
func (t *Topic) gate(shard int) string   { return t.key("gate", shard) }
func (t *Topic) ledger(shard int) string { return t.key("ledger", shard) }

// Wake names the sharded channel that tells when a task becomes the shard's
// earliest; the message is its score in ms.
func (t *Topic) Wake(shard int) string { return t.key("wake", shard) }

// memory names the key where a claimant's last batch is remembered until its
// lease ends, so that a repeated request is answered with it.
func (t *Topic) memory(shard int, claimant string) string {
	return t.key("claim", shard) + ":" + claimant
}

func (t *Topic) topicKey(kind string) string { return t.prefix + ":" + kind + ":{" + t.name + "}" }

// changes names the sharded channel that tells of every placement that is put in force.
func (t *Topic) changes() string { return t.topicKey("wake") }

func (t *Topic) ticketKey() string     { return t.topicKey("ticket") }
func (t *Topic) placementKey() string  { return t.topicKey("placement") }
func (t *Topic) rateKey() string       { return t.topicKey("rate") }
func (t *Topic) documentKey() string   { return t.topicKey("document") }
func (s *Store) topicsKey() string     { return s.prefix + ":topics" }
func (s *Store) fleetKey() string      { return s.prefix + ":fleet" }
func (s *Store) fleetNotesKey() string { return s.prefix + ":fleet:notes" }
