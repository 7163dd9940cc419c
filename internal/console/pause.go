package console

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/duefleet/duefleet/internal/bulk"
	"github.com/duefleet/duefleet/internal/duetime"
	"github.com/duefleet/duefleet/internal/registry"
	"github.com/duefleet/duefleet/task"
)

// maxReason limits the reason of a pause, in bytes, as topics' documents do.
const maxReason = 512

// pauseView has everything that the page of a pause, or of its end, shows.
type pauseView struct {
	Topic, Reason, Until string
	Pausing              bool
	// Mistake says what the input lacks; "" for nothing.
	Mistake string
	// Command does the same as the page.
	Command string
}

// routePause registers the pages that pause and resume topics.
func (c *Console) routePause(mux *http.ServeMux) error {
	t, err := parse("pause.html")
	if err != nil {
		return err
	}
	for _, verb := range []string{"pause", "resume"} {
		path := "/topic/{topic}/" + verb
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			c.showPause(w, r, t, http.StatusOK, pauseView{Topic: r.PathValue("topic"), Pausing: verb == "pause"})
		})
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { c.setPause(w, r, t, verb) })
	}
	return nil
}

func (c *Console) showPause(w http.ResponseWriter, r *http.Request, t *template.Template, status int, v pauseView) {
	if err := c.knownTopic(r, v.Topic); err != nil {
		c.fail(w, r, err)
		return
	}
	v.Command = pauseCommand(v)
	c.write(w, r, status, t, page{Title: v.Topic, Body: v})
}

// knownTopic returns task.ErrUnknownTopic if there is no such topic.
func (c *Console) knownTopic(r *http.Request, name string) error {
	if task.CheckTopic(name) != nil {
		return fmt.Errorf("topic %q: %w", name, task.ErrUnknownTopic)
	}
	_, err := c.store.Topic(name).Placement(r.Context())
	return err
}

// setPause pauses or resumes a topic in Redis, and then shows the topic.
func (c *Console) setPause(w http.ResponseWriter, r *http.Request, page *template.Template, verb string) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	v := pauseView{Topic: r.PathValue("topic"), Pausing: verb == "pause", Reason: oneLine(r.PostFormValue("reason")),
		Until: strings.TrimSpace(r.PostFormValue("until"))}
	if err := c.knownTopic(r, v.Topic); err != nil {
		c.fail(w, r, err)
		return
	}
	set := func() error { _, err := c.store.Registry().EndHold(r.Context(), v.Topic); return err }
	var until time.Time
	if v.Pausing {
		ms, err := c.store.Now(r.Context())
		if err != nil {
			c.fail(w, r, err)
			return
		}
		if until, err = parseUntil(v.Until, time.UnixMilli(ms)); err == nil && len(v.Reason) > maxReason {
			err = fmt.Errorf("the reason has more than %d bytes", maxReason)
		}
		if err != nil {
			v.Mistake = err.Error()
			c.showPause(w, r, page, http.StatusBadRequest, v)
			return
		}
		set = func() error {
			return c.store.Registry().Hold(r.Context(), v.Topic, registry.Hold{Until: until, Reason: v.Reason})
		}
	}
	e := bulk.Entry{By: whoOf(r).Name, Host: host(), Command: "topic " + verb + " --in-redis", Topic: v.Topic,
		Filter: v.Reason}
	if _, err := c.auditedAction(r.Context(), e, func() (bulk.Counts, error) {
		return bulk.Counts{}, set()
	}); err != nil {
		c.fail(w, r, err)
		return
	}
	c.log.InfoContext(r.Context(), "pause in redis changed", "user", whoOf(r).Name, "topic", v.Topic, "paused", v.Pausing,
		"until", duetime.Text(until), "reason", v.Reason)
	for _, w := range windows() { // the page after this shows it
		c.readers.expire(w.name + " " + v.Topic)
	}
	http.Redirect(w, r, "/topic/"+url.PathEscape(v.Topic)+"?done="+verb, http.StatusSeeOther)
}

// parseUntil parses the end of a pause: a time, or a duration from now; zero if the text is
// empty.
func parseUntil(text string, now time.Time) (time.Time, error) {
	at, err := parseMoment("the end", text, now)
	if err == nil && !at.IsZero() && !at.After(now) {
		err = errors.New("the end " + text + " is not in the future")
	}
	return at, err
}

// parseMoment parses a time, or a duration from now; zero if the text is empty.
func parseMoment(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := duetime.At(text); err == nil {
		return at, nil
	}
	d, err := duetime.Span(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s %q must be RFC 3339, Unix milliseconds, or a duration from now as in 30m, 2d",
			name, text)
	}
	return now.Add(d), nil
}

// oneLine returns a text on one line, without unprintable characters.
func oneLine(text string) string {
	printable := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, " "))
	return strings.TrimSpace(printable)
}

// pauseCommand returns the command that does the same.
func pauseCommand(v pauseView) string {
	if !v.Pausing {
		return "scanner topic resume " + v.Topic + " --in-redis"
	}
	command := "scanner topic pause " + v.Topic + " --in-redis"
	if v.Until != "" {
		command += " --until " + quoted(v.Until)
	}
	if v.Reason != "" {
		command += " --reason " + quoted(v.Reason)
	}
	return command
}

// quoted returns a text as one word of a shell. It escapes unprintable characters, as bash and
// zsh read it.
func quoted(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	word := "$'"
	for _, r := range text {
		switch {
		case r == '\'' || r == '\\':
			word += `\` + string(r)
		case unicode.IsPrint(r):
			word += string(r)
		default:
			for _, b := range []byte(string(r)) {
				word += fmt.Sprintf(`\%03o`, b)
			}
		}
	}
	return word + "'"
}
