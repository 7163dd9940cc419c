package httpapi

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/duefleet/duefleet/test/check"
	"github.com/duefleet/duefleet/test/servers/servertest"
)

// TestMain checks at the end that the tests have seen each answer that the document has.
func TestMain(m *testing.M) {
	code := servertest.Leaks(m)
	all := flag.Lookup("test.run").Value.String() == "" && len(described().seen) > 0 // no list of tests
	if code == 0 && all {
		if missing := described().unseen(); len(missing) > 0 {
			fmt.Printf("openapi.yaml has answers that no test gets:\n%s\n", strings.Join(missing, "\n"))
			code = 1
		}
	}
	os.Exit(code)
}

type (
	// document is the part of openapi.yaml that the tests read.
	document struct {
		Paths      map[string]pathItem
		Components struct {
			Parameters map[string]parameter
			Responses  map[string]response
			Schemas    map[string]schema
			Headers    map[string]any
		}
		mu   sync.Mutex
		seen map[string]bool // see answers
	}
	pathItem struct {
		Parameters                    []parameter
		Get, Put, Patch, Delete, Post *operation
	}
	operation struct {
		OperationID string `yaml:"operationId"`
		Security    *[]any
		Parameters  []parameter
		Responses   map[string]response
	}
	parameter struct {
		Ref      string `yaml:"$ref"`
		Name, In string
	}
	response struct {
		Ref     string   `yaml:"$ref"`
		Codes   []string `yaml:"x-codes"`
		Headers map[string]any
		Content map[string]struct{ Schema schema }
	}
	schema struct {
		Ref        string `yaml:"$ref"`
		Type       string
		Required   []string
		Enum       []string
		Properties map[string]schema
	}
)

// described returns the document, which is parsed once.
var described = sync.OnceValue(func() *document {
	d := &document{seen: map[string]bool{}}
	if err := yaml.Unmarshal(openAPI, d); err != nil {
		panic(err)
	}
	return d
})

func (p pathItem) operations() map[string]*operation {
	all := map[string]*operation{"GET": p.Get, "PUT": p.Put, "PATCH": p.Patch, "DELETE": p.Delete, "POST": p.Post}
	maps.DeleteFunc(all, func(_ string, o *operation) bool { return o == nil })
	return all
}

// operation returns the operation for a request; nil if it has none.
func (d *document) operation(method, path string) *operation {
	path, _, _ = strings.Cut(path, "?")
	if parts := strings.Split(path, "/"); len(parts) > 3 && parts[2] == "topics" {
		parts[3] = "{topic}"
		if len(parts) > 5 {
			parts[5] = "{id}"
		}
		path = strings.Join(parts, "/")
	}
	return d.Paths[path].operations()[method]
}

// response returns a response, and the words that answers to it begin with.
func (d *document) response(o *operation, status string) (r response, words string, found bool) {
	r, found = o.Responses[status]
	if name, shared := strings.CutPrefix(r.Ref, "#/components/responses/"); shared {
		return d.Components.Responses[name], name, found
	}
	return r, o.OperationID + " " + status, found
}

