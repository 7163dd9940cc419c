package shard

import (
	"fmt"
	"strings"

	"github.com/duefleet/duefleet/task"
)

// ShortID returns an ID for a log or a table. An ID that a task may have stays whole. A
// longer one, which another client put into Redis, is cut, and its size in bytes follows.
func ShortID(id string) string {
	if len(id) <= task.MaxID {
		return id
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(id[:shortID], ""), len(id))
}

// shortID is how many bytes of an ID that is too long are shown.
const shortID = 64
