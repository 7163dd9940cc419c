package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/producer"
	"github.com/duefleet/duefleet/task"
	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/fixture"
)

// TestATaskIsScheduledReadMovedAndCancelled, each with the answer that says so.
func TestATaskIsScheduledReadMovedAndCancelled(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	const options = "&routing_key=eu&priority=3&expiration=5m&correlation_id=c&reply_to=r"
	a := d.do("PUT", path("o-1")+"?at=2099-12-01T10:00:00Z"+options,
		`{"order":1}`, "Content-Type: application/json", "X-Duefleet-Header-Tenant: Größe",
		"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	a.want(t, "schedule", 200, nil)
	check.Equal(t, "answer", fmt.Sprint(a.body),
		"map[due:2099-12-01T10:00:00.000Z due_ms:4.0998024e+12 id:o-1 topic:orders]")
	s, _ := d.stored("o-1")
	check.Equal(t, "payload", string(s.Payload), `{"order":1}`)
	check.Equal(t, "content type", s.ContentType, "application/json")
	check.Equal(t, "headers", fmt.Sprint(s.Headers),
		"map[tenant:Größe traceparent:00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01]")
	check.Equal(t, "options", fmt.Sprint(s.Options), "{eu 3 5m0s c r}")

	a = d.do("GET", path("o-1"), "")
	a.want(t, "get", 200, nil)
	check.Equal(t, "state", a.body["state"], any("waiting"))
	check.Equal(t, "payload", a.body["payload"], any(`{"order":1}`))
	check.Equal(t, "ID", a.body["id"], any("o-1"))

	a = d.do("PATCH", path("o-1")+"?in=1d", "")
	a.want(t, "move", 200, nil)
	s, _ = d.stored("o-1")
	check.Equal(t, "due", a.body["due_ms"], any(float64(s.Due.UnixMilli())))
	if in := time.Until(s.Due); in < 23*time.Hour || in > 25*time.Hour {
		t.Errorf("due in %s", in)
	}
	a = d.do("DELETE", path("o-1"), "")
	a.want(t, "cancel", 200, nil)
	check.Equal(t, "cancelled", a.body["cancelled"], any(true))
	for _, method := range []string{"GET", "DELETE", "PATCH"} {
		query := map[string]string{"PATCH": "?in=1h"}[method]
		a := d.do(method, path("o-1")+query, "")
		a.want(t, method, 404, "not_found")
		check.Equal(t, "done", a.body["done"], any("no"))
	}
}

// TestAMessageOfTheIntakeIsRead: routing key, properties, and headers with their types.
func TestAMessageOfTheIntakeIsRead(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	_, err := d.tasks.Schedule(t.Context(), producer.Request{
		Topic: fixture.Orders, ID: "o-1", When: producer.In(time.Hour),
		AMQP: &task.AMQP{RoutingKey: "\xff", Properties: task.AMQPProperties{Priority: 3, AppID: "\xfe"},
			Headers: map[string]any{"n": int16(7), "\xfd": nil}},
	})
	check.OK(t, err)
	a := d.do("GET", path("o-1"), "")
	a.want(t, "get", 200, nil)
	check.Equal(t, "message", fmt.Sprint(a.body["amqp"]), "map[headers:map[n:map[type:int16 value:7]] "+
		"headers_base64:map[/Q==:map[type:void]] properties:map[priority:3] properties_base64:map[app_id:/g==] "+
		"routing_key: routing_key_base64:/w==]")
}

// TestARecurringTask: PUT and a line take the same rule, and GET shows it with the next runs.
func TestARecurringTask(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	const rule = "map[cron:0 9 1 * * each:true runs:5 until:2100-01-01T00:00:00.000Z zone:Europe/Berlin]"
	d.do("PUT", path("put")+"?cron=0+9+1+*+*&zone=Europe/Berlin&until=2100-01-01T00:00:00Z&runs=5&each=true", "p").
		want(t, "PUT", 200, nil)
	answers, err := d.batch(strings.NewReader(`{"verb":"schedule","id":"line","recurrence":{"cron":"0 9 1 * *",` +
		`"zone":"Europe/Berlin","until":"2100-01-01T00:00:00Z","runs":5,"each":true}}
{"verb":"get","id":"line"}`))
	check.OK(t, err)
	a := d.do("GET", path("put"), "")
	a.want(t, "GET", 200, nil)
	for _, body := range []map[string]any{a.body, answers[1]} {
		check.Equal(t, "rule", fmt.Sprint(body["recurrence"]), rule)
		runs, _ := body["next_runs"].([]any)
		check.Equal(t, "runs", len(runs), 3)
		check.Equal(t, "the first", runs[0], body["due"])
		check.Equal(t, "planned", body["planned"], nil)
	}
	planned, second := a.body["due"], a.body["next_runs"].([]any)[1]
	d.do("PATCH", path("put")+"?in=1m", "").want(t, "move", 200, nil)
	a = d.do("GET", path("put"), "")
	check.Equal(t, "planned", a.body["planned"], planned)
	check.Equal(t, "the run after a moved one", a.body["next_runs"].([]any)[1], second)

	d.do("PUT", path("in")+"?in=30m&every=1h", "").want(t, "a first run", 200, nil)
	s, _ := d.stored("in")
	if in := time.Until(s.Due); in < 29*time.Minute || in > 31*time.Minute {
		t.Errorf("the first run is in %s", in)
	}
	_, err = d.tasks.Schedule(t.Context(), producer.Request{Topic: fixture.Orders, ID: "a@run",
		When: producer.In(time.Hour), Headers: map[string]string{task.HeaderSeries: "a"}})
	check.OK(t, err)
	check.Equal(t, "series", d.do("GET", path("a@run"), "").body["series"], any("a"))
}

// TestAnIDMayHaveAnyCharacter: the path has it escaped.
func TestAnIDMayHaveAnyCharacter(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for escaped, id := range map[string]string{
		"a%2Fb": "a/b", "%2E%2E": "..", "a+b%20c": "a+b c", "%2F%2F": "//", "%C3%A9": "é",
	} {
		d.do("PUT", path(escaped)+"?in=1h", "x").want(t, escaped, 200, nil)
		if _, there := d.stored(id); !there {
			t.Errorf("%q isn't stored", id)
		}
		a := d.do("GET", path(escaped), "")
		check.Equal(t, "ID", a.body["id"], any(id))
	}
}

// TestConditions: a PUT stores a task only if there is none, or only if there is one.
func TestConditions(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.do("PUT", path("a")+"?in=1h", "1", "If-Match: *").want(t, "nothing to replace", 412, "not_found")
	d.do("PUT", path("a")+"?in=1h", "2", "If-None-Match: *").want(t, "absent", 201, nil)
	d.do("PUT", path("a")+"?in=1h", "3", "If-None-Match: *").want(t, "present", 412, "exists")
	s, _ := d.stored("a")
	check.Equal(t, "payload", string(s.Payload), "2")
	d.do("PUT", path("a")+"?in=1h", "4", "If-Match: *").want(t, "replaced", 200, nil)
	s, _ = d.stored("a")
	check.Equal(t, "payload", string(s.Payload), "4")
}

// refusal is a request with method, path and query, and the answer that it gets.
type refusal struct {
	request, body string
	headers       []string
	status        int
	code, field   string
}

func bad(request, field string, headers ...string) refusal {
	return refusal{request, "", headers, 400, "bad_request", field}
}

func invalid(request, field string, headers ...string) refusal {
	return refusal{request, "", headers, 422, "invalid", field}
}

// TestRefusals: a request that breaks a rule gets the field and the rule, and does nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for name, r := range map[string]refusal{
		"no due":              bad("PUT /a", "in, at"),
		"two dues":            bad("PUT /a?in=1h&at=2099-12-01T10:00:00Z", "in, at"),
		"no unit":             bad("PUT /a?in=30", "in"),
		"seconds":             bad("PUT /a?at=1796119200", "at"),
		"a blank from a plus": bad("PUT /a?at=2099-12-01T10:00:00+01:00", "at"),
		"given twice":         bad("PUT /a?in=1h&in=2h", "in"),
		"unknown parameter":   bad("PUT /a?in=1h&delay=2", `"delay"`),
		"priority":            bad("PUT /a?in=1h&priority=256", "priority"),
		"expiration":          bad("PUT /a?in=1h&expiration=0", "expiration"),
		"a bad escape":        bad("PUT /a?in=%zz", "query"),
		"an entity tag":       bad("PUT /a?in=1h", "If-Match", `If-Match: "1"`),
		"a misspelled header": bad("PUT /a?in=1h", "X-Duefleet-Due", "X-Duefleet-Due: 1"),
		"a header twice": bad("PUT /a?in=1h", "X-Duefleet-Header-A",
			"X-Duefleet-Header-A: 1", "X-Duefleet-Header-A: 2"),
		"a condition of a move": bad("PATCH /a?in=1h", "If-None-Match", "If-None-Match: *"),
		"a due of a cancel":     bad("DELETE /a?in=1h", `"in"`),
		"a body of a move":      {"PATCH /a?in=1h", "x", nil, 400, "bad_request", "body"},
		"no rule":               bad("PUT /a?in=1h&runs=3", "runs"),
		"runs":                  bad("PUT /a?every=1h&runs=-1", "runs"),
		"each":                  bad("PUT /a?every=1h&each=1", "each"),
		"every":                 bad("PUT /a?every=1", "every"),
		"until":                 bad("PUT /a?every=1h&until=soon", "until"),
		"a rule of a move":      bad("PATCH /a?in=1h&every=1h", `"every"`),
		"two rules":             invalid("PUT /a?every=1h&cron=@daily&zone=UTC", "every"),
		"no zone":               invalid("PUT /a?cron=@daily", "zone"),
		"the past":              invalid("PUT /a?every=1h&until=2020-01-01T00:00:00Z", "until"),
		"too far":               invalid("PUT /a?in=40000d", "due"),
		"a long ID":             invalid("PUT /"+strings.Repeat("x", 256)+"?in=1h", "id"),
		"an ID not in UTF-8":    invalid("PUT /%ff?in=1h", "id"),
		"both conditions":       invalid("PUT /a?in=1h", "if_present", "If-Match: *", "If-None-Match: *"),
		"a reserved header":     invalid("PUT /a?in=1h", "header key", "X-Duefleet-Header-X-Duefleet-Due: 1"),
		"a large payload":       {"PUT /a?in=1h", strings.Repeat("x", 1001), nil, 413, "invalid", "payload"},
		"compressed": {"PUT /a?in=1h", "", []string{"Content-Encoding: gzip"}, 415, "encoding",
			"Content-Encoding"},
		"an unknown method":    {"POST /a?in=1h", "", nil, 405, "method", "method"},
		"a name of the server": {"PUT /a?in=1h", "", []string{"Host: evil.example"}, 403, "forbidden", "Host"},
	} {
		method, rest, _ := strings.Cut(r.request, " ")
		a := d.do(method, path(rest[1:]), r.body, r.headers...)
		a.want(t, name, r.status, r.code)
		field, _ := a.body["field"].(string)
		check.Equal(t, name+": field", field, r.field)
		if rule, _ := a.body["rule"].(string); rule == "" {
			t.Errorf("%s: no rule", name)
		}
		check.Equal(t, name+": done", a.body["done"], any("no"))
	}
	d.do("PUT", "/v1/topics/or%20ders/tasks/a?in=1h", "").want(t, "a bad topic", 422, "invalid")
	d.do("PUT", "/v1/topics/nobody/tasks/a?in=1h", "").want(t, "an unknown topic", 404, "unknown_topic")
	a := d.do("PUT", "/v1/topics/orders/a?in=1h", "")
	a.want(t, "another path", 404, "no_such_path")
	check.Equal(t, "field", a.body["field"], any("path"))
	for headers, field := range map[string]string{
		"Content-Type: text/plain":                                   "Content-Type",
		"Content-Type: application/x-ndjson\nContent-Encoding: gzip": "Content-Encoding",
	} {
		a := d.do("POST", batchPath, "{}", strings.Split(headers, "\n")...)
		check.Equal(t, headers, fmt.Sprint(a.status, " ", a.body["field"]), "415 "+field)
	}
	a = d.do("GET", batchPath, "")
	check.Equal(t, "a list", fmt.Sprint(a.status, " ", a.body["field"], ": ", a.body["rule"]),
		"405 method: must be POST, for a batch")
	a = d.send("PUT", path("a")+"?in=1h", struct{ *strings.Reader }{strings.NewReader(strings.Repeat("x", 2000))})
	a.want(t, "a large payload of unknown size", 413, "invalid")
	check.Equal(t, "got", a.body["got"], any("more than 1000 bytes"))
	if _, there := d.stored("a"); there {
		t.Error("a refused request stored a task")
	}
}
