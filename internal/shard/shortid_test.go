package shard

import (
	"strings"
	"testing"

	"github.com/duefleet/duefleet/task"
)

func TestAnIDThatNoTaskMayHaveIsCut(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("x", task.MaxID)
	for id, want := range map[string]string{
		"order-1":                   "order-1",
		longest:                     longest,
		strings.Repeat("x", 100000): longest[:64] + "... (100000 bytes)",
		strings.Repeat("x", 63) + strings.Repeat("é", 1000): longest[:63] + "... (2063 bytes)",
	} {
		equal(t, "short ID", ShortID(id), want)
	}
}