// check notes an answer, and fails a test if the document doesn't have it.
func (d *document) check(t *testing.T, method, path string, a answer) {
	t.Helper()
	code, _ := a.body["code"].(string)
	o := d.operation(method, path)
	if o == nil {
		if code != "no_such_path" && code != "method" && code != "unauthorized" {
			t.Errorf("openapi.yaml doesn't have %s %s, which gets %d %s", method, path, a.status, code)
		}
		return
	}
	r, words, found := d.response(o, fmt.Sprint(a.status))
	contentType := a.header.Get("Content-Type")
	content, typed := r.Content[contentType]
	if !found || !typed || code != "" && !slices.Contains(r.Codes, code) {
		t.Errorf("openapi.yaml: %s has no answer %d %s of type %s", o.OperationID, a.status, code, contentType)
	}
	for _, name := range []string{"Retry-After", "WWW-Authenticate", "Allow"} {
		if _, documented := r.Headers[name]; documented != (a.header.Get(name) != "") {
			t.Errorf("openapi.yaml: %s %d %s: header %s documented: %v", o.OperationID, a.status, code, name, documented)
		}
	}
	if a.body != nil {
		d.fits(t, fmt.Sprint(o.OperationID, " ", a.status), content.Schema, a.body)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[strings.TrimSpace(words+" "+code)] = true
}

// fits checks the names and types of an object's fields.
func (d *document) fits(t *testing.T, what string, s schema, body map[string]any) {
	t.Helper()
	s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	for _, name := range s.Required {
		if body[name] == nil {
			t.Errorf("openapi.yaml: %s: %s is required and absent", what, name)
		}
	}
	for name, value := range body {
		is := map[string]string{"string": "string", "float64": "integer", "bool": "boolean",
			"map[string]interface {}": "object", "[]interface {}": "array"}[fmt.Sprintf("%T", value)]
		p, found := s.Properties[name]
		if object, isObject := value.(map[string]any); found && p.Ref != "" && isObject {
			d.fits(t, what+" "+name, p, object)
			continue
		}
		if !found || p.Type != is || p.Enum != nil && !slices.Contains(p.Enum, fmt.Sprint(value)) {
			t.Errorf("openapi.yaml: %s: %s is %v, documented as %+v", what, name, value, p)
		}
	}
}

// unseen returns the documented answers that no test got: words and a code, if the
// response has codes.
func (d *document) unseen() (missing []string) {
	for _, p := range d.Paths {
		for _, o := range p.operations() {
			for status := range o.Responses {
				r, words, _ := d.response(o, status)
				if len(r.Codes) == 0 {
					r.Codes = []string{""}
				}
				for _, code := range r.Codes {
					if answer := strings.TrimSpace(words + " " + code); !d.seen[answer] && !slices.Contains(missing, answer) {
						missing = append(missing, answer)
					}
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// TestTheServerReadsItsHeaders: a header that it reads can't be given twice.
func TestTheServerReadsItsHeaders(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for _, name := range headerParameters("schedule") {
		a := d.do("PUT", path("a")+"?in=1h", "", name+": *", name+": *")
		a.want(t, name, 400, "bad_request")
		check.Equal(t, "field", a.body["field"], any(name))
	}
	d.do("PUT", path("a")+"?in=1h", "", "Other: *", "Other: *").want(t, "another header", 200, nil)
}

// TestTheDocumentHasTheServersRequests: methods, verbs, parameters and headers, and it is served
// without a token.
func TestTheDocumentHasTheServersRequests(t *testing.T) {
	t.Parallel()
	doc, verbs := described(), map[string]string{}
	for path, item := range doc.Paths {
		for method, o := range item.operations() {
			verbs[method+" "+path] = o.OperationID
			var names, headers []string
			for _, p := range slices.Concat(item.Parameters, o.Parameters) {
				if p.Ref != "" {
					p = doc.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
				}
				switch p.In {
				case "query":
					names = append(names, p.Name)
				case "header":
					headers = append(headers, p.Name)
				}
			}
			check.Equal(t, o.OperationID+": headers", fmt.Sprint(headers), fmt.Sprint(headerParameters(o.OperationID)))
			check.Equal(t, o.OperationID+": parameters", fmt.Sprint(names), fmt.Sprint(parameters(o.OperationID)))
			check.Equal(t, o.OperationID+": needs a token", o.Security == nil, o.OperationID != verbDocument)
		}
	}
	want := map[string]string{"POST /v1/topics/{topic}/tasks": verbBatch, "GET " + documentPath: verbDocument}
	for method, verb := range methods() {
		want[method+" /v1/topics/{topic}/tasks/{id}"] = verb
	}
	check.Equal(t, "requests", fmt.Sprint(verbs), fmt.Sprint(want))

	d := open(t, func(c *Config) { c.Tokens = tokensFile(t) })
	resp, err := d.client.Get(d.url + documentPath)
	check.OK(t, err)
	defer resp.Body.Close()
	doc.check(t, "GET", documentPath, answer{status: resp.StatusCode, header: resp.Header})
	check.Equal(t, "status", resp.StatusCode, http.StatusOK)
	check.Equal(t, "size", resp.ContentLength, int64(len(openAPI)))
	d.do("GET", documentPath+"?a=1", "").want(t, "a parameter", 400, "bad_request")
}
