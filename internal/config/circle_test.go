package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTopicsInACircleAreRefused: the error names the way. A chain of topics is none.
func TestTopicsInACircleAreRefused(t *testing.T) {
	t.Parallel()
	const twoTopics = "b delivers to exchange x, the intake of c; c delivers to exchange y, the intake of b"
	for topics, want := range map[string]string{
		"{b: {exchange: x, intake: {exchange: y}}, c: {exchange: y, intake: {exchange: x}}}": "b.intake.exchange: " +
			"tasks would go round in a circle: " + twoTopics,
		"{a: {exchange: y, intake: {exchange: z}}, b: {exchange: x, intake: {exchange: y}}, " +
			"c: {exchange: y, intake: {exchange: x}}}": twoTopics,
		"{a: {exchange: x, intake: {exchange: z}}, b: {exchange: y, intake: {exchange: x}}, " +
			"c: {exchange: z, intake: {exchange: y}}}": "a delivers to exchange x, the intake of b; b delivers to exchange y, " +
			"the intake of c; c delivers to exchange z, the intake of a",
		"{a: {exchange: x, intake: {exchange: z}}, b: {exchange: y, intake: {exchange: x}}, c: {exchange: z}}":      "",
		"{a: {exchange: y, intake: {exchange: x}}, b: {exchange: y, intake: {exchange: x}}, c: {exchange: ''}}":     "",
		"{b: {exchange: x, intake: {exchange: y}}, c: {exchange: y, intake: {exchange: ''}}, d: {exchange: other}}": "",
	} {
		path := filepath.Join(t.TempDir(), "topics.yaml")
		if err := os.WriteFile(path, []byte(topics), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, read := range map[string]func() error{
			"topics": func() error { _, err := ReadTopics(path); return err },
			"config": func() error { return loaded(t, "topics: "+topics) },
		} {
			err := read()
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want %s", name, topics, err, want)
			}
		}
	}
}

// loaded returns the error of loading a configuration.
func loaded(t *testing.T, text string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, nil)
	return err
}
