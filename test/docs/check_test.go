package docs_test

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// most is how many columns a line has at most.
const most = 100

// check returns the mistakes that it finds in a page.
type check func(r repository, p page) []string

// checks returns all checks, by name.
func checks() map[string]check {
	return map[string]check{
		"links": links, "paths": paths, "metrics": metrics, "flags": flags, "tests": tests,
		"settings": settings, "keys": keys, "width": width,
	}
}

// links checks that links lead to a file, and to a heading in it. It ignores addresses on
// the network.
func links(r repository, p page) (mistakes []string) {
	link := regexp.MustCompile(`\[[^\[\]]*\]\(([^()\s]+)\)|(?m:^\[[^\[\]]+\]: (\S+))`)
	for _, at := range link.FindAllStringSubmatchIndex(p.prose, -1) {
		from, to := at[2], at[3]
		if from < 0 {
			from, to = at[4], at[5]
		}
		target, fragment, hasFragment := strings.Cut(p.text[from:to], "#")
		if strings.Contains(target, ":") {
			continue
		}
		file := p.path
		if target != "" {
			file = path.Join(path.Dir(p.path), target)
		}
		_, there := r.files[file]
		switch {
		case !there:
			mistakes = append(mistakes, p.mistake(p.line(from), "the link to %s leads to no file", target))
		case hasFragment && !r.anchors[file][fragment]:
			mistakes = append(mistakes, p.mistake(p.line(from), "%s has no heading for #%s", file, fragment))
		}
	}
	return mistakes
}

// readersFiles returns names of files that pages name and that only readers have.
func readersFiles() []string {
	return []string{"config.yaml", "new-config.yaml", "topics.yaml", "scanner.yaml", "redis.conf"}
}

// paths checks that paths in spans of code exist. A path begins with a folder of the
// root, or of the page's folder. A name without a folder is checked if it has an
// extension of this repository. NAME stands for any name.
func paths(r repository, p page) (mistakes []string) {
	name := regexp.MustCompile(`^(?:\./)?([\w.@*-]+(?:/[\w.@*-]*)*)$`)
	source := regexp.MustCompile(`^[\w.@-]+\.(?:go|lua|acl|sh|tpl|md|ya?ml|conf|service)$`)
	for _, span := range p.spans {
		m := name.FindStringSubmatch(span.text)
		if m == nil {
			continue
		}
		at := strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(m[1], "/..."), "/"), "NAME", "*")
		first, _, nested := strings.Cut(m[1], "/")
		switch {
		case nested && (r.files[first] || r.files[path.Join(path.Dir(p.path), first)]):
			if !r.has(at) && !r.has(path.Join(path.Dir(p.path), at)) {
				mistakes = append(mistakes, p.mistake(span.line, "there is no %s", span.text))
			}
		case !nested && source.MatchString(at) && !r.names[at] && !slices.Contains(readersFiles(), at):
			mistakes = append(mistakes, p.mistake(span.line, "there is no file %s", span.text))
		}
	}
	return mistakes
}

// has reports whether a file or folder with this name exists, or one that matches it as a
// pattern.
func (r repository) has(name string) bool {
	if _, there := r.files[name]; there || !strings.Contains(name, "*") {
		return there
	}
	return slices.ContainsFunc(slices.Collect(maps.Keys(r.files)), func(file string) bool {
		fits, err := path.Match(name, file)
		return err == nil && fits
	})
}

// metrics checks that every named metric of duefleet exists.
func metrics(r repository, p page) (mistakes []string) {
	for _, at := range regexp.MustCompile(`\bduefleet_[a-z0-9_]*[a-z0-9]\b`).FindAllStringIndex(p.text, -1) {
		name := p.text[at[0]:at[1]]
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !r.metrics[name] && !r.metrics[base] {
			mistakes = append(mistakes, p.mistake(p.line(at[0]), "there is no metric %s", name))
		}
	}
	return mistakes
}

// flags checks that the named verbs and flags of scanner and producer exist. In a span
// that begins with a flag, the flag may belong to any verb of both programs.
func flags(r repository, p page) (mistakes []string) {
	for _, code := range slices.Concat(p.spans, p.lines) {
		for _, words := range commands(code.text) {
			for _, wrong := range r.wrongWords(words) {
				mistakes = append(mistakes, p.mistake(code.line, "%s", wrong))
			}
		}
	}
	return mistakes
}

