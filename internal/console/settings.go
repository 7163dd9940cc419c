package console

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/duefleet/duefleet/internal/admin"
	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/config"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/internal/topicconfig"
	"github.com/duefleet/duefleet/task"
)

const (
	// consulLimit limits the requests to Consul for one page.
	consulLimit = 8 * time.Second
	// maxForm limits the form of a document, in bytes. Consul takes documents of 512 KiB.
	maxForm = 2 << 20
)

// edit is a way to change a topic's document. Its zero Key stands for the whole document.
type edit struct {
	// Path ends the address of its page, and Title names it.
	Path, Title string
	// Verb is the verb of `scanner topic` that does the same.
	Verb string
	// Key is the setting that it changes, Label names it, and Hint says what it takes.
	Key, Label, Hint string
	// Text says what the change means.
	Text string
}

const (
	set  = "set"
	undo = "undo"
)

// edits lists all ways to change a document, in the order of their links.
func edits() []edit {
	return []edit{
		{Path: "shards", Title: "Change shards", Verb: set, Key: "shards", Label: "Shards",
			Hint: "A whole number of 1 to " + strconv.Itoa(shard.MaxShards) + ". Empty: the default.",
			Text: "Scanners move the stored tasks to their new shards, and deliver meanwhile. The topic's page shows how far " +
				"they are."},
		{Path: "rate", Title: "Set rate", Verb: set, Key: "rate", Label: "Rate",
			Hint: "Tasks a second over the whole fleet. 0: no limit.",
			Text: "Scanners forward at most this many tasks of the topic a second. More due tasks wait."},
		{Path: "settings", Title: "Edit settings", Verb: set,
			Text: "This is the topic's document as it is stored. A setting that isn't here has its default."},
		{Path: "undo", Title: "Undo", Verb: undo, Text: "This writes an earlier document again. An undo is a change as " +
			"well, so it can be undone."},
	}
}

// editView has everything that the page of an edit shows.
type editView struct {
	edit
	Topic string
	// Value and Reason are the typed texts.
	Value, Reason string
	// To is the change whose document undo restores; 0: the one before the newest.
	To uint64
	// Index belongs to the document that the user saw.
	Index uint64
	// Mistake says why the change is refused; "" if it isn't.
	Mistake string
	// Meanwhile is true if somebody else changed the document since the user saw it.
	Meanwhile bool
	// Planned is true if the page shows the difference, not the form.
	Planned bool
	// Same is true if there is nothing to change.
	Same bool
	// Notes say what the change does, and Warning what isn't known about it.
	Notes   []string
	Warning string
	Lines   []diffLine

	plan topicconfig.Plan
}

// Base begins the command that does the same, before what the form adds.
func (v editView) Base() string {
	base := "scanner topic " + v.Verb + " " + v.Topic
	if v.To > 0 {
		base += toFlag(v.To)
	}
	return base
}

func toFlag(to uint64) string { return " --to=" + strconv.FormatUint(to, 10) }

// Command returns the command that does the same; "" if none does, because only the text
// of the document changes.
func (v editView) Command() string {
	arguments := v.arguments()
	if arguments == "" && v.Verb == set && v.Planned {
		return ""
	}
	if v.Reason != "" {
		arguments += " --reason=" + quoted(v.Reason)
	}
	return "scanner topic " + v.Verb + " " + v.Topic + arguments
}

// arguments returns the arguments and flags after the topic, without the reason.
func (v editView) arguments() (text string) {
	switch {
	case v.To > 0:
		return toFlag(v.To)
	case v.Verb == undo:
		return ""
	case v.Key != "":
		return " " + assignment(v.Key, v.Value)
	case v.plan.Fixed:
		text = " --replace"
	}
	for _, ch := range v.plan.Changes {
		text += " " + assignment(ch.Key, ch.New)
	}
	return text
}

// assignment returns key=value as one word of a shell.
func assignment(key, value string) string {
	if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsDigit(r) && !unicode.IsLetter(r) && r != '.' }) {
		value = quoted(value)
	}
	return key + "=" + value
}

// routeEdits registers the pages that change documents.
func (c *Console) routeEdits(mux *http.ServeMux) error {
	t, err := parse("edit.html")
	if err != nil {
		return err
	}
	for _, e := range edits() {
		path := "/topic/{topic}/" + e.Path
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { c.showEdit(w, r, t, e) })
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { c.edit(w, r, t, e) })
	}
	return nil
}

// whyFixed says why the console can't change a topic's document, and where to change it; ""
// if it can. source is as in admin.TopicStatus.
func (c *Console) whyFixed(source string) string {
	switch {
	case c.documents == nil && strings.HasPrefix(source, config.ConsulSource("")):
		return "scanners read the documents from consul, and the console's configuration names none: set consul.addr " +
			"there, or use `scanner topic set`"
	case c.documents == nil:
		return topicconfig.FileError(c.file).Error()
	case source == config.FileSource:
		return "scanners read this topic from their configuration files, not from consul: edit it there"
	}
	return ""
}

// editable returns an error if there is no such topic, or if its document can't be changed
// here.
func (c *Console) editable(r *http.Request, topic string) error {
	if err := c.knownTopic(r, topic); err != nil {
		return err
	}
	source, err := c.store.Registry().Source(r.Context(), topic)
	if err != nil {
		source = "" // unknown: this user may not read it
	}
	if why := c.whyFixed(source); why != "" {
		return fmt.Errorf("topic %s: %s: %w", topic, why, task.ErrNotFound)
	}
	return nil
}

