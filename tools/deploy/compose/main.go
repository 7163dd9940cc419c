// Command compose reads a compose file as `docker compose config` does, and prints the
// result. It uses the library of docker compose, for machines whose docker has no
// compose.
//
//	compose FILE
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compose FILE")
		os.Exit(2)
	}
	text, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose:", err)
		os.Exit(1)
	}
	fmt.Printf("%s", text)
}

func read(path string) ([]byte, error) {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithOsEnv, cli.WithInterpolation(true),
		cli.WithConsistency(true))
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return nil, err
	}
	return project.MarshalYAML()
}
