package main

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
)

// The flags of every verb that writes a topic's document, for its history.
const (
	asFlag     = "as"
	reasonFlag = "reason"
	// maxAs and maxReason bound them, in bytes: a history has a limit.
	maxAs     = 128
	maxReason = 512
)

// registerAuthor adds the flags that say who changes a document, and why.
func registerAuthor(cmd *cobra.Command) {
	cmd.Flags().String(asFlag, "", "who makes the change, for the topic's history (default the name of Consul's token, else the user behind sudo or SSH, else user@host)")
	cmd.Flags().String(reasonFlag, "", "why, for the topic's history")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for name, most := range map[string]int{asFlag: maxAs, reasonFlag: maxReason} {
			text := flagOf(cmd, name)
			if len(text) > most || !utf8.ValidString(text) || cmd.Flags().Changed(name) && strings.TrimSpace(text) == "" {
				return cli.UsageError(fmt.Sprintf("--%s: must be a text of 1 to %d bytes", name, most))
			}
		}
		return nil
	}
}

// flagOf is the text of a flag, "" where the verb has none of that name.
func flagOf(cmd *cobra.Command, name string) string {
	text, _ := cmd.Flags().GetString(name)
	return text
}

// author names the author of a change: --as, else the name of Consul's token, else the
// caller.
func (c consulTopics) author(cmd *cobra.Command) string {
	if as := flagOf(cmd, asFlag); as != "" {
		return as
	}
	// Where Consul has no ACLs it is an error to ask.
	if name, err := c.client.TokenName(cmd.Context()); err == nil && name != "" {
		return name[:min(len(name), maxAs)]
	}
	return caller(os.Getenv)
}

// caller returns the user who calls the command, as user@host: the one behind sudo or SSH if
// the environment names one, else the process's.
func caller(getenv func(string) string) string {
	name := fmt.Sprint(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = cmp.Or(getenv("SUDO_USER"), getenv("SSH_USER"), name)
	host, _ := os.Hostname() // without one there is nothing better
	return name + "@" + cmp.Or(host, "?")
}
