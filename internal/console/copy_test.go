package console

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/duefleet/duefleet/test/check"
)

// edit has the browser carry out a command of its menu, as copy or paste.
func (b *browser) edit(command string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyDown, Key: "F24", Commands: []string{command}})
	check.OK(b.t, err)
}

// copied selects the table with an index, copies it and returns the text that a paste brings.
// cells has the texts that a reader sees at that moment, by row: the page refreshes itself.
func (b *browser) copied(index string) (text string, cells [][]string) {
	b.t.Helper()
	b.eval(`for (const d of document.querySelectorAll("details")) d.open = true;
		getSelection().selectAllChildren(document.querySelectorAll("table")[` + index + `]);
		document.addEventListener("copy", () => {
			window.seen = [...document.querySelectorAll("table")[` + index + `].rows].filter(r => r.checkVisibility())
				.map(r => [...r.cells].map(c => c.innerText.trim())); }, {once: true}); "ready"`)
	b.edit("copy")
	check.OK(b.t, json.Unmarshal([]byte(b.eval(`JSON.stringify(window.seen)`)), &cells))
	b.eval(`(() => { const to = document.createElement("textarea"); to.id = "pasted"; document.body.append(to);
		to.focus(); return "ready"; })()`)
	b.edit("paste")
	text = b.eval(`(() => { const from = document.getElementById("pasted"), text = from.value; from.remove();
		return text; })()`)
	return text, cells
}

// unseen returns the texts of tables that a copy has and nobody sees.
const unseen = `JSON.stringify([...document.querySelectorAll("table *")].filter(e => e.checkVisibility() &&
	[...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim())).filter(e => {
		const r = e.getBoundingClientRect(); return r.width < 2 || r.height < 2; }).map(e => e.outerHTML))`

// TestTablesCopyAsText: a copied table has a line for each row, with a tab between cells.
// Each cell is the text that a reader sees, with its unit.
func TestTablesCopyAsText(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	b := openBrowser(t, 1280, 800)
	tables := 0
	for _, p := range s.pages() {
		b.do(chromedp.Navigate(s.url+p.path), chromedp.WaitVisible(chromedp.CSS(p.shows)))
		check.Equal(t, p.name+": texts that nobody sees", b.eval(unseen), "[]")
		n := b.eval(`String(document.querySelectorAll("table").length)`)
		for i := range int(n[0] - '0') {
			text, cells := b.copied(string(rune('0' + i)))
			var want []string
			for _, row := range cells {
				want = append(want, strings.Join(row, "\t"))
			}
			if got := spaces.ReplaceAllString(text, " "); strings.TrimSpace(got) != strings.TrimSpace(strings.Join(want, "\n")) {
				t.Errorf("table %d of %s is copied as\n%s\na reader sees\n%s", i, p.name, text, strings.Join(want, "\n"))
			}
			if glued.MatchString(text) {
				t.Errorf("table %d of %s has a time without a space behind it:\n%s", i, p.name, text)
			}
			tables++
		}
	}
	if tables < 10 {
		t.Errorf("%d tables were copied", tables)
	}
	b.do(chromedp.Navigate(s.url+"/"), chromedp.WaitVisible(chromedp.CSS("#topic-orders")))
	text, _ := b.copied("0")
	if !regexp.MustCompile(`(?m)^orders\thealthy\t[\d,]+\t\d+\t\d+\t\d+\t\d+\t[\d,]+/s\t[\d.]+ ms\t[\d.]+ ms\t.* UTC · .* CES?T$`).
		MatchString(text) {
		t.Errorf("the overview's table is copied as\n%s", text)
	}
	b.sound()
}

var (
	spaces = regexp.MustCompile(`[ \x{a0}]+`)
	glued  = regexp.MustCompile(`UTC\S`)
)
