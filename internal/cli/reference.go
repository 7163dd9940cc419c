package cli

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"
)

// Reference returns a Markdown page with the help texts of a program and of each of its
// verbs. update is the command that writes the page to its file, for the page's first
// lines. An error means that a help text couldn't be printed.
func Reference(root *cobra.Command, update string) ([]byte, error) {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# %s\n\nWhat `%s --help` and the help of each of its verbs say; `%s` writes this page.\n",
		root.Name(), root.Name(), update)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	err := writeHelp(&page, root)
	return page.Bytes(), err
}

func writeHelp(page *bytes.Buffer, cmd *cobra.Command) error {
	if cmd.HasParent() {
		fmt.Fprintf(page, "\n## %s\n", cmd.CommandPath())
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	var help bytes.Buffer
	cmd.SetOut(&help)
	err := cmd.Help()
	cmd.SetOut(nil)
	if err != nil {
		return fmt.Errorf("help of %s: %w", cmd.CommandPath(), err)
	}
	fmt.Fprintf(page, "\n```text\n%s\n```\n", bytes.TrimSpace(help.Bytes()))
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion" { // cobra's own
			continue
		}
		if err := writeHelp(page, c); err != nil {
			return err
		}
	}
	return nil
}
