package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

func guidePath() string { return filepath.Join("..", "..", "docs", "guide.md") }

var shownInGo = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// pagesOfParts show parts of files instead of programs.
var pagesOfParts = []string{guidePath(), filepath.Join("..", "..", "docs", "outbox.md")}

// TestTheGuideShowsCodeThatIsTested: each Go block of pagesOfParts is, line for line, a
// part of a file that the guide links to. The file belongs to a program or to compiled
// examples.
func TestTheGuideShowsCodeThatIsTested(t *testing.T) {
	t.Parallel()
	for _, page := range pagesOfParts {
		text, err := os.ReadFile(page)
		check.OK(t, err)
		var sources []string
		for _, link := range regexp.MustCompile(`\]\((\.\./[^)#]+\.go)\)`).FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(link[1], "../examples/") && !strings.HasSuffix(link[1], "example_test.go") {
				continue
			}
			source, err := os.ReadFile(filepath.Join(filepath.Dir(page), link[1]))
			check.OK(t, err)
			sources = append(sources, string(source))
		}
		blocks := shownInGo.FindAllStringSubmatch(string(text), -1)
		if len(blocks) < 4 || len(sources) == 0 {
			t.Fatalf("%s has only %d blocks, and links to %d files", page, len(blocks), len(sources))
		}
		for _, block := range blocks {
			if !isIn(sources, block[1]) {
				t.Errorf("no file that %s links to has this:\n%s", page, block[1])
			}
		}
		if other := strings.Replace(blocks[0][1], "producer", "customer", 1); isIn(sources, other) {
			t.Errorf("isIn finds a block that no file has:\n%s", other)
		}
	}
}

// isIn reports whether a source has the lines of the block.
func isIn(sources []string, block string) bool {
	for _, source := range sources {
		if strings.Contains("\n"+source, "\n"+block) {
			return true
		}
	}
	return false
}

// TestTheGuideNamesEveryError: docs/guide.md names every error that applications may get.
func TestTheGuideNamesEveryError(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(guidePath())
	check.OK(t, err)
	named, declared := 0, regexp.MustCompile(`(?m)^(?:\t|var )(Err[A-Z]\w+) += |^type (\w+Error) struct`)
	for _, folder := range []string{"task", "producer", "consumer"} {
		files, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
		check.OK(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file) //nolint:gosec // a file of ours
			check.OK(t, err)
			for _, name := range declared.FindAllStringSubmatch(string(source), -1) {
				named++
				if want := "`" + folder + "." + name[1] + "`"; name[1] != "" && !strings.Contains(string(guide), want) {
					t.Errorf("the guide lacks %s", want)
				}
				if want := "`*" + folder + "." + name[2] + "`"; name[2] != "" && !strings.Contains(string(guide), want) {
					t.Errorf("the guide lacks %s", want)
				}
			}
		}
	}
	if named < 13 {
		t.Errorf("found %d errors, want 13 at least", named)
	}
}
