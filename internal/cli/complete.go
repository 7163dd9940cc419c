package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Complete sets up shell completion for root. Call it after all verbs were added. The
// shell then completes the formats of --output, and file names for flags that take a
// file. topics completes the flag --topic, and the first argument of verbs whose usage
// line names it TOPIC or [TOPIC]. If topics is nil, topics aren't completed.
func Complete(root *cobra.Command, topics cobra.CompletionFunc) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	complete(root, topics)
}

func complete(cmd *cobra.Command, topics cobra.CompletionFunc) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		// An error would mean that the flag doesn't exist or already has a completion.
		// Neither is possible.
		switch {
		case f.Name == "output":
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(strings.Split(f.Value.Type(), "|"),
				cobra.ShellCompDirectiveNoFileComp))
		case f.Name == "topic" && topics != nil:
			_ = cmd.RegisterFlagCompletionFunc(f.Name, topics)
		case f.Name == "config" || f.Name == "errors" || strings.HasSuffix(f.Name, "file"):
			// the shell completes files
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
		}
	})
	if words := strings.Fields(cmd.Use); topics != nil && cmd.ValidArgsFunction == nil && len(words) > 1 &&
		strings.Trim(words[1], "[]") == "TOPIC" {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
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
