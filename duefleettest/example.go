package duefleettest

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"testing"
)

// Example runs the code of an Example function, which has no t of its own. A failure
// prints its message to the standard output, so the example fails.
//
//	func Example() {
//		duefleettest.Example(func(t testing.TB) {
//			fleet := duefleettest.New(t, duefleettest.Config{...})
//
// The t has the methods that report, and Cleanup, Context, Helper, Name and Output. Its
// others panic.
func Example(code func(t testing.TB)) {
	ctx, cancel := context.WithCancel(context.Background())
	e := &example{ctx: ctx}
	ended := make(chan struct{})
	go func() { // a goroutine that FailNow can end
		defer close(ended)
		defer func() {
			cancel()
			for _, clean := range slices.Backward(e.cleanups) {
				clean()
			}
		}()
		code(e)
	}()
	<-ended
}

// example is the t of an Example function.
type example struct {
	testing.TB // nil: for the method that only package testing can have
	ctx        context.Context
	cleanups   []func()
	failed     bool
}

// Cleanup calls f when the example ends, the last one first.
func (e *example) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

// Context returns a context that ends before the cleanups.
func (e *example) Context() context.Context { return e.ctx }

// Helper does nothing.
func (e *example) Helper() {}

// Name returns "Example".
func (e *example) Name() string { return "Example" }

// Output discards logs.
func (e *example) Output() io.Writer { return io.Discard }

// Log does nothing.
func (e *example) Log(...any) {}

// Logf does nothing.
func (e *example) Logf(string, ...any) {}

// Fail fails the example.
func (e *example) Fail() {
	e.failed = true
	fmt.Fprintln(os.Stdout, "the example failed")
}

// Failed reports whether the example failed.
func (e *example) Failed() bool { return e.failed }

// FailNow fails the example and ends it.
func (e *example) FailNow() {
	e.Fail()
	runtime.Goexit()
}

// Error prints and fails the example.
func (e *example) Error(args ...any) {
	fmt.Fprintln(os.Stdout, args...)
	e.Fail()
}

// Errorf prints and fails the example.
func (e *example) Errorf(format string, args ...any) { e.Error(fmt.Sprintf(format, args...)) }

// Fatal prints and ends the example.
func (e *example) Fatal(args ...any) {
	fmt.Fprintln(os.Stdout, args...)
	e.FailNow()
}

// Fatalf prints and ends the example.
func (e *example) Fatalf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }
