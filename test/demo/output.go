package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/duefleet/duefleet/test/fleet"
)

// watchProgress shows arrivals until all tasks have arrived or ctx ends: a bar on a
// terminal, otherwise a line each second.
func watchProgress(ctx context.Context, tasks int, l *fleet.Ledger) {
	show, every := lines(tasks), time.Second
	if term.IsTerminal(int(os.Stdout.Fd())) {
		bar := progressbar.NewOptions(tasks, progressbar.OptionSetDescription("arrived"),
			progressbar.OptionSetWriter(os.Stdout), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
			progressbar.OptionSetItsString("tasks"), progressbar.OptionOnCompletion(func() { fmt.Println() }))
		show, every = func(n int) { _ = bar.Set(min(n, tasks)) }, 100*time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for l.Missing() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			show(l.Count())
		}
	}
	show(l.Count())
}

func lines(tasks int) func(n int) {
	return func(n int) { fmt.Printf("arrived %d of %d\n", n, tasks) }
}

func printReport(w io.Writer, r fleet.Report) {
	fmt.Fprintln(w)
	for _, row := range []struct {
		name string
		n    int
	}{{"delivered", r.Delivered}, {"lost", r.Lost}, {"duplicated", r.Duplicated}, {"early", r.Early}} {
		fmt.Fprintf(w, "%-12s %8d\n", row.name, row.n)
	}
	round := func(share float64) time.Duration { return r.Lateness.At(share).Round(10 * time.Microsecond) }
	fmt.Fprintf(w, "%-12s %8.0f tasks a second\n", "rate", r.Rate())
	fmt.Fprintf(w, "%-12s p50 %s, p99 %s, max %s (arrival at the consumer minus due)\n", "lateness", round(0.5),
		round(0.99), round(1))
	fmt.Fprint(w, r.Lateness.Histogram(50))
}

// watcher prints each arriving message once on is set.
type watcher struct{ on atomic.Bool }

func (w *watcher) arrived(m fleet.Delivery) {
	if !w.on.Load() {
		return
	}
	const most = 80
	due, _ := m.Headers["x-duefleet-due"].(int64)
	late := m.At.Sub(time.UnixMilli(due)).Round(10 * time.Microsecond)
	fmt.Printf("arrived: %s %q, %s after it was due: %.*q\n", m.Type, m.MessageId, late, most, m.Body)
}

// explain prints how to inspect the fleet while it runs, and turns the watcher on.
func (d *demo) explain(w io.Writer) {
	d.watch.on.Store(true)
	fmt.Fprintf(w, "\nThe fleet keeps running, and arriving messages are shown here. Ctrl-C stops everything.\n\n")
	fmt.Fprintf(w, "console    http://%s/\n", d.consoleAddr)
	fmt.Fprintf(w, "redis      %s\n", d.redis.Addr())
	fmt.Fprintf(w, "rabbitmq   %s\n", d.rabbitmq.URL("/"))
	fmt.Fprintf(w, "           %s\n", d.rabbitmq.ManagementURL())
	if d.consul != nil {
		fmt.Fprintf(w, "consul     http://%s\n", d.consul.Addr())
	}
	for i, s := range d.scanners {
		fmt.Fprintf(w, "scanner %d  http://%s/metrics, %s\n", i+1, s.Admin(), relative(s.Log()))
	}
	config := relative(d.config)
	fmt.Fprintf(w, "\nIn another terminal:\n\n")
	fmt.Fprintf(w, "  bin/scanner status --config %s\n", config)
	fmt.Fprintf(w, "  bin/producer schedule --config %s --topic %s --id hello --in 5s --payload hi\n", config, topic)
	fmt.Fprintf(w, "  bin/producer get --config %s --topic %s --id hello\n", config, topic)
	fmt.Fprintf(w, "  bin/producer verify %s --config %s   # then kill what you like\n", topic, config)
	if d.consul != nil {
		fmt.Fprintf(w, "  bin/scanner topic set %s shards=8 --config %s\n\n", topic, config)
		return
	}
	fmt.Fprintf(w, "\nWrite shards: 8 into %s, and the fleet changes while it runs.\n\n", config)
}

// relative returns path relative to the working directory if that is shorter.
func relative(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(here, path); err == nil && len(short) < len(path) {
		return short
	}
	return path
}
