package conform

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// compareAnswer returns the mistakes in an answer. It checks the fields that every answer
// has, and the transcript's.
func (p *player) compareAnswer(a *Ask, got map[string]any) (wrong []string) {
	want := map[string]any{"line": json.Number(strconv.Itoa(p.program.line))}
	for _, name := range []string{"verb", "topic", "id"} {
		// An error need not repeat fields that the program could not read.
		if v, ok := a.Request[name].(string); ok && (fmt.Sprint(got["code"]) == "0" || got[name] != nil) {
			want[name] = v
		}
	}
	for name, v := range a.Answer {
		want[name] = v
	}
	for name, w := range want {
		if problem := p.compareField(name, w, got); problem != "" {
			wrong = append(wrong, problem)
		}
	}
	if fmt.Sprint(got["code"]) != "0" {
		text, _ := got["error"].(string)
		_, retry := got["retry"].(bool)
		if text == "" || !retry {
			wrong = append(wrong, `with a code other than 0 an answer has "error" and "retry"`)
		}
	}
	if problem := sameInstant(got); problem != "" {
		wrong = append(wrong, problem)
	}
	slices.Sort(wrong)
	return wrong
}

// stamp matches the time at the end of a reason.
var stamp = regexp.MustCompile(` @[0-9]{13}$`)

func (p *player) compareField(name string, want any, got map[string]any) string {
	g, there := got[name]
	if several, ok := want.([]any); ok {
		for _, w := range several {
			if p.compareField(name, w, got) == "" {
				return ""
			}
		}
		return fmt.Sprintf("%s: got %s, want one of %s", name, inJSON(g), inJSON(want))
	}
	if !there {
		return fmt.Sprintf("%s: is missing, want %s", name, inJSON(want))
	}
	if strings.HasSuffix(name, "_ms") {
		number, _ := g.(json.Number)
		ms, err := number.Int64()
		if err != nil {
			return fmt.Sprintf("%s: got %s, want whole milliseconds", name, inJSON(g))
		}
		if problem := p.compareTime(want, ms); problem != "" {
			return name + ": " + problem
		}
		return ""
	}
	if text, ok := g.(string); ok && name == "reason" {
		g = stamp.ReplaceAllString(text, "") // older programs show that time
	}
	if inJSON(g) != inJSON(want) {
		return fmt.Sprintf("%s: got %.200s, want %.200s", name, inJSON(g), inJSON(want))
	}
	return ""
}

func inJSON(v any) string {
	b, _ := json.Marshal(v) // it was decoded from JSON
	return string(b)
}

// sameInstant checks that the two forms of a due time are equal.
func sameInstant(answer map[string]any) string {
	due, isText := answer["due"].(string)
	number, isNumber := answer["due_ms"].(json.Number)
	if !isText || !isNumber {
		return ""
	}
	at, err := time.Parse(time.RFC3339, due)
	if ms, _ := number.Int64(); err != nil || at.UnixMilli() != ms {
		return fmt.Sprintf("due: got %q, want the time of due_ms in RFC 3339", due)
	}
	return ""
}

// compareTime compares a time in ms with a transcript's value. That value is a number, or
// "+1000" for this many ms after Redis's time during the last request. It may also be
// "answer 2", for the due_ms of the answer to request 2.
func (p *player) compareTime(want any, got int64) string {
	low, high, err := p.timeRange(want)
	switch {
	case err != nil:
		return err.Error()
	case low == high && got != low:
		return fmt.Sprintf("got %d, want %d", got, low)
	case got < low || got > high:
		return fmt.Sprintf("got %d, want %d to %d: %v from Redis's now", got, low, high, want)
	}
	return ""
}

func (p *player) timeRange(want any) (low, high int64, err error) {
	form := fmt.Sprint(want)
	if n, ok := strings.CutPrefix(form, "answer "); ok {
		i, err := strconv.Atoi(n)
		if err != nil || i < 1 || i > len(p.asks) {
			return 0, 0, fmt.Errorf("the transcript has no %q", form)
		}
		number, _ := p.asks[i-1].answer["due_ms"].(json.Number)
		low, err = number.Int64()
		return low, low, err
	}
	ms, err := strconv.ParseInt(form, 10, 64)
	if strings.HasPrefix(form, "+") && len(p.asks) > 0 {
		last := p.asks[len(p.asks)-1]
		return last.before + ms, last.after + ms, err
	}
	return ms, ms, err
}

