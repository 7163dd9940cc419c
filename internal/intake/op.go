package intake

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// opOf returns an op that depends on the message alone, so that a redelivery is known as
// the message that was stored already. Messages that are equal in everything, also in
// their correlation_id, are the same request.
func opOf(id string, when task.When, body []byte) shard.Op {
	h := xxhash.New()
	_, _ = fmt.Fprintf(h, "%d %s %s ", len(id), id, when) // a hash takes every write
	_, _ = h.Write(body)
	sum := binary.BigEndian.AppendUint64(nil, h.Sum64())
	return shard.Op(sum[:6])
}
