// Command counts prints figures of the source, as docs/adr/0005-folders.md has them: sizes,
// lengths of functions, tests, and how many files an operation executes:
//
//	withservers -- counts [-o json] [-before counts.json] [-update docs/adr/0005-folders.md]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the root of the source")
	flag.StringVar(&o.output, "o", "table", "how to print: table or json")
	flag.StringVar(&o.before, "before", "", "the output of -o json for an earlier version, for a second column")
	flag.StringVar(&o.update, "update", "", "the page whose table is replaced, between its two marks")
	flag.BoolVar(&o.walks, "walks", true, "count the files of operations, which needs servers")
	flag.Parse()
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "counts:", err)
		os.Exit(1)
	}
}

type options struct {
	root, output, before, update string
	walks                        bool
}

func (o options) run(ctx context.Context) error {
	now, err := countSource(o.root)
	if err != nil {
		return err
	}
	if o.walks {
		if now.Walks, err = runWalks(ctx, o.root); err != nil {
			return err
		}
	}
	if o.output == "json" {
		to := json.NewEncoder(os.Stdout)
		to.SetIndent("", "  ")
		return to.Encode(now)
	}
	columns := []counts{now}
	if o.before != "" {
		text, err := os.ReadFile(o.before)
		if err != nil {
			return err
		}
		var before counts
		if err := json.Unmarshal(text, &before); err != nil {
			return fmt.Errorf("read %s: %w", o.before, err)
		}
		columns = []counts{before, now}
	}
	table := tables(columns)
	if o.update == "" {
		fmt.Print(table)
		return nil
	}
	page, err := os.ReadFile(o.update)
	if err != nil {
		return err
	}
	changed, err := replaced(string(page), table)
	if err != nil {
		return fmt.Errorf("%s: %w", o.update, err)
	}
	return os.WriteFile(o.update, []byte(changed), 0o644) //nolint:gosec // a page that everybody may read
}
