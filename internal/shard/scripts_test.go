package shard

import (
	"regexp"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/check"
)

// scriptNames lists the scripts, the libraries they use excepted.
func scriptNames(t *testing.T) []string {
	t.Helper()
	files, err := sources.ReadDir("scripts")
	check.OK(t, err)
	var names []string
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".lua"); !strings.HasPrefix(name, "lib_") {
			names = append(names, name)
		}
	}
	if len(names) < 15 {
		t.Fatalf("only %d scripts: %q", len(names), names)
	}
	return names
}

func TestEveryScriptCompiles(t *testing.T) {
	t.Parallel()
	c := newSandbox(t, 1)
	for _, name := range scriptNames(t) {
		text, err := Script(name)
		check.OK(c.t, err)
		if _, err := c.rdb.ScriptLoad(c.t.Context(), text).Result(); err != nil {
			t.Errorf("script %s: %v", name, err)
		}
	}
}

func TestEveryScriptSaysWhatItTakesReturnsAndDoesTwice(t *testing.T) {
	t.Parallel()
	for _, name := range scriptNames(t) {
		text, err := sources.ReadFile("scripts/" + name + ".lua")
		check.OK(t, err)
		if !strings.HasPrefix(string(text), "#!lua") {
			t.Errorf("script %s doesn't begin with #!lua", name)
		}
		for _, part := range []string{`KEYS  \S`, `Returns \S`, `Executed twice: \S`} {
			if !regexp.MustCompile(`(?m)^-- ` + part).Match(text) {
				t.Errorf("the header of script %s has no line %q", name, part)
			}
		}
		takesArguments := strings.Contains(string(text), "ARGV[") || strings.Contains(string(text), "(ARGV)")
		if takesArguments && !regexp.MustCompile(`(?m)^-- ARGV  \S`).Match(text) {
			t.Errorf("the header of script %s doesn't say what ARGV is", name)
		}
	}
}

func TestScriptsThatOnlyReadSaySo(t *testing.T) {
	t.Parallel()
	writes := regexp.MustCompile(`redis\.call\('(SET|INCR|INCRBY|HSET|HSETNX|HDEL|ZADD|ZREM|SADD|DEL|UNLINK|SPUBLISH)'`)
	for _, name := range scriptNames(t) {
		text, err := Script(name)
		check.OK(t, err)
		first, _, _ := strings.Cut(text, "\n")
		if strings.Contains(first, "no-writes") == writes.MatchString(text) {
			t.Errorf("script %s begins with %q: does it write?", name, first)
		}
	}
}

func TestAScriptThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := Script("nothing"); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Fatalf("got %v", err)
	}
}
