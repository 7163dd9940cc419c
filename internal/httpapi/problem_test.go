package httpapi

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/duefleet/duefleet/test/check"
)

// TestABadLineHasFieldAndRule, as a single request that can't be understood has them.
func TestABadLineHasFieldAndRule(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	cases := [][3]string{ // a line, the field, and a part of the rule
		{`{"verb":"schedule","id":"a"}`, "in, at", "one of them is needed"},
		{`{"verb":"schedule","id":"a","in":"30"}`, "in", "a duration with a unit"},
		{`{"verb":"schedule","id":"a","in":"1h","priority":256}`, "priority", "must be 0 to 255"},
		{`{"verb":"schedule","id":"a","in":"1h","delay":2}`, "delay", "unknown field; known are verb, topic"},
		{`{"verb":"schedule","id":"a","recurrence":{"every":"1"}}`, "recurrence.every", "a duration with a unit"},
		{`{"verb":"schedule","id":"a","recurrence":{"often":1}}`, "recurrence", `unknown field "often"`},
		{`{"verb":"schedule","id":"a","in":"1h","headers":{"k":1}}`, "header k", "want a string"},
		{`{"verb":"cancel","id":"a","in":"1h"}`, "in", "cancel takes no such field"},
		{`{"verb":"cancel"}`, "id", "is needed"},
		{`{"verb":"cancel","id":"a","id":"b"}`, "id", "given twice"},
		{`{"verb":"fly","id":"a"}`, "verb", "want schedule"},
		{`{"verb":"cancel","id":"a","topic":"mail"}`, "topic", "must be orders"},
		{`{"verb":"schedule","id":"a","in":"1h","amqp":{"routing_key":"k"}}`, "amqp", "isn't taken over HTTP"},
		{`{"verb":"schedule","id":"a","in":"1h","amqp":{"key":"k"}}`, "amqp", "unknown field"},
		{`{"verb":"cancel"`, "line", "the line ends too soon"},
		{`[]`, "line", "want a JSON object"},
	}
	var lines strings.Builder
	for _, c := range cases {
		lines.WriteString(c[0] + "\n")
	}
	answers, err := d.batch(strings.NewReader(lines.String() + strings.Repeat(" ", 4_000_000) + "{}"))
	check.OK(t, err)
	check.Equal(t, "answers", len(answers), len(cases)+1)
	for i, c := range cases {
		a := answers[i]
		check.Equal(t, c[0]+": status", fmt.Sprint(a["status"], a["code"]), "400bad_request")
		check.Equal(t, c[0]+": field", a["field"], any(c[1]))
		check.Equal(t, c[0]+": got", a["got"], nil)
		rule, _ := a["rule"].(string)
		if detail := fmt.Sprint(a["detail"]); !strings.Contains(rule, c[2]) || detail == "" {
			t.Errorf("%s: rule %q, detail %q; want %q", c[0], rule, detail, c[2])
		}
	}
	long := answers[len(cases)]
	check.Equal(t, "a long line", fmt.Sprint(long["status"], long["field"], long["got"]), "400line4000002 bytes")
	if rule := fmt.Sprint(long["rule"]); !strings.Contains(rule, "must be at most") {
		t.Errorf("rule %q", rule)
	}
}

// TestA400HasTheSize of a value whose rule is about a size.
func TestA400HasTheSize(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for request, got := range map[string]any{
		"PUT ?in=1h&group=": "0 bytes", "PUT ?in=1h&in=2h": "2 values", "PATCH ?in=1h": "3 bytes", "PUT ?in=30": nil,
	} {
		method, query, _ := strings.Cut(request, " ")
		a := d.do(method, path("a")+query, "abc")
		a.want(t, request, 400, "bad_request")
		check.Equal(t, request+": got", a.body["got"], got)
	}
	a := d.send("DELETE", path("a"), struct{ *strings.Reader }{strings.NewReader("abc")})
	check.Equal(t, "a body without a length", a.body["got"], any("an unknown size"))
	// A client that ends in the middle of a body.
	conn, err := net.Dial("tcp", d.server.Addr())
	check.OK(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "PUT %s?in=1h HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345", path("a"))
	check.OK(t, err)
	check.OK(t, conn.(*net.TCPConn).CloseWrite())
	check.OK(t, conn.SetReadDeadline(time.Now().Add(check.Hang)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check.OK(t, err)
	a, err = d.read(http.MethodPut, path("a"), resp)
	check.OK(t, err)
	a.want(t, "half a body", 400, "bad_request")
	check.Equal(t, "got", fmt.Sprint(a.body["field"], " ", a.body["got"]), "body 5 bytes")
}
