package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sheet returns a sheet with two subjects and three runs, whose medians come from
// different runs.
func sheet(goals ...Goal) Sheet {
	s := Sheet{Measure: "drain", Title: "due tasks", Runs: 3}
	s.Collect([][]Value{
		{{"duefleet", "tasks/s", 90}, {"raw", "tasks/s", 100}, {"duefleet", "early", 0}, {"overloaded", "tasks/s", 0}},
		{{"duefleet", "tasks/s", 300}, {"raw", "tasks/s", 200}, {"duefleet", "early", 1}, {"overloaded", "tasks/s", 0}},
		{{"duefleet", "tasks/s", 80}, {"raw", "tasks/s", 400}, {"duefleet", "early", 0}, {"overloaded", "tasks/s", 0}},
	}, goals)
	return s
}

func TestGoalsAreJudged(t *testing.T) {
	for _, c := range []struct {
		goal     Goal
		measured bool
		got      float64
		kept     bool
	}{
		{Goal{Subject: "duefleet", Name: "tasks/s", AtLeast: 90}, true, 90, true},
		{Goal{Subject: "duefleet", Name: "tasks/s", AtLeast: 91}, true, 90, false},
		{Goal{Subject: "duefleet", Name: "tasks/s", AtMost: 90, AtLeast: 80}, true, 90, true},
		{Goal{Subject: "duefleet", Name: "tasks/s", AtMost: 89}, true, 90, false},
		// The ratios of the runs are 0.9, 1.5 and 0.2; the ratio of the medians is 0.45.
		{Goal{Subject: "duefleet", Name: "tasks/s", Over: "raw", AtLeast: 0.9}, true, 0.9, true},
		// The runs are 10 less, 100 more and 320 less than the other subject's.
		{Goal{Subject: "duefleet", Name: "tasks/s", Over: "raw", AtMostMore: 5}, true, -10, true},
		{Goal{Subject: "raw", Name: "tasks/s", Over: "duefleet", AtMostMore: 9}, true, 10, false},
		{Goal{Subject: "raw", Name: "tasks/s", Over: "duefleet", AtMostMore: 10}, true, 10, true},
		// The median of the early ones is 0, but even one is too many.
		{Goal{Subject: "duefleet", Name: "early", None: true}, true, 1, false},
		{Goal{Subject: "duefleet", Name: "tasks/s", Over: "overloaded", AtLeast: 1}, false, 0, false},
		{Goal{Subject: "asynq", Name: "tasks/s", AtLeast: 1}, false, 0, false},
		{Goal{Subject: "duefleet", Name: "early", Over: "raw", AtMost: 1}, false, 0, false},
	} {
		s := sheet(c.goal)
		v := s.Verdicts[0]
		if v.Measured != c.measured || v.Got != c.got || v.Kept != c.kept {
			t.Errorf("%s: got %+v, want %+v", c.goal, v, c)
		}
	}
}

func TestNumbers(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.456: "0.46", 12.34: "12.3", 999.6: "1,000", 1234567: "1,234,567",
		-1500: "-1,500"} {
		if got := Number(f); got != want {
			t.Errorf("%v is written %q, want %q", f, got, want)
		}
	}
}

func TestASentenceBeginsWithACapital(t *testing.T) {
	for text, want := range map[string]string{"raw.": "Raw.", "élan": "Élan.", "Both": "Both."} {
		if got := sentence(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestWhatIsNotMeasuredHasNoFigure(t *testing.T) {
	r := Report{Sheets: []Sheet{sheet(Goal{Subject: "asynq", Name: "tasks/s", AtLeast: 1})}}
	var b strings.Builder
	if err := r.Markdown(&b, nil); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| [drain](#drain-due-tasks) | asynq: tasks/s >= 1 | - | not measured |",
		"| duefleet | 90.0 | 0 |",
		"| raw | 200 |  |",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, b.String())
		}
	}
}

func TestSheetsThatWereNotRunStay(t *testing.T) {
	r := Report{Sheets: []Sheet{{Measure: "b", Runs: 1}, {Measure: "a", Runs: 1}, {Measure: "gone"}}}
	r.Merge([]Sheet{{Measure: "b", Runs: 3}, {Measure: "c"}}, []string{"a", "b", "c"})
	var got []string
	for _, s := range r.Sheets {
		got = append(got, s.Measure)
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) || r.Sheets[1].Runs != 3 {
		t.Errorf("got %+v", r.Sheets)
	}
}

func TestOnlyWhatIsBetweenTheMarkersIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("head\n" + beginMarker + "\nold\n" + endMarker + "\nfoot\n")
	if err := Replace(path, "new\n"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "head\n" + beginMarker + "\n\nnew\n\n" + endMarker + "\nfoot\n"
	if string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
	write("no markers\n")
	if err := Replace(path, "new"); err == nil {
		t.Error("a document without markers was replaced")
	}
}

func TestAChartIsDrawnOfWhatFits(t *testing.T) {
	var s Sheet
	s.Collect([][]Value{{{"1 scanners, M = 1", "tasks/s", 10}, {"1 scanners, M = 64", "tasks/s", 20},
		{"raw", "tasks/s", 30}}}, nil)
	c := Chart{File: "c.svg", Title: "t", Name: "tasks/s", Split: ", M = ", X: "shards"}
	dir := t.TempDir()
	path, err := c.Draw(s, dir)
	if err != nil || path != "c.svg" {
		t.Fatalf("got %q, %v", path, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, path))
	if err != nil || !strings.Contains(string(b), "1 scanners") || !strings.Contains(string(b), "<svg") {
		t.Errorf("no chart: %v, %.100s", err, b)
	}
	c.Name = "p99 ms"
	if path, err := c.Draw(s, dir); err != nil || path != "" {
		t.Errorf("without a figure: got %q, %v", path, err)
	}
}