// compareScripts compares the sent scripts with the wanted ones, in order. Optional ones
// with the same word must be all there, or none of them.
func compareScripts(want []Sent, all []*sent) []string {
	got := slices.DeleteFunc(slices.Clone(all), (*sent).asks)
	var words []string
	for _, w := range want {
		if w.Optional != "" && !slices.Contains(words, w.Optional) {
			words = append(words, w.Optional)
		}
	}
	var wrong string
	for chosen := range 1 << len(words) {
		some := slices.DeleteFunc(slices.Clone(want), func(w Sent) bool {
			i := slices.Index(words, w.Optional)
			return i >= 0 && chosen&(1<<i) == 0
		})
		problem := compareOrder(some, got)
		if problem == "" {
			return nil
		}
		if wrong == "" || len(some) == len(got) {
			wrong = problem
		}
	}
	return []string{wrong + "; the scripts wanted are " + wanted(want) + listing(got)}
}

func compareOrder(want []Sent, got []*sent) string {
	for i, w := range want {
		if i == len(got) {
			return fmt.Sprintf("no script %d was sent, want %s", i+1, w)
		}
		if problem := w.compare(got[i]); problem != "" {
			return fmt.Sprintf("script %d is %s: %s", i+1, got[i], problem)
		}
	}
	if len(got) > len(want) {
		return fmt.Sprintf("a script too many was sent: %s", got[len(want)])
	}
	return ""
}

func (w Sent) compare(got *sent) string {
	if w.Script != got.name || w.Shard != nil && *w.Shard != got.shard || w.Answer != got.answer {
		return "want " + w.String()
	}
	for name, v := range w.With {
		if have := got.arg(name); have != v && (v != "*" || have == "") {
			return fmt.Sprintf("%s is %.80q, want %q", name, have, v)
		}
	}
	return ""
}

func (w Sent) String() string {
	text := w.Script
	if w.Shard != nil {
		text += fmt.Sprintf(" at shard %d", *w.Shard)
	}
	text += " -> " + w.Answer
	if w.Optional != "" {
		text = "(" + text + ")"
	}
	return text
}

func (s *sent) String() string {
	text := s.name
	if s.shard >= 0 {
		text += fmt.Sprintf(" at shard %d", s.shard)
	}
	return text + " -> " + s.answer
}

func wanted(all []Sent) string {
	if len(all) == 0 {
		return "none"
	}
	texts := make([]string, len(all))
	for i, w := range all {
		texts[i] = w.String()
	}
	return strings.Join(texts, ", ")
}

func listing(all []*sent) string {
	if len(all) == 0 {
		return "; none was sent"
	}
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = s.String()
	}
	return "; sent were " + strings.Join(texts, ", ")
}

// habits checks the rules for every operation's scripts. The op is the same within an
// operation, and new for the next one. A not_after is about 3 s in the future. A script
// that may have run, or may still run, is not sent again before its not_after has passed.
func (p *player) habits(got []*sent) (wrong []string) {
	request := p.program.line
	op := ""
	var unknown *sent
	for _, s := range got {
		if mine := s.arg("op"); mine != "" {
			before, used := p.ops[mine]
			switch {
			case op != "" && mine != op:
				wrong = append(wrong, fmt.Sprintf("%s has another op than a script before it: it stays the same for the whole "+
					"operation", s))
			case used && before != request:
				wrong = append(wrong, fmt.Sprintf("%s has the op of request %d: each call has its own", s, before))
			}
			op = mine
			p.ops[mine] = request
		}
		if s.notAfter() == 0 {
			continue
		}
		if ahead := s.notAfter() - s.at; ahead > mostAhead {
			wrong = append(wrong, fmt.Sprintf("%s has a not_after of %d ms from now, want about 3000", s, ahead))
		}
		if unknown != nil && s.at <= unknown.notAfter() {
			wrong = append(wrong, fmt.Sprintf("%s was sent while a copy of %s could still be carried out: %d ms too early", s,
				unknown, unknown.notAfter()-s.at+1))
		}
		if s.answer == "lost" || s.answer == "kept" {
			unknown = s
		}
	}
	return wrong
}
