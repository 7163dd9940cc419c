package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
)

// target is where a verb writes its lines: standard output, or a file. A regular file appears
// under its name when it is complete.
type target struct {
	file *os.File
	// path is the file's name, "" for standard output. final is the path to rename the
	// file to, "" if it is written in place, as a device is.
	path, final string
}

// openTarget opens the file of --file, or standard output for "-". Then standard output has
// no room for the summary, so that goes to standard error. It refuses the file of --errors.
func openTarget(cmd *cobra.Command, name, errorsName string) (*target, error) {
	if name == "-" {
		cmd.SetOut(cmd.ErrOrStderr())
		return &target{file: os.Stdout}, nil
	}
	if samePath(name, errorsName) {
		return nil, cli.UsageError(fmt.Sprintf("--errors %s: is the file of --file", errorsName))
	}
	t := &target{path: name, final: name}
	if at, err := filepath.EvalSymlinks(name); err == nil {
		t.final = at
	}
	mode := os.FileMode(0o600)
	info, err := os.Stat(t.final)
	switch {
	case err == nil && !info.Mode().IsRegular():
		t.final = ""
		t.file, err = os.OpenFile(name, os.O_WRONLY, 0)
		return t, inFlag(err)
	case err == nil:
		mode = info.Mode().Perm()
	}
	t.file, err = os.CreateTemp(filepath.Dir(t.final), "."+filepath.Base(t.final)+"-")
	if err == nil {
		err = t.file.Chmod(mode)
	}
	return t, inFlag(err)
}

func inFlag(err error) error {
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	return nil
}

// samePath reports whether two names are of the same file, which need not exist.
func samePath(a, b string) bool {
	if b == "" {
		return false
	}
	if one, err := os.Stat(a); err == nil {
		other, err := os.Stat(b)
		return err == nil && os.SameFile(one, other)
	}
	one, errA := filepath.Abs(a)
	other, errB := filepath.Abs(b)
	return errA == nil && errB == nil && one == other
}

// clearOfBar reports whether a progress bar on standard error doesn't disturb the lines.
func (t *target) clearOfBar() bool { return !cli.OnTerminal(t.file) }

// finish puts a complete file in its place.
func (t *target) finish() error {
	if t.path == "" {
		return nil
	}
	file := t.file
	t.file = nil
	if t.final == "" {
		return file.Close()
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	if err := os.Rename(file.Name(), t.final); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// abandon removes an unfinished file.
func (t *target) abandon() {
	if t.path == "" || t.file == nil {
		return
	}
	_ = t.file.Close()
	if t.final != "" {
		_ = os.Remove(t.file.Name()) // an error has no place to go
	}
}
