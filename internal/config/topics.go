package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// ReadTopics returns the topics of a file, sorted by name. The file is either a
// configuration file, whose other settings are checked but not used, or only a map of
// topics. In the result, Raw is an equivalent document without comments. The error is
// Errors with all mistakes, or the error of reading the file.
func ReadTopics(path string) ([]Document, error) {
	text, err := readLimited(path, maxDocument)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	errs := &errorList{file: path}
	var docs []Document
	for name, t := range topicsIn(text, errs) {
		docs = append(docs, Document{Name: name, Raw: t.doc, Topic: t.topic})
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	slices.SortFunc(docs, func(a, b Document) int { return strings.Compare(a.Name, b.Name) })
	return docs, nil
}

// topicsIn reads a file as a configuration if it has the key topics, else as a map of
// topics by name.
func topicsIn(text []byte, errs *errorList) map[string]fileTopic {
	quiet := &errorList{file: errs.file}
	root := parse(text, maxFileMarks, quiet)
	if root == nil || slices.ContainsFunc(quiet.pairs("", root), func(p pair) bool { return p.key == "topics" }) {
		return readFile(text, errs).topics
	}
	return readMap(root, errs)
}

func readMap(root ast.Node, errs *errorList) map[string]fileTopic {
	topics := map[string]fileTopic{}
	readTopics(root, topics, errs)
	for i := range errs.list { // the map is the whole file
		errs.list[i].Key = strings.TrimPrefix(strings.TrimPrefix(errs.list[i].Key, "topics"), ".")
	}
	return topics
}
