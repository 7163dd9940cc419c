package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

func topicGet(s *settings) *cobra.Command {
	format := cli.NewFormatFlag(cli.Text)
	var effective bool
	cmd := &cobra.Command{
		Use:   "get TOPIC [--effective] [-o text|json]",
		Short: "Prints a topic's document as it is stored, or with its defaults",
		Long: `Prints a topic's document as it is stored. --effective prints every setting, with its
default if the document doesn't set it; a document with mistakes is then an error.

-o json prints one object. It has the settings of the document (all settings with
--effective), the document as it is stored, and its error if it has mistakes.`,
		Args: oneTopic(cli.NoArguments),
		RunE: cli.Verb(func(cmd *cobra.Command, args []string) error {
			return withConsul(s, func(ctx context.Context, c topicdocs.Documents) error {
				doc, err := c.Find(ctx, args[0])
				if err == nil && effective {
					err = doc.Err
				}
				if err != nil {
					return err
				}
				return printDocument(cmd.OutOrStdout(), doc, effective, format.Format)
			})(cmd)
		}),
	}
	cmd.Flags().BoolVar(&effective, "effective", false,
		"print every setting, with its default if the document doesn't set it")
	cmd.Flags().VarP(&format, "output", "o", "how to print")
	return cmd
}

// topicDocument is `topic get -o json`.
type topicDocument struct {
	Topic    string         `json:"topic"`
	Index    uint64         `json:"index"`
	Settings map[string]any `json:"settings"`
	Document string         `json:"document"`
	Error    string         `json:"error,omitempty"`
}

// printDocument prints a document as it is stored, or if effective with every setting.
func printDocument(out io.Writer, doc config.Document, effective bool, format cli.Format) error {
	raw := doc.Raw
	if effective {
		raw = config.Complete(doc.Topic)
	}
	if format != cli.JSON {
		_, err := fmt.Fprintf(out, "%s\n", trimNewline(raw))
		return err
	}
	shown := topicDocument{Topic: doc.Name, Index: doc.Index, Settings: config.Settings(doc.Name, raw),
		Document: string(doc.Raw)}
	if doc.Err != nil {
		shown.Error = doc.Err.Error()
	}
	return cli.PrintJSON(out, shown, "  ")
}

func trimNewline(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}
