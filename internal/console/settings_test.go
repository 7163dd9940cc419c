package console

import (
	"errors"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// documents is a site whose topic orders has a document in Consul. ann may act, bob may not.
type documents struct {
	*site
	redis    *fixture.Redis
	docs     topicconfig.Documents
	consul   config.Consul
	ann, bob []string // headers
}

const ordersDocument = "# of the shop\nshards: 2\nrate: 10\n"

// openDocuments returns the topics' documents of a test alone.
func openDocuments(t *testing.T) (topicconfig.Documents, config.Consul) {
	t.Helper()
	addr, prefix := servertest.Consul(t)
	cfg := config.Consul{Addr: addr, Prefix: prefix}
	docs, err := topicconfig.Open(cfg, slog.New(slog.DiscardHandler))
	check.OK(t, err)
	return docs, cfg
}

func serveDocuments(t *testing.T) *documents {
	t.Helper()
	d := &documents{redis: fixture.New(t)}
	d.redis.Serve(t, 2)
	d.docs, d.consul = openDocuments(t)
	_, err := d.docs.Consul.Put(t.Context(), "orders", []byte(ordersDocument), 0)
	check.OK(t, err)
	d.site, d.ann, d.bob = twoUsersWith(t, d.redis.Store, &d.docs)
	return d
}

// now returns the document of orders.
func (d *documents) now() config.Document {
	d.t.Helper()
	doc, err := d.docs.Find(d.t.Context(), "orders")
	check.OK(d.t, err)
	return doc
}

// post sends ann's form with a step, for the document that is there now.
func (d *documents) post(path, step string, form url.Values) (status int, page string, h http.Header) {
	d.t.Helper()
	if form.Get("index") == "" {
		form.Set("index", strconv.FormatUint(d.now().Index, 10))
	}
	form.Set("step", step)
	return d.ask(http.MethodPost, "/topic/orders/"+path, form, d.ann...)
}

// elsewhere changes a setting of orders as another operator does.
func (d *documents) elsewhere(assignment string) {
	d.t.Helper()
	p, err := d.docs.Plan(d.t.Context(), "orders", topicconfig.Edit{Assignments: []string{assignment}})
	check.OK(d.t, err)
	_, err = d.docs.Commit(d.t.Context(), p, topicconfig.Author{Name: "eve", Verb: "set"})
	check.OK(d.t, err)
}

// TestRateAndShardsAreSet: the page shows the difference and the command, and nothing is
// written before the second step. The history and the audit record have the user.
func TestRateAndShardsAreSet(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	_, page, _ := d.ask(http.MethodGet, "/topic/orders/rate", nil, d.ann...)
	contains(t, page, `name="value" value="10"`, "scanner topic set orders rate=10")
	form := url.Values{"value": {" 25 "}, "reason": {"it's <b>sale</b>"}}
	status, page, _ := d.post("rate", "look", form)
	check.Equal(t, "the difference", status, http.StatusOK)
	contains(t, page, "<li>orders.rate: 10 -&gt; 25</li>", `<span class="gone">-rate: 10`,
		`<span class="added">&#43;rate: 25`, "scanner topic set orders rate=25 --reason=&#39;it&#39;\\&#39;&#39;s &lt;b&gt;",
		`value="write"`)
	check.Equal(t, "written", string(d.now().Raw), ordersDocument)

	status, _, h := d.post("rate", "write", form)
	check.Equal(t, "write", status, http.StatusSeeOther)
	check.Equal(t, "written", string(d.now().Raw), "# of the shop\nshards: 2\nrate: 25\n")
	_, page, _ = d.ask(http.MethodGet, h.Get("Location"), nil, d.ann...)
	contains(t, page, "The document is written: no scanner runs, so nobody has applied it yet.")
	status, _, _ = d.post("shards", "write", url.Values{"value": {"4"}})
	check.Equal(t, "shards", status, http.StatusSeeOther)
	check.Equal(t, "shards in the document", d.now().Topic.Shards, 4)
	changes := d.changes()
	last := changes[len(changes)-2]
	if last.By != "ann" || last.Verb != "set" || last.Reason != "it's <b>sale</b>" || last.Text() != "rate: 10 -> 25" {
		t.Errorf("the history has %+v", last)
	}
	entries, err := bulk.Audit(t.Context(), d.redis.Store, "orders")
	check.OK(t, err)
	if len(entries) != 2 || entries[0].Command != "topic set shards=4" || entries[1].By != "ann" ||
		entries[1].Command != "topic set rate=25" || entries[1].State != bulk.Done {
		t.Errorf("the audit has %+v", entries)
	}
	contains(t, d.log.String(), `msg="document changed" user=ann command="topic set rate=25"`)
}

// changes returns the history of orders.
func (d *documents) changes() []topicconfig.HistoryLine {
	d.t.Helper()
	h, _, err := d.docs.History(d.t.Context(), "orders")
	check.OK(d.t, err)
	return topicconfig.NewHistoryLines(h)
}

// TestAViewerChangesNoDocument: each step is refused, and the pages say why.
func TestAViewerChangesNoDocument(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	for _, e := range edits() {
		path := "/topic/orders/" + e.Path
		_, page, _ := d.ask(http.MethodGet, path, nil, d.bob...)
		if e.Verb != undo { // there is nothing to undo
			contains(t, page, "This needs the role operate", "disabled>Show the difference")
		}
		for _, step := range []string{"look", "change", "write"} {
			form := url.Values{"value": {"3"}, "step": {step}, "index": {strconv.FormatUint(d.now().Index, 10)}}
			status, _, _ := d.ask(http.MethodPost, path, form, d.bob...)
			check.Equal(t, path+" "+step, status, http.StatusForbidden)
		}
	}
	check.Equal(t, "the document", string(d.now().Raw), ordersDocument)
}

// TestADocumentIsEdited: the page has the document as it is stored. Mistakes are refused as
// the verbs do, and the text stays in the form. A change of a comment alone has no command.
func TestADocumentIsEdited(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	_, page, _ := d.ask(http.MethodGet, "/topic/orders/settings", nil, d.ann...)
	contains(t, page, "<textarea", "\n"+ordersDocument+"</textarea>")
	for _, text := range []string{"shards: 0\nrte: 5\n", "", "[", "rate: 1\nrate: 2\n"} {
		status, page, _ := d.post("settings", "write", url.Values{"value": {text}})
		check.Equal(t, "a document with mistakes", status, http.StatusBadRequest)
		mistakes := config.ParseDocument("orders", []byte(text), 0).Err.Error()
		contains(t, page, html.EscapeString(mistakes), "\n"+text+"</textarea>")
	}
	status, page, _ := d.post("settings", "look", url.Values{"value": {ordersDocument}})
	check.Equal(t, "the same", status, http.StatusOK)
	contains(t, page, "nothing to change")
	_, page, _ = d.post("settings", "look", url.Values{"value": {"# mine\nshards: 2\nrate: 10\n"}})
	contains(t, page, "No setting changes.", "No command changes the text alone.", `<span class="gone">-# of the shop`)

	const text = "shards: 2\r\nexchange: ''\r\nrouting_key: \"a b\"\r\n"
	_, page, _ = d.post("settings", "look", url.Values{"value": {text}})
	contains(t, page, "rate=0", "routing_key=&#39;a b&#39;", `<span class="gone">-rate: 10`)
	_, page, _ = d.post("settings", "change", url.Values{"value": {text}})
	contains(t, page, strings.ReplaceAll(html.EscapeString(text), "\r", "")+"</textarea>")
	status, page, _ = d.post("settings", "write", url.Values{"value": {text}})
	if status != http.StatusSeeOther {
		t.Errorf("write: %d %s", status, page)
	}
	check.Equal(t, "written", string(d.now().Raw), strings.ReplaceAll(text, "\r", ""))
}

// TestABrokenDocumentIsReplaced: the command that does the same begins from an empty one.
func TestABrokenDocumentIsReplaced(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	_, err := d.docs.Consul.Put(t.Context(), "orders", []byte("shards: nine\n"), d.now().Index)
	check.OK(t, err)
	status, page, _ := d.post("rate", "look", url.Values{"value": {"5"}})
	check.Equal(t, "a rate in a broken document", status, http.StatusBadRequest)
	contains(t, page, "the document has mistakes")
	_, page, _ = d.post("settings", "look", url.Values{"value": {"shards: 9\n"}})
	contains(t, page, "scanner topic set orders --replace shards=9")
	status, _, _ = d.post("settings", "write", url.Values{"value": {"shards: 9\n"}})
	check.Equal(t, "write", status, http.StatusSeeOther)
	check.Equal(t, "shards", d.now().Topic.Shards, 9)
}

// TestNothingIsOverwritten: after somebody else changed the document, each step shows the new
// difference. The user may write after that.
func TestNothingIsOverwritten(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"look", "write"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			d := serveDocuments(t)
			seen := strconv.FormatUint(d.now().Index, 10)
			d.elsewhere("rate=77")
			theirs := string(d.now().Raw)
			form := url.Values{"value": {"shards: 2\nrate: 10\n"}, "index": {seen}}
			status, page, _ := d.post("settings", step, form)
			check.Equal(t, "status", status, http.StatusConflict)
			contains(t, page, "Somebody else changed the document meanwhile", `<span class="gone">-rate: 77`,
				`<span class="added">&#43;rate: 10`)
			check.Equal(t, "the document", string(d.now().Raw), theirs)
			form.Set("index", strconv.FormatUint(d.now().Index, 10))
			status, _, _ = d.post("settings", "write", form)
			check.Equal(t, "after a look", status, http.StatusSeeOther)
			check.Equal(t, "rate", d.now().Topic.Rate, 10)
		})
	}
}

// TestUndo: the history shows who changed what. Undo shows the difference. It restores the
// document from before the newest change, or the one that a change left.
func TestUndo(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	d.elsewhere("rate=20")
	d.elsewhere("rate=30")
	_, page, _ := d.ask(http.MethodGet, "/topic/orders/history", nil, d.bob...)
	contains(t, page, "<td>eve</td><td>set</td>", "rate: 20 -&gt; 30", "another tool", `href="/topic/orders/undo?to=1"`,
		"scanner topic history orders")
	_, page, _ = d.ask(http.MethodGet, "/topic/orders/undo", nil, d.ann...)
	contains(t, page, "undoes change 3, set by eve", `<span class="added">&#43;rate: 20`, "scanner topic undo orders<")
	status, _, _ := d.post("undo", "write", url.Values{"reason": {"too fast"}})
	check.Equal(t, "undo", status, http.StatusSeeOther)
	check.Equal(t, "rate", d.now().Topic.Rate, 20)
	seen := strconv.FormatUint(d.now().Index, 10)
	_, page, _ = d.ask(http.MethodGet, "/topic/orders/undo?to=1", nil, d.ann...)
	contains(t, page, "scanner topic undo orders --to=1", `name="to" value="1"`)
	d.elsewhere("rate=40")
	status, page, _ = d.post("undo", "write", url.Values{"to": {"1"}, "index": {seen}})
	check.Equal(t, "a conflict", status, http.StatusConflict)
	contains(t, page, `<span class="gone">-rate: 40`)
	check.Equal(t, "rate", d.now().Topic.Rate, 40)
	status, _, _ = d.post("undo", "write", url.Values{"to": {"1"}})
	check.Equal(t, "undo to 1", status, http.StatusSeeOther)
	check.Equal(t, "the document", string(d.now().Raw), ordersDocument)
	all := d.changes()
	if by := all[3]; by.By != "ann" || by.Verb != "undo" || by.Reason != "too fast" {
		t.Errorf("the history has %+v", by)
	}
	status, page, _ = d.ask(http.MethodGet, "/topic/orders/undo?to=99", nil, d.ann...)
	check.Equal(t, "no such change", status, http.StatusBadRequest)
	contains(t, page, "its history has no change 99")
}

// TestTopicsOfAFile have no such actions, and their page says where to change them.
func TestTopicsOfAFile(t *testing.T) {
	t.Parallel()
	docs, _ := openDocuments(t)
	for _, c := range []struct {
		cfg          Config
		source, want string
	}{
		{Config{File: "/etc/duefleet.yaml"}, "", "edit topics in /etc/duefleet.yaml"},
		{Config{}, config.ConsulSource("x"), "the console&#39;s configuration names none"},
		{Config{Documents: &docs}, config.FileSource, "from their configuration files, not from consul: edit it there"},
	} {
		r := fixture.New(t)
		topic, _ := r.Serve(t, 1)
		check.OK(t, topic.Store().Registry().KeepDocument(t.Context(), topic.Name(), c.source, []byte("shards: 1\n")))
		c.cfg.Settings = settings()
		s := serve(t, r.Store, c.cfg)
		_, page, _ := s.ask(http.MethodGet, "/topic/orders", nil)
		contains(t, page, `id="fixed"`, c.want)
		for _, e := range edits() {
			if strings.Contains(page, "/topic/orders/"+e.Path) {
				t.Errorf("the page leads to %s", e.Path)
			}
			status, _, _ := s.ask(http.MethodPost, "/topic/orders/"+e.Path, url.Values{"value": {"3"}, "step": {"write"}})
			check.Equal(t, e.Path, status, http.StatusNotFound)
		}
	}
	if _, err := docs.Find(t.Context(), "orders"); !errors.As(err, new(topicconfig.NoDocumentError)) {
		t.Errorf("the document: %v", err)
	}
}

// TestTheCommandOfADocument: the assignments in the command lead to the same settings.
func TestTheCommandOfADocument(t *testing.T) {
	t.Parallel()
	d := serveDocuments(t)
	const plain = "shards: 3\n"
	for _, c := range [][2]string{{plain, declared}, {declared, plain}, {ordersDocument, "{}\n"},
		{declared, "shards: 2\ndeclare: {queue: q}\npaused: true\npaused_reason: \"it's on\"\n"}} {
		_, err := d.docs.Consul.Put(t.Context(), "orders", []byte(c[0]), d.now().Index)
		check.OK(t, err)
		p, err := d.docs.PlanDocument(t.Context(), "orders", []byte(c[1]))
		check.OK(t, err)
		var assignments []string
		for _, ch := range p.Changes {
			assignments = append(assignments, ch.Key+"="+ch.New)
		}
		got, err := topicconfig.Edit{Assignments: assignments}.Of("orders", config.ParseDocument("orders", []byte(c[0]), 1))
		check.OK(t, err)
		check.OK(t, got.After.Err)
		if differs := config.Diff(p.After.Topic, got.After.Topic); len(differs) > 0 {
			t.Errorf("%q to %q: %q differs: %v", c[0], c[1], assignments, differs)
		}
	}
}
