package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// watching runs a source's Watch for the time of the test.
func watching(t *testing.T, s Source) <-chan Snapshot {
	t.Helper()
	snapshots := make(chan Snapshot, 1000)
	check.Background(t, "Watch", func(ctx context.Context) error {
		return s.Watch(ctx, func(s Snapshot) { snapshots <- s })
	})
	return snapshots
}

// next returns the snapshot that must come.
func next(t *testing.T, snapshots <-chan Snapshot) Snapshot {
	t.Helper()
	return check.Receive(t, "a snapshot", snapshots)
}

// shardsOf returns topic a's number of shards.
func shardsOf(s Snapshot) int { return s.Documents["a"].Topic.Shards }

// quiet fails if a snapshot comes within a minute.
func quiet(t *testing.T, snapshots <-chan Snapshot) {
	t.Helper()
	select {
	case s := <-snapshots:
		t.Errorf("unexpected snapshot %+v", s)
	case <-time.After(time.Minute): // of the fake clock
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	check.OK(t, os.WriteFile(path, []byte(content), 0o600))
}

// inFile runs a test on the bubble's clock, where a second costs nothing.
func inFile(t *testing.T, content string, test func(t *testing.T, path string, f *File, reload chan<- struct{})) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	write(t, path, content)
	synctest.Test(t, func(t *testing.T) {
		reload := make(chan struct{})
		test(t, path, NewFile(path, reload), reload)
	})
}

func TestFileFollowsChanges(t *testing.T) {
	inFile(t, "topics: {a: {shards: 1}, b: {}}", func(t *testing.T, path string, f *File, _ chan<- struct{}) {
		w := watching(t, f)
		first := next(t, w)
		if first.Err != nil || len(first.Documents) != 2 || shardsOf(first) != 1 {
			t.Fatalf("got %+v", first)
		}
		write(t, path, "topics: {a: {shards: 2}, b: {}}\n")
		second := next(t, w)
		if shardsOf(second) != 2 || second.Index <= first.Index {
			t.Errorf("got %+v", second)
		}
		if second.Documents["a"].Index <= first.Documents["a"].Index ||
			second.Documents["b"].Index != first.Documents["b"].Index {
			t.Errorf("only a changed: got %+v after %+v", second, first)
		}
		write(t, path, "topics: {b: {}}")
		if third := next(t, w); len(third.Documents) != 1 {
			t.Errorf("got %+v", third)
		}
		quiet(t, w)
	})
}

func TestFileDocumentsStandByThemselves(t *testing.T) {
	inFile(t, "topics: {a: {shards: 1, declare: {queue: q}}}", func(t *testing.T, _ string, f *File, _ chan<- struct{}) {
		d := next(t, watching(t, f)).Documents["a"]
		again, err := ParseTopic("a", d.Raw)
		if err != nil || Diff(d.Topic, again) != nil {
			t.Errorf("%s: got %+v, %v", d.Raw, again, err)
		}
	})
}

func TestBrokenFileIsToldOnceAndChangesNothing(t *testing.T) {
	const good = "topics: {a: {shards: 1}}"
	inFile(t, good, func(t *testing.T, path string, f *File, reload chan<- struct{}) {
		w := watching(t, f)
		index := next(t, w).Documents["a"].Index
		write(t, path, "topics: {a: {shards: 2}, b: {shards: 0}}")
		broken := next(t, w)
		if broken.Documents != nil || broken.Err == nil || !strings.Contains(broken.Err.Error(),
			"c.yaml:1: topics.b.shards: must be 1 to 4096; got 0") {
			t.Errorf("got %+v", broken)
		}
		if _, _, err := f.Read(t.Context(), "a"); err == nil {
			t.Error("read of a broken file is no error")
		}
		reload <- struct{}{}
		quiet(t, w)
		check.OK(t, os.Remove(path))
		if gone := next(t, w); gone.Documents != nil || gone.Err == nil {
			t.Errorf("got %+v", gone)
		}
		quiet(t, w)
		write(t, path, good)
		if back := next(t, w); back.Err != nil || shardsOf(back) != 1 || back.Documents["a"].Index != index {
			t.Errorf("got %+v", back)
		}
	})
}

