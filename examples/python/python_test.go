// Package python_test checks that the Python producer follows the protocol, and that the
// kit finds mistakes in a producer.
package python_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/test/fleet"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

var programs fleet.Binaries

func TestMain(m *testing.M) { os.Exit(fleet.RunTests(m, fleet.BuildConfig{}, &programs)) }

// python returns an interpreter with the modules that the producer needs. `make
// test-tools` installs them where it can.
func python(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), path, "-c", "import redis, xxhash").Run() == nil {
			return path
		}
	}
	const line = "no Python with redis and xxhash is installed; on Debian: apt-get install python3-redis python3-xxhash"
	if os.Getenv("CI") == "true" || os.Getenv("DUEFLEET_TEST_REQUIRE") == "1" {
		t.Fatal(line)
	}
	t.Skip(line)
	return ""
}

// conform plays transcripts with a producer, and returns what the kit printed.
func conform(t *testing.T, addr, only string, program ...string) (output string, passed bool) {
	t.Helper()
	args := append([]string{"conform", "--redis-addr", addr, "--only", only, "--"}, program...)
	out, err := exec.CommandContext(t.Context(), programs.Producer, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

// TestTheProducerInPythonConforms: the producer passes with notes for consumers, and
// without.
func TestTheProducerInPythonConforms(t *testing.T) {
	t.Parallel()
	interpreter, addr := python(t), servertest.OwnRedis(t).Addr()
	for _, args := range [][]string{nil, {"--noting"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			if out, passed := conform(t, addr, "*", append([]string{interpreter, "pipe.py"}, args...)...); !passed {
				t.Error(out)
			}
		})
	}
}

// defect is a mistake in producer.py, and the words with which the kit reports it.
type defect struct {
	about      string
	from, to   string
	transcript string
	says       string
}

var defects = []defect{
	{"places by another hash", "xxhash.xxh64(id.encode())", "xxhash.xxh32(id.encode())", "schedule-stable",
		"want put at shard 1"},
	{"counts due times by its own clock", "moving, id, when, body]", "moving, id, str(self._now() + int(when)), body]",
		"schedule-stable", "when is"},
	{"leaves headers in the caller's order", "in sorted((k.encode(), v.encode()) for k, v in headers.items())",
		"in [(k.encode(), v.encode()) for k, v in headers.items()]", "schedule-stable-headers", "body is"},
	{"draws an op for each script", "[p.text, op, limit, mode,", "[p.text, os.urandom(6), limit, mode,",
		"schedule-lost-absent", "code: got 4, want 0"},
	{"has one op for all calls", "op = os.urandom(6)", "op = b'always'", "schedule-stable-calls",
		"has the op of request 1"},
	{"gives scripts an hour", "CALL_LIFE = 3000", "CALL_LIFE = 3600000", "schedule-stable", "want about 3000"},
	{"repeats while a copy may still run", "                self._outlast(limit)\n", "                pass\n",
		"schedule-held", "ms too early"},
	{"gives up after a lost reply", "                self._outlast(limit)\n", "                break\n", "schedule-lost",
		"code: got 1, want 0"},
	{"repeats what Redis has no memory for",
		"            raise ProducerError(str(e)) from e\n        except (redis.ConnectionError",
		"            raise _NotExecuted(str(e)) from e\n        except (redis.ConnectionError", "schedule-full", "script"},
	{"sends no script by its text", `"EVAL", script.text`, `"EVALSHA", script.sha`, "schedule-unloaded",
		"the program ended, or writes no more answers"},
	{"keeps its estimate of the time", "            except _Late:\n                self._asked = None\n            " +
		"except _Moved as moved", "            except _Late:\n                pass\n            except _Moved as moved",
		"schedule-late", "script 2 is put at shard 1 -> late"},
	{"doesn't show the old shard the placement", "there = self._ask(FENCE, topic, p.old(id), p.text, id)[1]\n          " +
		"  if if_absent", "there = None\n            if if_absent", "schedule-moving", "want fence at shard 1"},
	{"leaves the old copy", "            if not if_absent:\n                self._close(topic, p, id)\n", "",
		"schedule-moving", "no script 3 was sent, want delete at shard 1"},
	{"notes nothing among the handled IDs", "due = put(p, 1)", "due = put(p, 0)", "schedule-moving-exported", "moving is"},
	{"starts over at the closing delete", "                return  # the movers of that change removed the copy\n",
		"                raise\n", "schedule-moved-closing", "a script too many was sent"},
	{"takes no look at the old shard, if absent", "            if if_absent and there:\n", "            if False:\n",
		"schedule-moving-absent-old", "code: got 0, want 4"},
	{"doesn't know its own task again", "                if record.op == op:\n                    return record.due  # " +
		"stored before the change began\n", "                return record.due\n", "schedule-moving-absent-old",
		"code: got 0, want 4"},
	{"cancels without the handled set", "1 if p.moving(id) else 0", "0", "cancel-moving-exported", "handled is"},
	{"cancels at the new shard alone", "            if p.moving(id):\n                delete(p, p.old(id), 0)\n", "",
		"cancel-moving", "want delete at shard 1"},
	{"forgets what the first delete found", "found, now = max(found, reply[1]), max(now, reply[2])",
		"found, now = reply[1], reply[2]", "cancel-moved-between", "code: got 3, want 0"},
	{"reschedules without what it read", "moved, ms = move(p, 1, there)", "moved, ms = move(p, 1, b'')",
		"reschedule-moving", "code: got 3, want 0"},
	{"leaves the copy of what is over", "if moved or there:", "if moved:", "reschedule-moving-over",
		"want delete at shard 1"},
	{"looks at the new shard first", "[p.old(id), p.new(id)] if", "[p.new(id), p.old(id)] if", "get-moving",
		"want read at shard 1"},
	{"takes an old placement for the truth", `        if reply[0] == b"moved":`,
		`        if reply[0] == b"moved" and len(reply) > 2:`, "get-moved", "code: got 3, want 0"},
	{"chooses between two placements of one epoch", "placement.epoch == seen.epoch and placement != seen", "False",
		"forked", "a script too many was sent"},
	{"goes on under what Redis has, after a failover", "                if placement.epoch < seen.epoch:",
		"                if False:", "schedule-forgotten", "script 2 is put at shard 1 -> moved"},
	{"keeps a removed topic", `or placement.phase == "removed"`, "", "removed", "code: got"},
	{"takes any record", "len(raw) < 19 or raw[0] >> 4 != 1", "len(raw) < 19", "unreadable", "code: got"},
	{"takes any header", ` or key in ("CC", "BCC")`, "", "refused-headers", "code: got 0, want 1"},
	{"takes any ID", "<= 255:\n        raise RuleError(\"id", "<= 1 << 20:\n        raise RuleError(\"id", "refused-id",
		"a script too many was sent"},
	{"writes under a prefix of its own", `"%s:placement:{%s}" % (self._prefix, topic)`,
		`"duefleet:placement:{%s}" % topic`, "get-stable", "not under the prefix in DUEFLEET_REDIS_PREFIX"},
	{"gives a script another's keys", `Script("delete", "due task fence handled")`,
		`Script("delete", "task due fence handled")`, "cancel-stable", "the program sent delete with the keys"},
	{"changes a script", "(folder / (name + \".lua\")).read_bytes()", "(folder / (name + \".lua\")).read_bytes() + b' '",
		"get-stable", "a script that is none of docs/protocol"},
	{"doesn't delete once more after its note", "            found = max(found, self._delete(topic, id)[0])",
		"            pass", "cancel-stable", "script"},
}

// TestTheKitFindsWhatIsWrong: each mistake in the producer fails a transcript, whose
// failure names the mistake.
func TestTheKitFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	interpreter, addr := python(t), servertest.OwnRedis(t).Addr()
	for _, d := range defects {
		t.Run(d.about, func(t *testing.T) {
			t.Parallel()
			out, passed := conform(t, addr, d.transcript, interpreter, d.plant(t), "--noting")
			if passed || !strings.Contains(out, "FAILED  "+d.transcript) || !strings.Contains(out, d.says) {
				t.Errorf("passed: %t; want %q in\n%s", passed, d.says, out)
			}
		})
	}
}

