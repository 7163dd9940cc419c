package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
)

// relayProgram is a program of the module outbox. Its drivers of databases are no dependency
// of this module.
const relayProgram = "duefleet-relay"

func relayCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "relay [flags of " + relayProgram + "]",
		Short: "Brings the rows of an outbox in PostgreSQL to Redis",
		Long: `Runs the program ` + relayProgram + `, which brings the rows of an outbox in PostgreSQL to Redis.
It is looked for in the folder of producer, then in PATH. "make relay" builds it. For its
flags: producer relay --help`,
		DisableFlagParsing: true, DisableFlagsInUseLine: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil }, // it reads the configuration itself
		RunE: cli.Verb(func(_ *cobra.Command, args []string) error {
			program, err := findRelay()
			if err != nil {
				return err
			}
			if err := syscall.Exec(program, append([]string{program}, args...), os.Environ()); err != nil {
				return fmt.Errorf("run %s: %w", program, err)
			}
			return nil
		}),
	}
}

// findRelay returns the path of relayProgram.
func findRelay() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), relayProgram)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(relayProgram)
	if err != nil {
		return "", errors.New(relayProgram + " is neither next to producer nor in PATH; in a clone of duefleet, " +
			`"make relay" builds bin/` + relayProgram)
	}
	return path, nil
}