func TestSignalReadsTheFileAtOnce(t *testing.T) {
	inFile(t, "topics: {a: {shards: 1}}", func(t *testing.T, path string, f *File, reload chan<- struct{}) {
		w := watching(t, f)
		next(t, w)
		synctest.Wait()
		write(t, path, "topics: {a: {shards: 2}}")
		began := time.Now()
		reload <- struct{}{}
		if s := next(t, w); shardsOf(s) != 2 || time.Since(began) != 0 {
			t.Errorf("after %v: got %+v", time.Since(began), s)
		}
	})
}

// The file must not be used while a writer takes longer than one reading.
func TestFileBeingWrittenIsNotTakenForHalf(t *testing.T) {
	inFile(t, "topics: {a: {}, b: {}}", func(t *testing.T, path string, f *File, _ chan<- struct{}) {
		w := watching(t, f)
		next(t, w)
		time.Sleep(filePoll - fileSettles/2) // on the bubble's clock: each part is written between two readings
		for _, part := range []string{"", "topics:\n", "topics:\n  a: {shards: 2}\n",
			"topics:\n  a: {shards: 2}\n  b: {}\n"} {
			write(t, path, part)
			if d, ok, err := f.Read(timeout(t, fileSettles/4), "b"); err == nil {
				t.Errorf("read of a part: got %+v, %v", d, ok)
			}
			time.Sleep(fileSettles - fileSettles/4)
		}
		if s := next(t, w); s.Err != nil || len(s.Documents) != 2 || shardsOf(s) != 2 {
			t.Errorf("got %+v", s)
		}
		quiet(t, w)
	})
}

// timeout returns a context that ends after d.
func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestFileReadIsFresh(t *testing.T) {
	inFile(t, "topics: {a: {shards: 1}}", func(t *testing.T, path string, f *File, _ chan<- struct{}) {
		d, ok, err := f.Read(t.Context(), "a")
		if err != nil || !ok || d.Topic.Shards != 1 {
			t.Fatalf("got %+v, %v, %v", d, ok, err)
		}
		write(t, path, "topics: {a: {shards: 2}}")
		later, ok, err := f.Read(t.Context(), "a")
		if err != nil || !ok || later.Topic.Shards != 2 || later.Index <= d.Index {
			t.Errorf("got %+v, %v, %v", later, ok, err)
		}
		if _, ok, err := f.Read(t.Context(), "b"); ok || err != nil {
			t.Errorf("got %v, %v", ok, err)
		}
	})
}

// TestReadsThatShareAReadingAreNotOld: calls at a time share a reading of the file, but none has
// one that began before it. The file is a pipe, so a reading lasts until its writer closes it.
func TestReadsThatShareAReadingAreNotOld(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	check.OK(t, syscall.Mkfifo(path, 0o600))
	open := func() *os.File { // waits for a reading to begin
		pipe, err := os.OpenFile(path, os.O_WRONLY, 0)
		check.OK(t, err)
		return pipe
	}
	f := NewFile(path, nil)
	read, calling := make(chan string), make(chan bool)
	call := func() {
		calling <- true
		read <- string(f.lookTogether().content)
	}
	go call()
	<-calling
	old := open()
	const later = 64
	for range later {
		go call()
		<-calling
	}
	_, err := old.WriteString("old ")
	check.OK(t, errors.Join(err, old.Close()))
	first := check.Receive(t, "the first reading", read)
	var ended atomic.Bool
	served := make(chan bool)
	go func() {
		for !ended.Load() {
			pipe, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, _ = pipe.WriteString("new ") // a reading may be over already
				_ = pipe.Close()
			}
		}
		close(served)
	}()
	for range later {
		got := check.Receive(t, "a later reading", read)
		if !strings.HasPrefix(first, "old ") || !strings.HasPrefix(got, "new ") {
			t.Errorf("the first reading has %q, a later one %q", first, got)
		}
	}
	ended.Store(true)
	last, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // so that the writer isn't left waiting
	check.OK(t, err)
	<-served
	check.OK(t, last.Close())
}
