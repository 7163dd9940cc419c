package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Release is the version of this source, as in a tag without its v.
const Release = "0.1.0"

// The linker sets version and commit if a build has no .git, as in deploy/container/rootfs.sh.
// If they are "", Release and the commit that the build recorded apply.
var version, commit string //nolint:gochecknoglobals // -X sets nothing else

// Build says how a program was built. The JSON names are an interface.
type Build struct {
	Program string `json:"program"`
	// Version is the version that the linker set. Without one it is Release, with + and the
	// beginning of the commit if the build recorded one.
	Version string `json:"version"`
	// Commit it was built from; "" if the build recorded none, as a build of an archive.
	// Modified reports whether files differed from the commit.
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

// stamp replaces version and commit by what the linker was given. A commit that ends with
// "-dirty", as git describe writes it, had files that differed from it.
func (b *Build) stamp(version, commit string) {
	if version != "" {
		b.Version = version
	}
	if commit != "" {
		b.Commit, b.Modified = strings.CutSuffix(commit, "-dirty")
	}
}

// newBuild reads what a build recorded. info may be nil.
func newBuild(program string, info *debug.BuildInfo) Build {
	b := Build{Program: program, Version: Release}
	if info == nil {
		return b
	}
	b.Go = info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	if b.Commit != "" {
		b.Version += "+" + b.Commit[:min(7, len(b.Commit))]
	}
	return b
}

// String is one line for people.
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
// configuration. write prints the text, or the value as JSON.
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
