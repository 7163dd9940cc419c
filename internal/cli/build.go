package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Release is the version of this source, as in a tag without its v.
const Release = "0.1.0"

// The linker sets version and commit, because an image is built without .git; see
// deploy/container/rootfs.sh. If version is "", Release applies. If commit is "", the
// commit that Go recorded in the program applies.
var version, commit string //nolint:gochecknoglobals // -X sets nothing else

// Build says how a program was built. The JSON names are an interface.
type Build struct {
	Program string `json:"program"`
	// Version is the version that the linker set. Without one it is Release, with + and the
	// beginning of the commit if the build recorded one.
	Version string `json:"version"`
	// Commit is the commit that the program was built from. It is "" if the build
	// recorded none, for example in a build from an archive. Modified reports whether
	// files differed from the commit.
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

// stamp replaces Version and Commit with the values that the linker set, if any. "-dirty"
// at the end of a commit means that files differed from it; git describe writes that.
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

// String returns the text of the verb version, on one line.
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
// configuration. It calls write with the result as a text and as a value for JSON; write
// prints one of them.
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
