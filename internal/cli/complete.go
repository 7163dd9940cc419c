package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Complete tells shells what may stand where, for the root command with all verbs added:
// the formats of --output, files where a flag names one, and topics where one is named,
// by a flag or as the first argument of a command whose use begins with TOPIC or [TOPIC].
// Nil topics: none are offered.
func Complete(root *cobra.Command, topics cobra.CompletionFunc) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	complete(root, topics)
}

func complete(cmd *cobra.Command, topics cobra.CompletionFunc) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		// The flag is there, and has no completion yet: no error.
		switch {
		case f.Name == "output":
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(strings.Split(f.Value.Type(), "|"), cobra.ShellCompDirectiveNoFileComp))
		case f.Name == "topic" && topics != nil:
			_ = cmd.RegisterFlagCompletionFunc(f.Name, topics)
		case f.Name == "config" || f.Name == "errors" || strings.HasSuffix(f.Name, "file"):
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)) // the shell's own: files
		}
	})
	if words := strings.Fields(cmd.Use); topics != nil && cmd.ValidArgsFunction == nil && len(words) > 1 && strings.Trim(words[1], "[]") == "TOPIC" {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return topics(cmd, args, begun)
		}
	}
	for _, c := range cmd.Commands() {
		complete(c, topics)
	}
}
