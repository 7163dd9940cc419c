package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/duefleet/duefleet/test/check"
)

const exampleFile = "../../config.example.yaml"

// exampleTopic returns the example's topic.
func exampleTopic() Topic {
	orders := DefaultTopic("orders")
	orders.RoutingKey = "order.due"
	orders.Declare = &Declare{Queue: "orders.due", DeadLetter: "orders.dead"}
	setDefaults(orders.Declare)
	orders.Intake = newIntake("orders")
	return orders
}

func TestExampleHoldsTheDefaults(t *testing.T) {
	t.Parallel()
	got, err := Load(exampleFile, nil)
	check.OK(t, err)
	want := Defaults()
	want.Topics["orders"] = exampleTopic()
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

// TestExampleIsMadeOfTheFields: the example has every key with its default and its field's
// comment.
func TestExampleIsMadeOfTheFields(t *testing.T) {
	t.Parallel()
	e := example{comments: fieldComments(t)}
	e.text.WriteString(exampleHead)
	e.section(reflect.ValueOf(Defaults()), "")
	e.text.WriteString(exampleTopics)
	e.section(reflect.ValueOf(exampleTopic()), "    ")
	made := e.text.String()
	if *check.Update {
		check.OK(t, os.WriteFile(exampleFile, []byte(made), 0o644))
	}
	content, err := os.ReadFile(exampleFile)
	check.OK(t, err)
	is, want := strings.Split(string(content), "\n"), strings.Split(made, "\n")
	for i := range max(len(is), len(want)) {
		if i >= len(is) || i >= len(want) || is[i] != want[i] {
			t.Fatalf("line %d of %s is not what the fields say; go test ./internal/config -update writes it:\ngot  %s\nwant %s",
				i+1, exampleFile, is[min(i, len(is)-1)], want[min(i, len(want)-1)])
		}
	}
}

const exampleHead = `# All keys. Each value is its default, except some of the topic orders.
# Durations have a unit: ms, s, m or h.
#
# Every key outside topics has an environment variable that wins over this
# file: redis.tls.ca_file is DUEFLEET_REDIS_TLS_CA_FILE; a list is separated by
# commas. A secret may be in a file: give the file's path in its place.
`

const exampleTopics = `
# With Consul these topics are not used. Consul's are, which are written by
# ` + "`scanner topic set orders shards=8`" + ` or by any client of Consul.
topics:
  orders:
`

// example writes the file.
type example struct {
	text     strings.Builder
	comments map[string]string
	place    string // the current top section
	plain    bool   // the last line at the top was a key and no section
}

// section writes the fields of a struct. At the top a blank line separates the sections.
func (e *example) section(v reflect.Value, indent string) {
	for i := range v.NumField() {
		part := v.Type().Field(i)
		name, named := part.Tag.Lookup("yaml")
		if !named {
			continue
		}
		value, comment := reflect.Indirect(v.Field(i)), e.comments[v.Type().Name()+"."+part.Name]
		section := value.Kind() == reflect.Struct
		if indent == "" {
			if section || !e.plain {
				e.text.WriteString("\n")
			}
			e.place, e.plain = name, !section
		}
		if section {
			e.line(indent+name+":", comment)
			e.section(value, indent+"  ")
			continue
		}
		e.line(indent+name+": "+exampleValue(value.Interface()), comment)
		if part.Tag.Get("secret") != "" {
			e.line(indent+"# "+name+"_file: /run/secrets/"+e.place+"-"+name, "a file that holds it instead")
		}
	}
}

// line aligns the comments.
func (e *example) line(text, comment string) {
	if comment == "" {
		e.text.WriteString(text + "\n")
		return
	}
	fmt.Fprintf(&e.text, "%-25s   # %s\n", text, comment)
}

func exampleValue(value any) string {
	switch v := value.(type) {
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case string:
		if strings.Contains(v, ":") {
			return v
		}
		return scalar(v)
	case time.Duration:
		return show(v)
	default:
		return fmt.Sprint(v)
	}
}

// fieldComments returns the first paragraph of each field's comment, by type and field. As in
// the example, it has no period and begins in lower case.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range []string{"config.go", "topic.go", "intake.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		check.OK(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				text, _, _ := strings.Cut(f.Doc.Text(), "\n\n")
				for _, name := range f.Names {
					all[spec.Name.Name+"."+name.Name] = small(strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(text), "."),
						"\n", " "))
				}
			}
			return false
		})
	}
	return all
}

// small makes the first letter lower case, except in M and PEM.
func small(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	if second, _ := utf8.DecodeRuneInString(text[n:]); unicode.IsLower(second) || unicode.IsSpace(second) {
		return string(unicode.ToLower(first)) + text[n:]
	}
	return text
}
