package config

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

const exampleFile = "../../config.example.yaml"

func TestExampleHoldsTheDefaults(t *testing.T) {
	t.Parallel()
	got, err := Load(exampleFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	orders := DefaultTopic("orders")
	orders.RoutingKey = "order.due"
	orders.Declare = &Declare{Type: "direct", Queue: "orders.due", QueueType: "quorum"}
	want.Topics["orders"] = orders
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

func TestExampleHasEveryKeyAndSaysWhatItIs(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	docs := exampleComments(string(content))
	for _, f := range configFields() {
		checkComment(t, docs, f.key, f.doc)
	}
	for _, f := range topicFields() {
		checkComment(t, docs, "topics.orders."+f.key, f.doc)
	}
}

func checkComment(t *testing.T, docs map[string]string, key, want string) {
	t.Helper()
	if got, ok := docs[key]; !ok || got != want {
		t.Errorf("%s: got comment %q, want %q", key, got, want)
	}
}

// exampleComments returns the comment of each key, by its dotted path. A key
// may itself be commented out.
func exampleComments(content string) map[string]string {
	docs := map[string]string{}
	var path []string
	for line := range strings.Lines(content) {
		text := strings.TrimLeft(line, " ")
		depth := (len(line) - len(text)) / 2
		key, rest, ok := strings.Cut(strings.TrimPrefix(text, "# "), ":")
		if !ok || strings.Contains(key, " ") || depth > len(path) {
			continue
		}
		path = append(path[:depth], key)
		if _, doc, ok := strings.Cut(rest, " # "); ok {
			docs[strings.Join(path, ".")] = strings.TrimSpace(doc)
		}
	}
	return docs
}
