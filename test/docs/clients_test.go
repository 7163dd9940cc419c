package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheLineOfEachClientIsTested: the programs in test/clients contain the lines that the
// page tells users of the delayed message exchange to write.
func TestTheLineOfEachClientIsTested(t *testing.T) {
	t.Parallel()
	programs := map[string][]string{
		"python": {"python/publisher.py", "python/consumer.py"},
		"js":     {"node/publisher.js", "node/consumer.js"},
		"php":    {"php/publisher.php", "php/consumer.php"},
		"java":   {"java/Publisher.java", "java/Consumer.java"},
	}
	block := regexp.MustCompile("(?s)\n```(\\w+)\n(\\S+ With the plugin:.*?)```\n")
	for _, m := range block.FindAllStringSubmatch(read(t, "docs/from-the-delayed-exchange.md"), -1) {
		language, lines := m[1], strings.Split(strings.TrimSpace(m[2]), "\n")
		for _, file := range programs[language] {
			text := read(t, filepath.Join("test", "clients", file))
			for _, line := range lines {
				if !strings.Contains(text, line+"\n") {
					t.Errorf("test/clients/%s has no line %s", file, line)
				}
			}
		}
		delete(programs, language)
	}
	for language := range programs {
		t.Errorf("the page shows no line for %s", language)
	}
}