// TestASlowProgramIsTriedAgain: if a script comes late although no fault delayed it, the
// result says nothing about the program. This program is slow once.
func TestASlowProgramIsTriedAgain(t *testing.T) {
	t.Parallel()
	interpreter, addr := python(t), servertest.OwnRedis(t).Addr()
	const limit = "            limit = self._now() + CALL_LIFE\n"
	slow := defect{from: limit, to: limit + `            once = pathlib.Path(__file__).with_name("once")
            if not once.exists():
                once.touch()
                time.sleep((CALL_LIFE + 1) / 1000)
`}
	program := slow.plant(t)
	if out, passed := conform(t, addr, "schedule-stable", interpreter, program); !passed {
		t.Error(out)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "once")); err != nil {
		t.Errorf("the program was not slow: %v", err)
	}
}

// plant returns the path of a copy of pipe.py next to a producer.py with the defect.
func (d defect) plant(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "examples", "python")
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Symlink(docs, filepath.Join(dir, "..", "..", "docs"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe.py", "producer.py"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "producer.py" {
			if !strings.Contains(string(text), d.from) {
				t.Fatalf("producer.py doesn't contain %q", d.from)
			}
			text = []byte(strings.ReplaceAll(string(text), d.from, d.to))
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "pipe.py")
}
