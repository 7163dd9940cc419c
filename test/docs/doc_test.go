// Package docs_test compares the Markdown pages with the repository. The links, paths,
// metrics, flags, tests, settings and keys that a page names exist. Lines are short.
package docs_test
