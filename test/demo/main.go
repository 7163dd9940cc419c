// Command demo shows a fleet at work. It starts servers and three scanners of its own,
// schedules tasks, and prints how many arrived and how late.
//
//	make demo
//	bin/demo [-keep] [-consul] [-tasks 20000] [-over 10s]
//
// Use the second form if scanner and producer are already in bin/.
//
// Exit codes: 0: every task arrived once and none early; 1: otherwise, or on failure; 2:
// wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/duefleet/duefleet/test/servers"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// options are the flags.
type options struct {
	keep   bool
	consul bool
	tasks  int
	over   time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.keep, "keep", false, "keep running until Ctrl-C with a console, so that you can look around")
	flag.BoolVar(&o.consul, "consul", false, "keep the topics in Consul (the default if consul is on PATH)")
	flag.IntVar(&o.tasks, "tasks", 20_000, "number of tasks")
	flag.DurationVar(&o.over, "over", 10*time.Second, "spread the due times over this long")
	flag.Parse()
	if flag.NArg() > 0 || o.tasks < 1 || o.over < 0 {
		fmt.Fprintln(os.Stderr, "demo: -tasks must be 1 or more, -over 0 or more, and nothing else may be given")
		os.Exit(exitUsage)
	}
	if _, err := exec.LookPath("consul"); err == nil {
		o.consul = true
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	if err := run(ctx, o); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(exitFailed)
	}
}

// run plays the demo. It deletes its folder at the end, but keeps it for the logs if
// something failed.
func run(ctx context.Context, o options) (err error) {
	if err := findPrograms(o); err != nil {
		return err
	}
	if err := os.MkdirAll(".dev", 0o750); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".dev", "demo-")
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	d := &demo{options: o, dir: dir}
	defer func() {
		err = errors.Join(err, d.stop())
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "demo: the logs are in", dir)
			return
		}
		_ = os.RemoveAll(dir)
	}()
	if err := d.start(ctx); err != nil {
		return err
	}
	var verified string
	var verifier errgroup.Group
	verifier.Go(func() (err error) {
		verified, err = d.verify(ctx)
		return err
	})
	report, err := d.play(ctx)
	if err = errors.Join(err, verifier.Wait()); err != nil {
		return err
	}
	printReport(os.Stdout, report)
	fmt.Printf("\nproducer verify, at the same time:\n%s", verified)
	if o.keep {
		if err := step("starting the console", func() error { return d.startConsole(ctx) }); err != nil {
			return err
		}
		d.explain(os.Stdout)
		<-ctx.Done()
		fmt.Println("\nstopping")
	}
	return report.Err()
}

// findPrograms returns an error that names every missing program.
func findPrograms(o options) error {
	needed := []string{"redis-server", "rabbitmq-server"}
	if o.consul {
		needed = append(needed, "consul")
	}
	var errs []error
	for _, name := range needed {
		_, err := servers.Find(name)
		errs = append(errs, err)
	}
	for _, path := range []string{scannerPath, producerPath} {
		if _, err := exec.LookPath(path); err != nil {
			errs = append(errs, fmt.Errorf("%w; make demo builds it", err))
		}
	}
	return errors.Join(errs...)
}
