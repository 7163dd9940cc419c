package clients_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestThePagesCodeOfFrameworksIsTested: the programs contain the lines that the page tells
// users of each tried framework to write.
func TestThePagesCodeOfFrameworksIsTested(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/from-the-delayed-exchange.md")
	for title, file := range map[string]string{
		"Kombu": "kombu/publisher.py", "Celery": "celery/orders.py", "Symfony Messenger": "symfony/messenger.php",
	} {
		code := regexp.MustCompile("(?s)\n### " + title + "\n.*?\n```\\w+\n(.*?)```\n").FindStringSubmatch(page)
		if code == nil {
			t.Errorf("the page has no code for %s", title)
			continue
		}
		program := read(t, file)
		for _, line := range strings.Split(strings.TrimSpace(code[1]), "\n") {
			if !strings.Contains(program, line+"\n") {
				t.Errorf("%s has no line %s", file, line)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // files of this repository
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
