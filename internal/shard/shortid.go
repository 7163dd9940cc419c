package shard

import (
	"fmt"
	"strings"

	"github.com/duefleet/duefleet/task"
)

// ShortID is an ID for a log or a table. One that a task may have is whole; of a longer
// one, which another client put into Redis, the beginning is left, and its size in bytes.
func ShortID(id string) string {
	if len(id) <= task.MaxID {
		return id
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(id[:shortID], ""), len(id))
}

// shortID is how much of an ID that is too long is shown, in bytes.
const shortID = 64
