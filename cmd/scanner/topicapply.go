package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/duefleet/duefleet/internal/cli"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/operate"
	"github.com/duefleet/duefleet/internal/topicdocs"
)

func topicApply(s *settings) *cobra.Command {
	var path string
	var dry bool
	var told verdict
	confirm := cli.Confirmation{Deed: cli.Writes()}
	cmd := &cobra.Command{
		Use:   "apply -f topics.yaml [--dry-run | --yes] [--no-wait]",
		Short: "Applies a file of topic settings; validates everything before it writes anything",
		Long: `Creates and changes topics in Consul to match a file: a configuration file with topics,
or a map of topics by name. Before it writes anything it validates the whole file and
prints the difference of all topics. Then it asks on a terminal; elsewhere it needs
--yes.

It leaves alone topics that aren't in the file, and documents whose settings match the
file. A changed document is rewritten as a whole, without its comments. Each document is
written only if nobody else changed it in the meantime. Otherwise apply stops there,
says which topics are written and which aren't, and ends with code 1.

It reports whether the live scanners apply each document, as "scanner topic set" does;
--no-wait skips this report.`,
		Args: cli.NoArguments,
		RunE: cli.Verb(func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return cli.UsageError("name a file of topics with -f")
			}
			docs, err := config.ReadTopics(path)
			if err != nil {
				return printErrors(cmd, err)
			}
			if len(docs) == 0 {
				return fmt.Errorf("no topics in %s", path)
			}
			return withConsul(s, func(ctx context.Context, c topicdocs.Documents) error {
				plan, err := planTopics(ctx, c, docs)
				if err != nil {
					return err
				}
				printPlan(cmd.OutOrStdout(), plan, len(docs))
				if err := s.refuseOlderOf(cmd, plan); err != nil {
					return err
				}
				if dry || len(plan) == 0 {
					return printDryRun(cmd.OutOrStdout(), dry)
				}
				if err := confirm.Ask(cmd, "write "+names(plan)); err != nil {
					return err
				}
				if err := writePlan(cmd, c, plan); err != nil {
					return err
				}
				return awaitAll(cmd, s, told, plan)
			})(cmd)
		}),
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "the file of topics")
	registerAuthor(cmd)
	registerDryRun(cmd, &dry)
	confirm.Register(cmd)
	told.register(cmd)
	return cmd
}

// refuseOlderOf is refuseOlder for all topics to write.
func (s *settings) refuseOlderOf(cmd *cobra.Command, plan []planned) error {
	for _, p := range plan {
		if err := s.refuseOlder(cmd, p.found, p.doc); err != nil {
			return err
		}
	}
	return nil
}

// planned is a topic to write.
type planned struct {
	found config.Document // the one in Consul; without a name if there is none
	doc   config.Document // the one to write
}

// planTopics returns the topics whose documents in Consul differ from docs.
func planTopics(ctx context.Context, c topicdocs.Documents, docs []config.Document) ([]planned, error) {
	list, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]config.Document{}
	for _, d := range list {
		found[d.Name] = d
	}
	var plan []planned
	for _, d := range docs {
		there := found[d.Name]
		if there.Name == "" || there.Err != nil || len(config.Diff(there.Topic, d.Topic)) > 0 {
			plan = append(plan, planned{found: there, doc: d})
		}
	}
	return plan, nil
}

// printPlan prints the difference of all topics.
func printPlan(out io.Writer, plan []planned, all int) {
	for _, p := range plan {
		switch {
		case p.found.Name == "":
			fmt.Fprintf(out, "topic %s: new\n", p.doc.Name)
		case p.found.Err != nil:
			fmt.Fprintf(out, "topic %s: its document has mistakes, and is replaced\n", p.doc.Name)
		default:
			fmt.Fprintf(out, "topic %s: changes\n", p.doc.Name)
		}
		printDifference(out, p.doc.Name, difference(p.found, p.doc))
		printLeftBinding(out, p.found, p.doc)
	}
	if same := all - len(plan); same > 0 {
		fmt.Fprintf(out, "as in the file already: %d of %d topics\n", same, all)
	}
}

func printDryRun(out io.Writer, dry bool) error {
	text := "nothing to change"
	if dry {
		text = "a dry run, nothing was written"
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// writePlan writes the topics one after the other, and stops at the first that it can't
// write.
func writePlan(cmd *cobra.Command, c topicdocs.Documents, plan []planned) error {
	for i := range plan {
		p := &plan[i]
		doc, err := write(cmd, c, p.found, p.doc.Name, p.doc.Raw)
		if err != nil {
			return fmt.Errorf("written: %s; not written: %s: %w", names(plan[:i]), names(plan[i:]), err)
		}
		p.doc = doc
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s written\n", doc.Name); err != nil {
			return err
		}
	}
	return nil
}

// names returns the names of a plan's topics as text.
func names(plan []planned) string {
	if len(plan) == 0 {
		return "no topic"
	}
	all := make([]string, len(plan))
	for i, p := range plan {
		all[i] = p.doc.Name
	}
	if len(all) == 1 {
		return "topic " + all[0]
	}
	return "topics " + strings.Join(all, ", ")
}

// awaitAll reports whether scanners apply each topic; operate.Patience covers all topics
// together.
func awaitAll(cmd *cobra.Command, s *settings, told verdict, plan []planned) error {
	told.until = time.Now().Add(operate.Patience)
	var errs []error
	for _, p := range plan {
		errs = append(errs, told.await(cmd, s, p.doc))
	}
	return errors.Join(errs...)
}
