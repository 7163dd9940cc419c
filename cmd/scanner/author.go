package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

// The flags of every verb that writes a topic's document, for its history.
const (
	asFlag     = "as"
	reasonFlag = "reason"
)

// registerAuthor adds --as and --reason, and checks their length before the verb runs.
func registerAuthor(cmd *cobra.Command) {
	cmd.Flags().String(asFlag, "", "who makes the change, for the topic's history (default the name of Consul's token, "+
		"else the user behind sudo or SSH, else user@host)")
	cmd.Flags().String(reasonFlag, "", "why the change is made, for the topic's history")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for name, most := range map[string]int{asFlag: topicdocs.MaxAuthor, reasonFlag: topicdocs.MaxReason} {
			text := flagOf(cmd, name)
			if len(text) > most || !utf8.ValidString(text) || cmd.Flags().Changed(name) && strings.TrimSpace(text) == "" {
				return cli.UsageError(fmt.Sprintf("--%s: must be a text of 1 to %d bytes", name, most))
			}
		}
		return nil
	}
}

// flagOf returns the text of a flag, "" if the verb has no such flag.
func flagOf(cmd *cobra.Command, name string) string {
	text, _ := cmd.Flags().GetString(name)
	return text
}

// authorOf returns the author of a verb's change, with the verb and the reason.
func authorOf(cmd *cobra.Command) topicdocs.Author {
	return topicdocs.Author{Name: flagOf(cmd, asFlag), Verb: cmd.Name(), Reason: flagOf(cmd, reasonFlag)}
}