// showEdit shows the form of an edit with the present value. Undo has no form: it shows the
// difference at once.
func (c *Console) showEdit(w http.ResponseWriter, r *http.Request, t *template.Template, e edit) {
	v := editView{edit: e, Topic: r.PathValue("topic")}
	if err := c.editable(r, v.Topic); err != nil {
		c.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), consulLimit)
	defer cancel()
	if e.Verb == undo {
		v.To, _ = strconv.ParseUint(r.FormValue("to"), 10, 64) // else the one before the newest
		c.writeEdit(w, r, t, c.planEdit(ctx, v, false))
		return
	}
	found, err := c.documents.Find(ctx, v.Topic)
	if err != nil {
		v.Mistake = err.Error()
	}
	v.Index, v.Value = found.Index, string(found.Raw)
	if e.Key != "" {
		v.Value = config.Effective(found.Topic)[e.Key]
	}
	c.writeEdit(w, r, t, v)
}

// edit does a step of the form: it shows the difference, returns to the form, or writes the
// document.
func (c *Console) edit(w http.ResponseWriter, r *http.Request, t *template.Template, e edit) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, fmt.Sprintf("the form can't be read, or has more than %d bytes: %v", maxForm, err),
			http.StatusRequestEntityTooLarge)
		return
	}
	v := editView{edit: e, Topic: r.PathValue("topic"), Reason: oneLine(r.PostFormValue("reason")),
		Value: strings.ReplaceAll(r.PostFormValue("value"), "\r\n", "\n")}
	if e.Key != "" {
		v.Value = strings.TrimSpace(v.Value)
	}
	v.To, _ = strconv.ParseUint(r.PostFormValue("to"), 10, 64)
	v.Index, _ = strconv.ParseUint(r.PostFormValue("index"), 10, 64) // without one it is a conflict
	if err := c.editable(r, v.Topic); err != nil {
		c.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), consulLimit)
	defer cancel()
	step := r.PostFormValue("step")
	if step == "change" {
		c.writeEdit(w, r, t, v)
		return
	}
	v = c.planEdit(ctx, v, true)
	if step != "write" || !v.Planned || v.Meanwhile || v.Same {
		c.writeEdit(w, r, t, v)
		return
	}
	done, err := c.commit(ctx, r, v)
	if errors.Is(err, topicconfig.ErrMeanwhile) {
		v = c.planEdit(ctx, v, true)
		v.Meanwhile = true
		c.writeEdit(w, r, t, v)
		return
	}
	if err != nil {
		v.Mistake = err.Error()
		c.writeEdit(w, r, t, v)
		return
	}
	said := url.Values{"done": {"written"}, "index": {strconv.FormatUint(done.Document.Index, 10)}}
	if done.Unkept != nil {
		said.Set("done", "unkept")
	}
	http.Redirect(w, r, "/topic/"+url.PathEscape(v.Topic)+"?"+said.Encode(), http.StatusSeeOther)
}

// planEdit checks a change and adds what it would do to the view. If seen is true, the user
// saw the document at v.Index.
func (c *Console) planEdit(ctx context.Context, v editView, seen bool) editView {
	if len(v.Reason) > topicconfig.MaxReason {
		v.Mistake = fmt.Sprintf("the reason has more than %d bytes", topicconfig.MaxReason)
		return v
	}
	var err error
	switch {
	case v.Verb == undo:
		v.plan, _, err = c.documents.PlanUndo(ctx, v.Topic, v.To)
	case v.Key == "":
		v.plan, err = c.documents.PlanDocument(ctx, v.Topic, []byte(v.Value))
	default:
		v.plan, err = c.documents.Plan(ctx, v.Topic, topicconfig.Edit{Assignments: []string{v.Key + "=" + v.Value}})
		if v.plan.Found.Index == 0 && err == nil {
			err = topicconfig.NoDocumentError(v.Topic)
		}
	}
	if err == nil && v.Verb == set {
		v.Warning, err = v.plan.RefuseOlder(ctx, admin.Fleet{Store: c.store})
	}
	if err != nil {
		v.Mistake = err.Error()
		return v
	}
	v.Meanwhile = seen && v.plan.Found.Index != v.Index
	v.Index, v.Same = v.plan.Found.Index, v.plan.Same
	v.Planned = true
	if !v.Same {
		v.Notes, v.Lines = v.plan.Lines(), unified(v.plan.Found.Raw, v.plan.After.Raw)
	}
	return v
}

// commit writes the document of a plan, with an entry in the audit record.
func (c *Console) commit(ctx context.Context, r *http.Request, v editView) (done topicconfig.Committed, err error) {
	who := whoOf(r).Name
	e := bulk.Entry{By: who, Host: host(), Command: "topic " + v.Verb + v.arguments(), Topic: v.Topic, Filter: v.Reason}
	author := topicconfig.Author{Name: strings.ToValidUTF8(who[:min(len(who), topicconfig.MaxAuthor)], ""), Verb: v.Verb,
		Reason: v.Reason}
	_, err = c.auditedAction(ctx, e, func() (n bulk.Counts, err error) {
		done, err = c.documents.Commit(ctx, v.plan, author)
		return n, err
	})
	c.log.InfoContext(ctx, "document changed", "user", who, "command", e.Command, "topic", v.Topic, "reason", v.Reason,
		"index", done.Document.Index, "unkept", done.Unkept, "error", err)
	return done, err
}

// writeEdit sends the page of an edit.
func (c *Console) writeEdit(w http.ResponseWriter, r *http.Request, t *template.Template, v editView) {
	status := http.StatusOK
	switch {
	case v.Mistake != "":
		status = http.StatusBadRequest
	case v.Meanwhile:
		status = http.StatusConflict
	}
	c.write(w, r, status, t, page{Title: v.Title + ": " + v.Topic, Body: v})
}
