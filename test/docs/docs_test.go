// Package docs_test compares the Markdown pages with the repository. The links, paths,
// metrics, flags, tests, settings and keys that a page names exist. Lines are short.
package docs_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wide lists the pages that may have lines of more than 100 columns. TestPages fails if a
// page of the list has no such line.
func wide() []string {
	return []string{
		"docs/benchmarks.md",
		"docs/reference/producer.md", "docs/reference/scanner.md",
	}
}

// TestPages: no page has a mistake that a check finds.
func TestPages(t *testing.T) {
	t.Parallel()
	r, pages := readRepository(t)
	for name, check := range checks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range pages {
				mistakes := check(r, p)
				if name == "width" && slices.Contains(wide(), p.path) {
					if len(mistakes) == 0 {
						t.Errorf("%s has no wide line any more: take it off the list", p.path)
					}
					continue
				}
				for _, mistake := range mistakes {
					t.Error(mistake)
				}
			}
		})
	}
}

// TestReadmeIsShort: a tired reader gets through it.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	if n := strings.Count(read(t, "README.md"), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, want 150 at most", n)
	}
}

// TestFilesNamePagesThatExist: every page and section of docs exists that a program, a
// comment or a chart names. It finds docs/deploy.md, docs/deploy.md#rights,
// "docs/deploy.md, Rights" and "Rights" in docs/deploy.md.
func TestFilesNamePagesThatExist(t *testing.T) {
	t.Parallel()
	r, _ := readRepository(t)
	named := 0
	for name, folder := range r.files {
		extensions := []string{".go", ".yaml", ".json", ".tpl", ".lua", ".py", ".sh", ".acl", ".service", ".conf"}
		if folder || !slices.Contains(extensions, path.Ext(name)) || strings.HasPrefix(name, "test/docs/") {
			continue
		}
		n, mistakes := namedPages(r, read(t, name))
		named += n
		for _, mistake := range mistakes {
			t.Errorf("%s: %s", name, mistake)
		}
	}
	if named < 60 {
		t.Errorf("found pages named %d times: are they still looked for?", named)
	}
}

// namedPage matches the name of a page, with the section that is named before or after
// it.
func namedPage() *regexp.Regexp {
	return regexp.MustCompile(`(?:\\?"([A-Z][^"\\\n]+)\\?" in )?\bdocs/([\w/-]+\.md)(?:#([\w-]+)|, ([A-Z]\w+(?: [A-Z]\b)?))?`)
}

// namedPages returns how many pages a text names, and the pages and sections that don't
// exist.
func namedPages(r repository, text string) (n int, mistakes []string) {
	var lines strings.Builder // few name a page, and the expression is slow
	for line := range strings.Lines(text) {
		if strings.Contains(line, "docs/") {
			lines.WriteString(line)
		}
	}
	for _, m := range namedPage().FindAllStringSubmatch(lines.String(), -1) {
		n++
		file := "docs/" + m[2]
		section := m[3]
		if heading := m[1] + m[4]; heading != "" {
			section = anchor(heading)
		}
		switch {
		case r.anchors[file] == nil:
			mistakes = append(mistakes, "there is no "+file)
		case section != "" && !r.anchors[file][section]:
			mistakes = append(mistakes, file+" has no section "+section)
		}
	}
	return n, mistakes
}

