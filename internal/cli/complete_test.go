package cli

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/test/check"
)

// TestVersionTellsOfTheBuild: it has what the build recorded, and the release if it recorded nothing.
func TestVersionTellsOfTheBuild(t *testing.T) {
	t.Parallel()
	built := &debug.BuildInfo{GoVersion: "go1.26.8", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "true"},
	}}
	for want, info := range map[string]*debug.BuildInfo{
		"scanner 0.1.0+0123abc, commit 0123abcd with changes, built with go1.26.8": built,
		"scanner 0.1.0, unknown commit, built with go1.26.8":                       {GoVersion: "go1.26.8"},
		"scanner 0.1.0, unknown commit, built with ":                               nil,
	} {
		if got := newBuild("scanner", info).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTheLinkerTellsOfTheBuild: what it was given wins, and the rest stays.
func TestTheLinkerTellsOfTheBuild(t *testing.T) {
	t.Parallel()
	for want, given := range map[string][2]string{
		"scanner 0.1.0+0123abc, commit 0123abcd, built with go1.26.8":              {"", ""},
		"scanner v2.0.0, commit 0123abcd, built with go1.26.8":                     {"v2.0.0", ""},
		"scanner v2.0.0, commit 4567cdef, built with go1.26.8":                     {"v2.0.0", "4567cdef"},
		"scanner 0.1.0+0123abc, commit 4567cdef with changes, built with go1.26.8": {"", "4567cdef-dirty"},
	} {
		b := newBuild("scanner", &debug.BuildInfo{
			GoVersion: "go1.26.8", Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abcd"}},
		})
		b.stamp(given[0], given[1])
		if got := b.String(); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

// TestShellsComplete: formats, files and topics where they may stand, and nothing else.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"show --output ":       "table json :4",
		"show --topic ":        "mails orders :4",
		"show ":                "mails orders :4",
		"show orders ":         ":4",
		"list ":                "mails orders :4",
		"list orders ":         ":4",
		"--config ":            ":0", // files
		"show --payload-file ": ":0",
	} {
		root := &cobra.Command{Use: "program"}
		root.PersistentFlags().String("config", "", "")
		show := &cobra.Command{Use: "show TOPIC", Run: func(*cobra.Command, []string) {}}
		format := NewFormatFlag(Table)
		show.Flags().VarP(&format, "output", "o", "")
		show.Flags().String("topic", "", "")
		show.Flags().String("payload-file", "", "")
		list := &cobra.Command{Use: "list [TOPIC] [--all]", Run: func(*cobra.Command, []string) {}}
		root.AddCommand(show, list)
		Complete(root, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"mails", "orders"}, cobra.ShellCompDirectiveNoFileComp
		})
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...))
		check.OK(t, root.Execute())
		if got := strings.Join(strings.Fields(out.String()), " "); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
}
