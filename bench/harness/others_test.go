package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

func TestAProcessIsReadWhateverItIsCalled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "42", "stat")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "42 (a) S 1 (b) R 7 42 42 0 -1 4194560 1 2 3 4 100 20 3000 400 20 0 1 0 99 1 1\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pid, parent, cpu, err := readStat(file)
	if pid != 42 || parent != 7 || cpu != 3520*clockTick || err != nil {
		t.Errorf("process %d below %d used %s: %v", pid, parent, cpu, err)
	}
}

// TestChildrenThatEndedAreOurs: a run starts and stops scanners. Their CPU time isn't
// other load.
func TestChildrenThatEndedAreOurs(t *testing.T) {
	const enough = 200 * time.Millisecond
	var children time.Duration
	check.Until(t, "children to use processor time", func() bool {
		if err := exec.CommandContext(t.Context(), "sh", "-c",
			"i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done").Run(); err != nil {
			t.Fatal(err)
		}
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
			t.Fatal(err)
		}
		children = time.Duration(used.Utime.Nano() + used.Stime.Nano())
		return children > enough
	})
	tree, err := treeCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self, err := ProcessCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The kernel rounds each of four fields down to whole ticks.
	if least := children - 4*clockTick; tree < least || tree > children+self {
		t.Errorf("the tree used %s, this process %s and its children %s", tree, self, children)
	}
	if busy, err := busyCPU(); busy < tree || err != nil {
		t.Errorf("the machine used %s, this tree %s: %v", busy, tree, err)
	}
}

func TestOthersShareIsWhatIsNotOurs(t *testing.T) {
	o, err := WatchOthers()
	if err != nil {
		t.Fatal(err)
	}
	// Pretend that this process used no CPU time in the last ten seconds, and that the
	// machine used all it ever has.
	o.at, o.busy = o.at.Add(-10*time.Second), 0
	share, err := o.Share()
	if share <= 0 || err != nil {
		t.Errorf("others took %v: %v", share, err)
	}
	o.busy = o.busy + 1000*time.Hour
	if share, err := o.Share(); share != 0 || err != nil {
		t.Errorf("what the kernel's counts differ by is a share of %v: %v", share, err)
	}
}
