package shard

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/amqpmsg"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/goldenfile"
)

var update = flag.Bool("update", false, "rewrite the scripts in docs/protocol")

// docsScripts are those that a producer in another language sends.
var docsScripts = []string{"put", "delete", "reschedule", "fence", "read", "note"}

func TestTheScriptsInDocsAreThoseThatRun(t *testing.T) {
	t.Parallel()
	for _, name := range docsScripts {
		path := filepath.Join("..", "..", "docs", "protocol", name+".lua")
		text, err := Script(name)
		check.OK(t, err)
		goldenfile.Check(t, path, text, *update, "go test ./internal/shard -run "+t.Name()+" -update")
	}
}

func protocolPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	check.OK(t, err)
	return string(page)
}

// TestTheVectorsInDocsAreThoseOfTheFiles: docs/protocol.md shows the same places
// and bodies as the files for other languages. Each script that it links to is compared
// with the script that runs.
func TestTheVectorsInDocsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	page := protocolPage(t)
	vectors := golden[placeVectors](t, "place.json")
	var shards []int // the table's columns, as indexes into the file's shards.
	rows := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		switch {
		case strings.HasPrefix(line, "| ID | xxhash64 | "):
			for _, m := range cells[2:] {
				n, err := strconv.Atoi(strings.TrimPrefix(m, "M="))
				at := slices.Index(vectors.Shards, n)
				if err != nil || at < 0 {
					t.Fatalf("column %q is none of the file's", m)
				}
				shards = append(shards, at)
			}
		case shards != nil && strings.HasPrefix(line, "| `"):
			rows++
			if got := vectorRow(vectors, strings.Trim(cells[0], "`"), shards); got != strings.TrimSpace(line) {
				t.Errorf("docs/protocol.md says %s, and the file %s", strings.TrimSpace(line), got)
			}
		case rows > 0:
			shards = nil
		}
	}
	if rows < 5 {
		t.Errorf("found %d rows of places, want the table's", rows)
	}
	example := fmt.Sprintf("`hello`: `% x`", EncodeBody(&task.Task{Payload: []byte("hello")}))
	if !strings.Contains(page, example) {
		t.Errorf("docs/protocol.md lacks the example of a body, %s", example)
	}
	message, err := amqpmsg.Encode(amqpmsg.Message{RoutingKey: "order.due",
		Properties: amqpmsg.Properties{MessageID: "o-1"}, Body: []byte("hello")})
	if example := fmt.Sprintf("`% x`", message); err != nil || !strings.Contains(page, example) {
		t.Errorf("docs/protocol.md lacks the example of a message, %s: %v", example, err)
	}
	for _, link := range regexp.MustCompile(`\(protocol/(\w+)\.lua\)`).FindAllStringSubmatch(page, -1) {
		if !slices.Contains(docsScripts, link[1]) {
			t.Errorf("docs/protocol.md links to %s.lua, which no test compares", link[1])
		}
	}
}

// vectorRow is an ID's row of the table as the file has it.
func vectorRow(v placeVectors, id string, shards []int) string {
	for _, entry := range v.IDs {
		if entry.ID != id {
			continue
		}
		row := fmt.Sprintf("| `%s` | %s |", id, entry.Hash)
		for _, at := range shards {
			row += fmt.Sprintf(" %d |", entry.Place[at])
		}
		return row
	}
	return "has no such ID"
}
