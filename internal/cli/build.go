package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// The linker sets version and commit where a build has no .git, as that of the image
// has none: see deploy/container/rootfs.sh. "" leaves what the build recorded.
var version, commit string //nolint:gochecknoglobals // -X sets nothing else

// Build is what a program knows of how it was built. The JSON names are an interface.
type Build struct {
	Program string `json:"program"`
	// Version is the module's; "devel" where the build recorded none.
	Version string `json:"version"`
	// Commit it was built of, and whether files differed from it; "" where the build
	// recorded none, as one of a release's archive.
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

// stamp puts what the linker was given in the place of what the build recorded. A commit
// that ends with "-dirty", as git describe has it, had files that differed from it.
func (b *Build) stamp(version, commit string) {
	if version != "" {
		b.Version = version
	}
	if commit != "" {
		b.Commit, b.Modified = strings.CutSuffix(commit, "-dirty")
	}
}

// newBuild reads what was recorded; nil is nothing.
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

// VersionCommand is the verb that prints how the program was built. It needs no
// configuration. Write takes the text, or the value where JSON is asked for.
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
