package conform

import (
	"bufio"
	"bytes"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/duefleet/duefleet/task"
)

// TestTranscripts: each transcript has a description and a request, and its name is a
// valid topic.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	all, err := Transcripts()
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := published()
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"time", "placement"}
	for _, s := range scripts {
		known = append(known, s.name)
	}
	for _, transcript := range all {
		asked := 0
		for _, s := range transcript.Steps {
			if s.Fault != nil && !slices.Contains(known, s.Fault.At) {
				t.Errorf("%s: a fault at %q, which no producer sends", transcript.Name, s.Fault.At)
			}
			if s.Ask == nil {
				continue
			}
			asked++
			for _, sent := range s.Ask.Scripts {
				i := slices.IndexFunc(knownScripts(scripts), func(k script) bool { return k.name == sent.Script })
				if i < 0 {
					t.Errorf("%s: no script is called %q", transcript.Name, sent.Script)
					continue
				}
				for name := range sent.With {
					if !slices.Contains(knownScripts(scripts)[i].args, name) {
						t.Errorf("%s: %s has no argument %q", transcript.Name, sent.Script, name)
					}
				}
			}
		}
		if err := task.CheckTopic(transcript.Name); err != nil || transcript.About == "" || asked == 0 {
			t.Errorf("%s: about %q, with %d requests, %v", transcript.Name, transcript.About, asked, err)
		}
	}
}

func knownScripts(all map[string]script) []script {
	var list []script
	for _, s := range all {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b script) int { return strings.Compare(a.name, b.name) })
	return list
}

func TestATranscriptWithAnUnknownFieldIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := parse("x", []byte(`{"about":"x","steps":[{"shard":4}]}`)); err == nil ||
		!strings.Contains(err.Error(), `transcript x: json: unknown field "shard"`) {
		t.Error(err)
	}
}

// TestTheFormatsPageNamesEveryField: the page next to the transcripts describes every
// field.
func TestTheFormatsPageNamesEveryField(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/protocol/conform/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []any{Transcript{}, Step{}, Fault{}, Ask{}, Sent{}, Stored{}, Return{}, State{}} {
		fields := reflect.TypeOf(of)
		for i := range fields.NumField() {
			name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
			if name != "" && name != "-" && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/protocol/conform/README.md doesn't name %s of %s", name, fields.Name())
			}
		}
	}
	for _, then := range []Outcome{Lose, Keep, Late, Behind, Refuse, Unloaded} {
		if !strings.Contains(string(page), "| `"+string(then)+"` |") {
			t.Errorf("docs/protocol/conform/README.md doesn't name the outcome %s", then)
		}
	}
}

// TestReplies: each reply is read completely, and no byte of the next one.
func TestReplies(t *testing.T) {
	t.Parallel()
	for wire, status := range map[string]string{
		"+PONG\r\n":                            "PONG",
		"-OOM command not allowed\r\n":         "OOM",
		":12\r\n":                              "12",
		"$5\r\nhe\r\no\r\n":                    "he\r\no",
		"$-1\r\n":                              "",
		"*-1\r\n":                              "-1",
		"*2\r\n$4\r\nlate\r\n:5\r\n":           "late",
		"*2\r\n$2\r\nok\r\n*1\r\n$-1\r\n":      "ok",
		"%1\r\n+proto\r\n:3\r\n":               "1",
		"|1\r\n+ttl\r\n:3\r\n*1\r\n+moved\r\n": "moved",
		"_\r\n":                                "",
		"#t\r\n":                               "t",
		",1.5\r\n":                             "1.5",
		"!9\r\nBUSY wait\r\n":                  "BUSY",
	} {
		in := bufio.NewReader(strings.NewReader(wire + "+next\r\n"))
		v, err := readValue(in)
		if err != nil || string(v.raw) != wire || v.status() != status {
			t.Errorf("%q: read %q, status %q, %v; want the status %q", wire, v.raw, v.status(), err, status)
		}
		if next, err := readValue(in); err != nil || next.text != "next" {
			t.Errorf("%q: behind it %q, %v", wire, next.text, err)
		}
	}
}

func TestCommandsAreReadAsTheyAreSent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.String(), 1, 8).Draw(t, "words")
		wire := command(words...)
		args, raw, err := readCommand(bufio.NewReader(bytes.NewReader(wire)))
		if err != nil || !slices.Equal(args, words) || !bytes.Equal(raw, wire) {
			t.Fatalf("read %q, %v", args, err)
		}
	})
}

func TestWhatIsNoCommandIsRefused(t *testing.T) {
	t.Parallel()
	for _, wire := range []string{"PING\r\n", "*0\r\n", "*x\r\n", "*1\r\n$x\r\n", "*1\r\n$9999999999999\r\n", "\n",
		"$4\r\nPING\r\n"} {
		if args, _, err := readCommand(bufio.NewReader(strings.NewReader(wire))); err == nil {
			t.Errorf("%q was read as %q", wire, args)
		}
	}
}

// TestOptionalScripts: scripts with the same word are all there, or none of them.
func TestOptionalScripts(t *testing.T) {
	t.Parallel()
	want := []Sent{
		{Script: "delete", Answer: "ok"},
		{Script: "note", Answer: "0", Optional: "consumers"},
		{Script: "delete", Answer: "ok", Optional: "consumers"},
		{Script: "read", Answer: "ok", Optional: "again"},
	}
	for order, good := range map[string]bool{
		"delete":                  true,
		"delete note delete":      true,
		"delete read":             true,
		"delete note delete read": true,
		"":                        false,
		"delete note":             false,
		"delete delete":           false,
		"note delete":             false,
		"delete read read":        false,
	} {
		var got []*sent
		for name := range strings.FieldsSeq(order) {
			answer := "ok"
			if name == "note" {
				answer = "0"
			}
			got = append(got, &sent{script: script{name: name, args: argNames(name)}, args: []string{"1", "2", "3"}, shard: -1,
				answer: answer})
		}
		if wrong := compareScripts(want, got); (len(wrong) == 0) != good {
			t.Errorf("%q: %q", order, wrong)
		}
	}
}
