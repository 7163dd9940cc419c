package cli

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"
)

// Reference returns a page in Markdown with the help of a program and of each of its
// verbs. update is the command that writes the page. An error means that a help text
// couldn't be printed.
func Reference(root *cobra.Command, update string) ([]byte, error) {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# %s\n\nWhat `%s --help` and the help of each of its verbs say; `%s` writes this page.\n",
		root.Name(), root.Name(), update)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	err := refer(&page, root)
	return page.Bytes(), err
}

func refer(page *bytes.Buffer, cmd *cobra.Command) error {
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
		if err := refer(page, c); err != nil {
			return err
		}
	}
	return nil
}
