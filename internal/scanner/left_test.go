package scanner

import (
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// TestAnIntakeThatADocumentLeavesIsLogged: once for each, with the command that unbinds it. A pause,
// or another exchange for the queue, leaves no queue.
func TestAnIntakeThatADocumentLeavesIsLogged(t *testing.T) {
	t.Parallel()
	l := newLone(t, map[string]string{"orders": taking("first")}, nil)
	l.start()
	left := func() []string { return l.said.Lines("leaves an intake") }
	write := func(doc string) {
		t.Helper()
		applied := l.served("orders").topic.inForce.Document()
		l.write(map[string]string{"orders": doc})
		check.Until(t, "the document to be applied", func() bool {
			return l.served("orders").topic.inForce.Document() != applied
		})
	}
	write(taking("first", "paused: true"))
	write(strings.Replace(taking("first"), "exchange: in,", "exchange: other,", 1))
	write(taking("first"))
	write(taking("second"))
	check.Until(t, "a line about the first queue", func() bool { return len(left()) == 1 })
	if line := left()[0]; !strings.Contains(line, "queue first stays bound to exchange in") ||
		!strings.Contains(line, "destination=first properties_key='#'") || !strings.Contains(line, "level=WARN") {
		t.Errorf("the log says %s", line)
	}
	write(declaring("orders", "shards: 2", "exchange: orders.out"))
	check.Until(t, "a line about the second queue", func() bool { return len(left()) == 2 })
	if line := left()[1]; !strings.Contains(line, "queue second stays bound to exchange in: RabbitMQ confirms") {
		t.Errorf("the log says %s", line)
	}
	write(taking("second"))
	check.Equal(t, "lines once the intake is back", len(left()), 2)
}