// commands splits a line of a shell into commands, and each command into words. It leaves
// out comments.
func commands(line string) (all [][]string) {
	line = regexp.MustCompile(`(^|\s)#.*`).ReplaceAllString(line, "")
	for _, command := range regexp.MustCompile(`[|;]|&&|\$\(|<\(`).Split(line, -1) {
		words := strings.Fields(command)
		assigned := func(word string) bool { return regexp.MustCompile(`^[A-Z_]+=`).MatchString(word) }
		for len(words) > 0 && (assigned(words[0]) || words[0] == "$") {
			words = words[1:]
		}
		if len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}

// wrongWords returns the verbs, flags and settings of a command that don't exist. It
// returns nil for a command of another program.
func (r repository) wrongWords(words []string) (wrong []string) {
	called, ours := r.programs[path.Base(words[0])]
	verb, known := "", map[string]bool{}
	switch {
	case ours:
		verb, words = called.verb(words[1:])
		known = called[verb]
		if len(words) > 0 && regexp.MustCompile(`^[a-z]+$`).MatchString(words[0]) && called.hasVerbs(verb) {
			wrong = append(wrong, "there is no verb "+strings.TrimSpace(verb+" "+words[0]))
		}
	case strings.HasPrefix(words[0], "--"):
		for _, p := range r.programs {
			maps.Copy(known, p.flags())
		}
	default:
		return nil
	}
	for _, word := range words {
		if word == "--" { // the rest is another program's
			break
		}
		word = strings.Trim(word, "[]()")
		if name := regexp.MustCompile(`^--(\w[\w-]*)`).FindStringSubmatch(word); name != nil && !known[name[1]] {
			wrong = append(wrong, strings.TrimSpace(verb+" "+name[0])+" is no flag")
		}
		if key, _, set := strings.Cut(word, "="); set && (verb == "topic set" || verb == "topic create") && !r.settable(key) {
			wrong = append(wrong, key+" is no setting of a topic")
		}
	}
	return wrong
}

// settable reports whether a word before = is a setting of a topic, a flag, or the
// placeholder key.
func (r repository) settable(key string) bool {
	return r.settings["topics.orders."+key] || strings.HasPrefix(key, "-") || strings.EqualFold(key, "key")
}

// verb returns the verb that words begin with, and the words after it.
func (p program) verb(words []string) (verb string, rest []string) {
	for len(words) > 0 {
		longer := strings.TrimSpace(verb + " " + words[0])
		if p[longer] == nil {
			break
		}
		verb, words = longer, words[1:]
	}
	return verb, words
}

// hasVerbs reports whether a verb has verbs of its own.
func (p program) hasVerbs(verb string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(p)), func(name string) bool {
		return name != verb && strings.HasPrefix(name, verb) && (verb == "" || strings.HasPrefix(name, verb+" "))
	})
}

// tests checks that every named test exists. After ONLY= and -run, a part of a name is
// enough.
func tests(r repository, p page) (mistakes []string) {
	for _, at := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllStringIndex(p.text, -1) {
		name := p.text[at[0]:at[1]]
		part := regexp.MustCompile(`(ONLY=|-run ['"^]*)$`).MatchString(p.text[:at[0]])
		fits := func(test string) bool { return test == name || part && strings.Contains(test, name) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.tests)), fits) {
			mistakes = append(mistakes, p.mistake(p.line(at[0]), "there is no test %s", name))
		}
	}
	return mistakes
}

// settings checks that settings in spans of code exist. A setting begins with a section
// of the configuration, and a value may follow.
func settings(r repository, p page) (mistakes []string) {
	dotted := regexp.MustCompile(`^((?:redis|rabbitmq|consul|admin|log|declare|backoff)\.[a-z_.]+)(?:=.*|: .*)?$`)
	for _, span := range p.spans {
		m := dotted.FindStringSubmatch(span.text)
		if m == nil || r.settings[m[1]] || r.checks[m[1]] || slices.Contains(readersFiles(), m[1]) {
			continue
		}
		mistakes = append(mistakes, p.mistake(span.line, "there is no setting %s", m[1]))
	}
	return mistakes
}

// keys checks that every named key of Redis exists. A key begins with the prefix duefleet
// or <prefix>.
func keys(r repository, p page) (mistakes []string) {
	key := regexp.MustCompile(`(?:\bduefleet|<prefix>):([a-z]+(?::[a-z]+)*(?::\{[^{}\s]+\}(?::[a-z]+)?)?)`)
	for _, at := range key.FindAllStringSubmatchIndex(p.text, -1) {
		if name := p.text[at[2]:at[3]]; !r.keys[keyShape(name)] {
			mistakes = append(mistakes, p.mistake(p.line(at[0]), "there is no key %s", p.text[at[0]:at[1]]))
		}
	}
	return mistakes
}

// keyShape is a key without its prefix, and with {topic} or {topic:shard} in place of what
// the braces hold.
func keyShape(name string) string {
	return regexp.MustCompile(`\{[^{}]*\}`).ReplaceAllStringFunc(name, func(place string) string {
		if strings.Contains(place, ":") {
			return "{topic:shard}"
		}
		return "{topic}"
	})
}

// width checks that lines have at most 100 columns. Tables, blocks of code and the
// targets of links don't count.
func width(_ repository, p page) (mistakes []string) {
	prose := strings.Split(p.prose, "\n")
	for i, line := range strings.Split(p.text, "\n") {
		block := strings.TrimSpace(prose[i]) == "" && !strings.HasPrefix(strings.TrimSpace(line), "`")
		if block || strings.HasPrefix(strings.TrimSpace(line), "|") {
			continue
		}
		short := regexp.MustCompile(`\]\([^()\s]+\)`).ReplaceAllString(line, "]()")
		if n := utf8.RuneCountInString(short); n > most {
			mistakes = append(mistakes, p.mistake(i+1, "%d columns, %d are enough", n, most))
		}
	}
	return mistakes
}
