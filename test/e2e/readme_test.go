package e2e_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/duefleet/duefleet/test/race"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// programsShown holds a check for each Go program in the pages, by page and heading.
var programsShown = map[string]func(w *fixture, program string){
	"README.md: Schedule from an application": runShownProducer,
	"README.md: Consume":                      runShownConsumer,
}

// TestEveryProgramOfThePagesRuns: every Go block in a page is a complete program, and
// does with a fleet what the page says. pagesOfParts show parts of files instead: see
// TestTheGuideShowsCodeThatIsTested.
func TestEveryProgramOfThePagesRuns(t *testing.T) {
	t.Parallel()
	shown := shownPrograms(t)
	for where := range programsShown {
		if shown[where] == "" {
			t.Errorf("no page shows the program %s", where)
		}
	}
	for where, text := range shown {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			runs := programsShown[where]
			if runs == nil {
				t.Fatalf("nothing runs the program %s", where)
			}
			servertest.Need(t, "redis-server", "rabbitmq-server")
			server := servertest.OwnRedis(t) // the pages use the default prefix
			settings := fleet.Settings{Topics: map[string]fleet.Topic{"orders": fleet.DeclaredTopic("orders", nil)}}
			settings.RedisAddr, settings.RedisPrefix, settings.RabbitMQURL = server.Addr(), "duefleet", servertest.RabbitMQ(t)
			w := newFixtureOn(t, settings, servertest.RedisOptions(server.Addr()))
			text := strings.NewReplacer("127.0.0.1:6379", server.Addr(), "amqp://guest:guest@127.0.0.1:5672/",
				settings.RabbitMQURL).Replace(text)
			program := buildShown(t, text)
			w.start(1)
			w.awaitTopic("orders")
			runs(w, program)
		})
	}
}

// runShownProducer checks that the program stores its task and cancels it in time.
func runShownProducer(w *fixture, program string) {
	w.t.Helper()
	out := must(w.t, run(w.t, fleet.Command{Path: program}))
	if !regexp.MustCompile(`^placed; it will be cancelled at 20\d\d-.*\npaid in time\n$`).MatchString(out.Stdout) ||
		out.Stderr != "" {
		w.t.Errorf("it prints %q and %q", out.Stdout, out.Stderr)
	}
	if out := w.producer("get", "--topic", "orders", "--id", "o-1"); out.Code != 3 {
		w.t.Errorf("the task is still there: %s", out.Stdout)
	}
	w.stop() // without a scanner for its topic
	check.OK(w.t, w.redis.FlushAll(w.t.Context()).Err())
	if out := run(w.t, fleet.Command{Path: program}); out.Code != 1 || !strings.Contains(out.Stderr,
		"unknown topic orders") {
		w.t.Errorf("without a scanner: code %d, %q", out.Code, out.Stderr)
	}
}

// runShownConsumer checks that the program handles due tasks, and exits without an error
// on Ctrl-C.
func runShownConsumer(w *fixture, program string) {
	w.t.Helper()
	var said check.Log
	cmd := exec.CommandContext(w.t.Context(), program)
	cmd.Stdout, cmd.Stderr = &said, &said
	check.OK(w.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	must(w.t, w.producer("schedule", "--topic", "orders", "--id", "o-2", "--in", "0s", "--payload", "order-2"))
	check.Until(w.t, "the consumer to handle the task", func() bool {
		return strings.Contains(said.String(), "unpaid, cancelled id=o-2 payload=order-2")
	})
	check.OK(w.t, cmd.Process.Signal(syscall.SIGINT))
	if err := check.Receive(w.t, "the consumer to end", ended); err != nil {
		w.t.Errorf("the consumer ended with %v:\n%s", err, said.String())
	}
}

// buildShown compiles a program as one file, with the module's packages.
func buildShown(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "shown")
	check.OK(t, os.WriteFile(source, []byte(text), 0o600))
	args := []string{"build", "-o", program}
	if race.Detects {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, source)...) //nolint:gosec // our own arguments
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("it does not compile: %v\n%s", err, out)
	}
	return program
}

// shownPrograms returns the Go blocks of all pages, by page and heading.
func shownPrograms(t *testing.T) map[string]string {
	t.Helper()
	root, shown := filepath.Join("..", ".."), map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" || slices.Contains(pagesOfParts, path) {
			return nil
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		for _, section := range regexp.MustCompile(`(?m)^#+ `).Split(string(page), -1) {
			heading, _, _ := strings.Cut(section, "\n")
			for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
				where := filepath.ToSlash(name) + ": " + heading
				if shown[where] != "" {
					where += ", again"
				}
				shown[where] = block[1]
			}
		}
		return err
	})
	check.OK(t, err)
	return shown
}