// TestMistakesAreFound: each check finds its mistakes, and none in a correct text.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	r := repository{
		files: map[string]bool{
			"docs": true, "docs/a.md": false, "docs/b.md": false, "internal": true, "internal/x": true,
			"internal/x/y.go": false, "docs/sub": true, "docs/sub/z.lua": false,
		},
		names:   map[string]bool{"a.md": true, "b.md": true, "y.go": true, "z.lua": true},
		anchors: map[string]map[string]bool{"docs/a.md": {}, "docs/b.md": {"one-more": true, "rights": true}},
		metrics: map[string]bool{"duefleet_claims_total": true, "duefleet_claim_seconds": true},
		programs: map[string]program{
			"scanner": {
				"":    {"config": true, "help": true},
				"run": {"config": true}, "topic": {"config": true}, "topic set": {"wait": true, "config": true},
			},
			"producer": {"": {"config": true}, "load": {"file": true}},
		},
		tests: map[string]bool{"TestClaim": true, "TestClaimLate": true},
		settings: map[string]bool{"redis.addrs": true, "topics.orders.rate": true, "declare.queue": true,
			"topics.orders.declare.queue": true},
		keys: map[string]bool{"due:{topic:shard}": true, "placement:{topic}": true, "topics": true,
			"document:{topic}:source": true},
		checks: map[string]bool{"redis.users": true},
	}
	long := strings.Repeat("word ", 20) + "end"
	for _, c := range []struct{ check, text, want string }{
		{"links", "[b](b.md), [one](b.md#one-more), [self](#top), [net](https://x.org/y.md)\n# Top", ""},
		{"links", "[b](c.md)", "docs/a.md:1: the link to c.md leads to no file"},
		{"links", "one\n[two\nlines](../internal/x/z.go)", "docs/a.md:3: the link to ../internal/x/z.go leads to no file"},
		{"links", "[b](b.md#two)", "docs/a.md:1: docs/b.md has no heading for #two"},
		{"links", "[self](#other)\n# Top", "docs/a.md:1: docs/a.md has no heading for #other"},
		{"links", "[b]: c.md", "docs/a.md:1: the link to c.md leads to no file"},
		{"links", "`[b](c.md)`\n```\n[b](c.md)\n```", ""},
		{"paths", "`internal/x/y.go`, `internal/x/`, `internal/x/*.go`, `y.go`, `sub/z.lua`, `config.yaml`, " +
			"`application/json`", ""},
		{"paths", "`internal/x/NAME.go`", ""},
		{"paths", "`internal/x/NAME.lua`", "docs/a.md:1: there is no internal/x/NAME.lua"},
		{"paths", "`internal/x/z.go`", "docs/a.md:1: there is no internal/x/z.go"},
		{"paths", "`internal/w/`", "docs/a.md:1: there is no internal/w/"},
		{"paths", "`internal/x/*.lua`", "docs/a.md:1: there is no internal/x/*.lua"},
		{"paths", "`sub/y.lua`", "docs/a.md:1: there is no sub/y.lua"},
		{"paths", "`gone.go`", "docs/a.md:1: there is no file gone.go"},
		{"metrics", "`duefleet_claims_total{topic}`, duefleet_claim_seconds_bucket; all begin with `duefleet_`", ""},
		{"metrics", "```\nduefleet_claimed_total\n```", "docs/a.md:2: there is no metric duefleet_claimed_total"},
		{"flags", "`scanner run --config F`, `producer load --file F`, `--wait`, `ls --color`, `scanner`", ""},
		{"flags", "`bin/scanner topic set orders rate=1 --wait`, `A=1 scanner run`", ""},
		{"flags", "`scanner run --wait`", "docs/a.md:1: run --wait is no flag"},
		{"flags", "```sh\nproducer load --files F\n```", "docs/a.md:2: load --files is no flag"},
		{"flags", "```sh\ncat F | producer load --stdin # no --file\n```", "docs/a.md:2: load --stdin is no flag"},
		{"flags", "```sh\nscanner run \\\n  --wait\n```", "docs/a.md:2: run --wait is no flag"},
		{"flags", "`scanner topic put`", "docs/a.md:1: there is no verb topic put"},
		{"flags", "`scanner topic set orders speed=1`", "docs/a.md:1: speed is no setting of a topic"},
		{"flags", "`--color`", "docs/a.md:1: --color is no flag"},
		{"tests", "`TestClaim`, `make chaos ONLY=TestClaimL`, go test -run '^TestClaimLa'", ""},
		{"tests", "see `TestClai`", "docs/a.md:1: there is no test TestClai"},
		{"tests", "`make chaos ONLY=TestGone`", "docs/a.md:1: there is no test TestGone"},
		{"settings", "`redis.addrs`, `redis.addrs: [a]`, `declare.queue=q`, `redis.users`, `redis.conf`, `orders.due`", ""},
		{"settings", "`redis.address`", "docs/a.md:1: there is no setting redis.address"},
		{"settings", "`declare.name=q`", "docs/a.md:1: there is no setting declare.name"},
		{"keys", "`duefleet:due:{orders:3}`, `<prefix>:placement:{<topic>}`, `duefleet:topics`, " +
			"`duefleet:document:{o}:source`, duefleet: it", ""},
		{"keys", "`duefleet:late:{orders:3}`", "docs/a.md:1: there is no key duefleet:late:{orders:3}"},
		{"keys", "`duefleet:due:{orders}`", "docs/a.md:1: there is no key duefleet:due:{orders}"},
		{"keys", "`<prefix>:place:{<topic>}`", "docs/a.md:1: there is no key <prefix>:place:{<topic>}"},
		{"width", "| " + long + " |\n```\n" + long + "\n```\n[" + strings.Repeat("x", 90) + "](" + strings.Repeat("y", 90) +
			")", ""},
		{"width", "short\n" + long, "docs/a.md:2: 103 columns, 100 are enough"},
		{"width", "`" + long + "`", "docs/a.md:1: 105 columns, 100 are enough"},
	} {
		p := readPage("docs/a.md", c.text)
		r.anchors["docs/a.md"] = p.anchors()
		if got := strings.Join(checks()[c.check](r, p), "; "); got != c.want {
			t.Errorf("%s of %q: found %q, want %q", c.check, c.text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		`docs/b.md, docs/b.md#rights, "docs/b.md, Rights", \"One more\" in docs/b.md`: "",
		"docs/c.md":                  "there is no docs/c.md",
		"blob/main/docs/b.md#wrongs": "docs/b.md has no section wrongs",
		"docs/b.md, Wrongs":          "docs/b.md has no section wrongs",
		`\"Two more\" in docs/b.md`:  "docs/b.md has no section two-more",
	} {
		if _, mistakes := namedPages(r, text); strings.Join(mistakes, "; ") != want {
			t.Errorf("names in %q: found %q, want %q", text, mistakes, want)
		}
	}
}

// TestThePagesCodeOfFrameworksIsTested: the programs of test/clients contain the lines that the page
// tells users of each tried framework to write.
func TestThePagesCodeOfFrameworksIsTested(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/from-the-delayed-exchange.md")
	for title, file := range map[string]string{
		"Kombu": "kombu/publisher.py", "Celery": "celery/orders.py", "Symfony Messenger": "symfony/messenger.php",
	} {
		code := regexp.MustCompile("(?s)\n### " + title + "\n.*?\n```\\w+\n(.*?)```\n").FindStringSubmatch(page)
		if code == nil {
			t.Errorf("the page has no code for %s", title)
			continue
		}
		program := read(t, "test/clients/"+file)
		for _, line := range strings.Split(strings.TrimSpace(code[1]), "\n") {
			if !strings.Contains(program, line+"\n") {
				t.Errorf("%s has no line %s", file, line)
			}
		}
	}
}
