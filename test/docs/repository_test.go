package docs_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/duefleet/duefleet/consumer"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/console"
	"github.com/duefleet/duefleet/internal/httpapi"
	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/scanner"
	"github.com/duefleet/duefleet/internal/telemetry"
	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
)

// root is the repository's folder, as tests see it.
const root = "../.."

// repository holds the names that pages may use.
type repository struct {
	files    map[string]bool // paths from the root; folders are true, files false
	names    map[string]bool // of files, without their folders
	anchors  map[string]map[string]bool
	metrics  map[string]bool
	programs map[string]program
	tests    map[string]bool
	settings map[string]bool // as in "redis.addrs" and "topics.orders.rate", a topic's also as in "rate"
	keys     map[string]bool // of Redis, as keyShape returns them
	checks   map[string]bool // of scanner doctor, as in "redis.users"
}

// program holds the flags of each verb. A verb is "topic set" for example; "" is the root.
type program map[string]map[string]bool

// flags of all verbs.
func (p program) flags() map[string]bool {
	all := map[string]bool{}
	for _, flags := range p {
		for flag := range flags {
			all[flag] = true
		}
	}
	return all
}

// readRepository reads the repository and its pages. It fails if it finds too little.
func readRepository(t *testing.T) (repository, []page) {
	t.Helper()
	r := repository{
		files: map[string]bool{}, names: map[string]bool{}, anchors: map[string]map[string]bool{},
		metrics: readMetrics(t), programs: map[string]program{}, tests: map[string]bool{},
		settings: readSettings(t), keys: map[string]bool{}, checks: map[string]bool{},
	}
	var pages []page
	for _, name := range walk(t, r) {
		switch {
		case strings.HasSuffix(name, ".md"):
			p := readPage(name, read(t, name))
			pages = append(pages, p)
			r.anchors[name] = p.anchors()
		case strings.HasSuffix(name, "_test.go"):
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, name), -1) {
				r.tests[m[1]] = true
			}
		case (path.Dir(name) == "internal/shard" || path.Dir(name) == "internal/registry") && strings.HasSuffix(name, ".go"):
			addKeys(r.keys, read(t, name))
		case path.Dir(name) == "internal/doctor" && strings.HasSuffix(name, ".go"):
			for _, m := range regexp.MustCompile(`"((?:redis|rabbitmq|consul)\.\w+)"`).FindAllStringSubmatch(read(t, name), -1) {
				r.checks[m[1]] = true
			}
		}
	}
	for _, name := range []string{"scanner", "producer"} {
		r.programs[name] = readProgram(read(t, "docs/reference/"+name+".md"))
	}
	// The tables of the outbox begin like metrics.
	created := regexp.MustCompile(`(?m)^CREATE (?:TABLE|SEQUENCE) (\w+)`)
	for _, name := range created.FindAllStringSubmatch(read(t, "outbox/postgres/001_outbox.sql")+
		read(t, "outbox/postgres/002_inbox.sql"), -1) {
		r.metrics[name[1]] = true
	}
	for what, n := range map[string]int{
		"pages": len(pages) - 30, "tests": len(r.tests) - 500, "metrics": len(r.metrics) - 40,
		"settings": len(r.settings) - 40,
		"keys":     len(r.keys) - 12, "checks of doctor": len(r.checks) - 5, "verbs": len(r.programs["scanner"]) - 15,
	} {
		if n < 0 {
			t.Fatalf("found too few %s: %d fewer than expected", what, -n)
		}
	}
	return r, pages
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// walk returns the repository's files in order, and notes them in r. It skips folders that
// hold built or installed files.
func walk(t *testing.T, r repository) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(root, at)
		if err != nil || relErr != nil || name == "." {
			return err
		}
		name = filepath.ToSlash(name)
		if e.IsDir() && (slices.Contains([]string{".git", ".dev", "bin", "node_modules"}, e.Name())) {
			return filepath.SkipDir
		}
		r.files[name] = e.IsDir()
		if !e.IsDir() {
			r.names[e.Name()] = true
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// collected is a registerer that only keeps the names of metrics.
type collected map[string]bool

// Register implements prometheus.Registerer.
func (c collected) Register(from prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		from.Describe(descriptions)
		close(descriptions)
	}()
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range descriptions {
		c[name.FindStringSubmatch(d.String())[1]] = true
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (c collected) MustRegister(all ...prometheus.Collector) {
	for _, from := range all {
		_ = c.Register(from) // it has no error
	}
}

// Unregister implements prometheus.Registerer.
func (c collected) Unregister(prometheus.Collector) bool { return false }

// readMetrics returns the metrics of scanners, producers and consumers, and those that
// operators record.
func readMetrics(t *testing.T) map[string]bool {
	t.Helper()
	all := collected{}
	_, err := scanner.NewMetrics(all, config.Admin{ShardSeries: 1}, telemetry.Build{})
	if err != nil {
		t.Fatal(err)
	}
	shards, err := telemetry.NewShardCollector(telemetry.ShardCollectorConfig{
		Stats:  func(context.Context) ([]telemetry.ShardStat, error) { return nil, nil },
		Errors: telemetry.Declare[telemetry.Errors](&telemetry.Set{}),
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	all.MustRegister(shards)
	if err := telemetry.AddCertificate(all, "redis", "ca.pem", time.Now); err != nil {
		t.Fatal(err)
	}
	if err := telemetry.AddProblems(all, 100, func() []problem.Problem { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.New(consumer.Config{
		URLs: []string{"amqp://127.0.0.1:1/"}, Queue: "q", Registerer: all, Log: slog.New(slog.DiscardHandler),
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}},
		Handler: func(context.Context, task.Delivery) error { return nil },
	}); err != nil {
		t.Fatal(err)
	}
	client, err := producer.New(producer.Config{
		Options: &redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}}, Registerer: all,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := httpapi.New(httpapi.Config{
		Listen: "127.0.0.1:0", Tasks: client, Batches: client, MaxPayload: 1, Registerer: all,
		Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`name\("(\w+)"\)`).FindAllStringSubmatch(read(t, "outbox/metrics.go"), -1) {
		all["duefleet_outbox_"+m[1]] = true // of a module of its own
	}
	if _, err := console.New(console.Config{
		Settings: config.Defaults().Console, Registerer: all, Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	for _, rules := range []string{"duefleet.expected.yaml", "duefleet.rules.yaml"} {
		for _, m := range regexp.MustCompile(`(?m)- record: (?:\w+:)?(\w+)$`).FindAllStringSubmatch(read(t,
			"deploy/prometheus/"+rules), -1) {
			all[m[1]] = true
		}
	}
	return all
}

// readProgram reads the verbs and flags of a program from its page in docs/reference,
// which a test compares with its help.
func readProgram(reference string) program {
	p := program{}
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`)
	command := regexp.MustCompile(`(?m)^  (\w+) {2,}\S`)
	for i, section := range strings.Split(reference, "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		_, verb, _ := strings.Cut(heading, " ") // behind the program's name
		if i == 0 {
			verb = ""
		}
		p[verb] = map[string]bool{"help": true}
		for _, m := range flag.FindAllStringSubmatch(body, -1) {
			p[verb][m[1]] = true
		}
		_, commands, _ := strings.Cut(body, "Available Commands:\n")
		commands, _, _ = strings.Cut(commands, "\n\n")
		for _, m := range command.FindAllStringSubmatch(commands, -1) {
			if name := strings.TrimSpace(verb + " " + m[1]); p[name] == nil {
				p[name] = map[string]bool{"help": true}
			}
		}
		if aliases := regexp.MustCompile(`(?m)^Aliases:\n  (\w+), (\w+)$`).FindStringSubmatch(body); aliases != nil {
			p[strings.TrimSuffix(verb, aliases[1])+aliases[2]] = p[verb]
		}
	}
	return p
}

// readSettings returns the keys of config.example.yaml, including those in comments. It
// returns each key of the topic also without "topics.orders".
func readSettings(t *testing.T) map[string]bool {
	t.Helper()
	text := regexp.MustCompile(`(?m)^( *)# (\w+_file: )`).ReplaceAllString(read(t, "config.example.yaml"), "$1$2")
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	addSettings(all, "", tree)
	return all
}

func addSettings(all map[string]bool, prefix string, tree map[string]any) {
	for key, value := range tree {
		key = prefix + key
		all[key] = true
		if under, ok := value.(map[string]any); ok {
			if key == "topics.orders" {
				addSettings(all, "", under)
			}
			addSettings(all, key+".", under)
		}
	}
}

// addKeys adds the shapes of the keys that a source file of internal/shard or internal/registry makes.
func addKeys(all map[string]bool, source string) {
	for pattern, place := range map[string]string{
		`\bs\.key\("(\w+)"\)`:               ":{topic:shard}",
		`\btopicKey\("(\w+)"[,)]`:           ":{topic}",
		`\br\.key\("([\w:]+)"\)`:            "",
		`\bs\.prefix \+ ":([\w:]+)"`:        "",
		`\bt\.store\.prefix \+ ":(\w+):\{"`: ":{topic:shard}",
		`\bs\.key\("(claim)"\) \+ ":`:       ":{topic:shard}:more",
	} {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(source, -1) {
			all[m[1]+place] = true
		}
	}
	for _, m := range regexp.MustCompile(`r\.documentKey\(topic\) \+ "(:\w+)"`).FindAllStringSubmatch(source, -1) {
		all["document:{topic}"+m[1]] = true
	}
}

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
