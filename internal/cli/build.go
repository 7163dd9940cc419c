package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// The linker sets version and commit if the build has no .git, as in the image: see
// deploy/container/rootfs.sh. "" keeps what the build recorded.
var version, commit string //nolint:gochecknoglobals // -X sets nothing else

// Build says how a program was built. The JSON names are an interface.
type Build struct {
	Program string `json:"program"`
	// Version is the module's version; "devel" if the build recorded none.
	Version string `json:"version"`
	// Commit is the commit it was built from, and Modified whether files differed from
	// it. Commit is "" if the build recorded none, as a build from a release archive.
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	// Go is the toolchain's version.
	Go string `json:"go"`
}

// ReadBuild returns what this program's build recorded.
func ReadBuild(program string) Build {
	info, _ := debug.ReadBuildInfo()
	b := newBuild(program, info)
	b.stamp(version, commit)
	return b
}

// stamp replaces what the build recorded by the linker's values, unless they are "". A
// commit that ends with "-dirty", as in git describe, had modified files.
func (b *Build) stamp(version, commit string) {
	if version != "" {
		b.Version = version
	}
	if commit != "" {
		b.Commit, b.Modified = strings.CutSuffix(commit, "-dirty")
	}
}

// newBuild returns the recorded Build; info is nil if nothing was recorded.
func newBuild(program string, info *debug.BuildInfo) Build {
	b := Build{Program: program, Version: "devel"}
	if info == nil {
		return b
	}
	b.Go = info.GoVersion
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns one line for people.
func (b Build) String() string {
	commit := "unknown commit"
	if b.Commit != "" {
		commit = "commit " + b.Commit
	}
	if b.Modified {
		commit += " with changes"
	}
	return fmt.Sprintf("%s %s, %s, built with %s", b.Program, b.Version, commit, b.Go)
}

// VersionCommand returns the verb that prints how the program was built. It needs no
// configuration. It passes write the text, and the value for JSON output.
func VersionCommand(program string, write func(cmd *cobra.Command, text string, value any) error) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Prints version and commit of this program",
		Args:              NoArguments,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // in place of the parent's
		RunE: Verb(func(cmd *cobra.Command, _ []string) error {
			b := ReadBuild(program)
			return write(cmd, b.String(), b)
		}),
	}
}
