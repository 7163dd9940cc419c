package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"github.com/duefleet/duefleet/internal/problem"
	"github.com/duefleet/duefleet/internal/shard"
	"github.com/duefleet/duefleet/task"
)

// screen is one page. Its file in templates defines the template "screen".
type screen struct {
	// title is the name of the screen. linked puts it into the navigation.
	title  string
	linked bool
	// path is a pattern of http.ServeMux without the method.
	path string
	// template is the file in templates.
	template string
	// reader returns what reads for a request; nil: the reader of the fleet.
	reader func(r *http.Request) *reader
	// name names the page of a request; nil: title.
	name func(r *http.Request) string
	// still is true if the page isn't live: it has no stream, and data gets no reading.
	still bool
	// data returns what the template shows. task.ErrUnknownTopic becomes status 404.
	data func(ctx context.Context, r *http.Request, now reading) (any, error)
}

// screens lists all screens, in the order of the navigation.
func (c *Console) screens() []screen {
	all := []screen{
		{title: "Overview", linked: true, path: "/{$}", template: "overview.html", data: c.overview},
		{title: "Tasks", linked: true, path: "/tasks", template: "tasks.html", data: c.tasks, still: true},
		{title: "Task", path: "/task", template: "task.html", data: c.task, still: true,
			name: func(r *http.Request) string { return r.FormValue("id") }},
		{title: "Parked", linked: true, path: "/parked", template: "parked.html", data: c.parked, reader: c.parkedReader},
		{title: "Change", path: "/change/{id}", template: "change.html", data: c.change, reader: c.changeReader},
		{title: "Fleet", linked: true, path: "/fleet", template: "fleet.html", data: c.fleet},
		{title: "Topic", path: "/topic/{topic}", template: "topic.html", data: c.topic, reader: c.topicReader,
			name: func(r *http.Request) string { return r.PathValue("topic") }},
		{title: "History", path: "/topic/{topic}/history", template: "history.html", data: c.history, still: true,
			name: func(r *http.Request) string { return "History: " + r.PathValue("topic") }},
	}
	if c.examiner != nil {
		all = append(all, screen{title: "Doctor", linked: true, path: "/doctor", template: "doctor.html", data: c.doctor})
	}
	return all
}

//go:embed templates
var templateFiles embed.FS

// page has everything that the layout shows.
type page struct {
	Title string
	// Here is the path of the screen in the navigation, and Stream where its events come from;
	// "" if it has none.
	Here, Stream string
	Links        []link
	Who          identity
	ReadOnly     bool
	Reading      reading
	// Assets is the path of the folder with styles and scripts.
	Assets, Version string
	// Body is for the screen's template.
	Body any
}

// link is an entry of the navigation.
type link struct{ Title, Path string }

// Verdict is the verdict on the installation in one word.
func (p page) Verdict() problem.Severity {
	switch {
	case p.Reading.Failure != "":
		return problem.Broken
	case p.Reading.At.IsZero():
		return "unknown"
	}
	return p.Reading.Status.Status
}

// parse returns the layout with one file of templates.
func parse(file string) (*template.Template, error) {
	t := template.New("layout").Funcs(functions())
	return t.ParseFS(templateFiles, "templates/layout.html", "templates/"+file)
}

// route registers a screen's page and stream.
func (c *Console) route(mux *http.ServeMux, s screen) error {
	t, err := parse(s.template)
	if err != nil {
		return err
	}
	show := func(r *http.Request, now reading) (page, error) {
		body, err := s.data(r.Context(), r, now)
		p := page{Title: s.title, Here: strings.TrimSuffix(s.path, "{$}"), Reading: now, Body: body}
		if !s.still {
			p.Stream = "/stream" + strings.TrimPrefix(r.URL.EscapedPath(), "/stream")
			if r.URL.RawQuery != "" {
				p.Stream += "?" + r.URL.RawQuery
			}
		}
		if s.name != nil {
			p.Title = s.name(r)
		}
		return p, err
	}
	from := s.reader
	if from == nil {
		from = func(*http.Request) *reader { return c.reader }
	}
	mux.HandleFunc("GET "+s.path, func(w http.ResponseWriter, r *http.Request) {
		var now reading
		if !s.still {
			now = from(r).fresh(r.Context())
		}
		p, err := show(r, now)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		c.write(w, r, http.StatusOK, t, p)
	})
	if !s.still {
		mux.HandleFunc("GET /stream"+s.path, func(w http.ResponseWriter, r *http.Request) {
			c.stream(w, r, t, from(r), show)
		})
	}
	return nil
}

// write sends a page. It sends nothing of a page whose template fails.
func (c *Console) write(w http.ResponseWriter, r *http.Request, status int, t *template.Template, p page) {
	c.complete(&p, r)
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, "layout", p); err != nil {
		c.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a browser that left needs no answer
}

// complete sets what all pages share.
func (c *Console) complete(p *page, r *http.Request) {
	p.Who, p.ReadOnly, p.Assets, p.Version, p.Links = whoOf(r), c.access.readOnly, c.assets, c.version, c.links
}

// fail sends a page that says what is wrong. Errors of Redis name a missing right.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, task.ErrUnknownTopic) || errors.Is(err, task.ErrNotFound) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	c.log.ErrorContext(r.Context(), "page failed", "path", r.URL.Path, "error", err)
	if shard.Denied(err) || errors.Is(err, task.ErrUnavailable) || errors.Is(err, task.ErrUncertain) {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	http.Error(w, "this page failed; the console's log says why", http.StatusInternalServerError)
}
