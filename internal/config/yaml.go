package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/duefleet/duefleet/internal/duetime"
)

const (
	// maxDocument is the largest document in bytes, the limit of a value in Consul.
	maxDocument = 512 << 10
	// maxTopicMarks bounds the number of marks, such as line ends and brackets, in a
	// topic's document. The parser's time grows with its square, and one topic must not
	// delay the others. A topic has about twenty keys, so the bound is generous.
	maxTopicMarks = 4096
	// maxFileMarks is the same bound for a file, which may have thousands of topics.
	maxFileMarks = 200_000
	// bom is the byte order mark that some editors write at the beginning of a file.
	bom = "\ufeff"
)

// parse returns the root of the only document in doc. It returns nil if the document is
// empty (see unparsed), or if it can't be read; then errs says why.
func parse(doc []byte, maxMarks int, errs *errorList) ast.Node {
	if len(doc) > maxDocument {
		errs.add("", 0, "must be at most %d bytes; got %d", maxDocument, len(doc))
		return nil
	}
	if line := brokenLine(doc); line > 0 {
		errs.add("", line, "must be UTF-8")
		return nil
	}
	file, err := parseBounded(doc, maxMarks)
	if err != nil {
		line, problem := syntaxProblem(err)
		errs.add("", line, "not valid YAML: %s", problem)
		return nil
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool {
		_, directive := d.Body.(*ast.DirectiveNode)
		return directive
	})
	switch {
	case len(docs) > 1:
		errs.add("", beginning(docs[1]), "must be one document")
	case len(docs) == 0 || docs[0].Body == nil:
		if line, what := unparsed(doc); line > 0 {
			errs.add("", line, "must be keys with values; got %s", what)
		}
	case docs[0].Body.Type() == ast.NullType:
		errs.add("", beginning(docs[0]), "must be keys with values; got %s", nodeName(docs[0].Body))
	default:
		return docs[0].Body
	}
	return nil
}

// beginning returns the line of a document's content, or of the --- before it if it is
// empty.
func beginning(d *ast.DocumentNode) int {
	for _, tok := range []*token.Token{bodyToken(d), d.Start} {
		if tok != nil && tok.Position != nil {
			return tok.Position.Line
		}
	}
	return 1
}

func bodyToken(d *ast.DocumentNode) *token.Token {
	if d.Body == nil {
		return nil
	}
	return d.Body.GetToken()
}

// unparsed returns content that the parser drops silently, and its line: a tag without a
// value, or everything after an empty document. The line is 0 if there is none. Comments
// and the marks at a document's ends don't count.
func unparsed(doc []byte) (line int, what string) {
	for text := range strings.Lines(strings.TrimPrefix(string(doc), bom)) {
		line++
		text = strings.TrimSpace(strings.TrimPrefix(text, "---"))
		switch {
		case text == "" || text == "..." || text[0] == '#' || text[0] == '%':
		case text[0] == '!':
			return line, "a tag, which is not supported"
		default:
			return line, "more than one document"
		}
	}
	return 0, ""
}

// brokenLine returns the first line that is not UTF-8, or 0.
func brokenLine(doc []byte) int {
	line := 1
	for len(doc) > 0 {
		r, n := utf8.DecodeRune(doc)
		switch {
		case r == utf8.RuneError && n == 1:
			return line
		case r == '\n':
			line++
		}
		doc = doc[n:]
	}
	return 0
}

// syntaxProblem returns the line and the message of a parser's error. The error's own
// text isn't used, because it quotes the lines around the mistake, secrets included.
func syntaxProblem(err error) (line int, problem string) {
	var syntax yaml.Error
	if !errors.As(err, &syntax) {
		return 0, err.Error()
	}
	if tok := syntax.GetToken(); tok != nil && tok.Position != nil {
		line = tok.Position.Line
	}
	return line, syntax.GetMessage()
}

// parseBounded refuses documents that would take the parser minutes, and turns its panics
// into errors. A document from outside must not end or delay the process.
func parseBounded(doc []byte, maxMarks int) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the parser gave up")
		}
	}()
	text := strings.TrimPrefix(string(doc), bom)
	if text == "" {
		return &ast.File{}, nil
	}
	marks := 0
	for i := range len(text) {
		if strings.IndexByte("\n:,[]{}-?&*!|>'\"", text[i]) >= 0 {
			marks++
		}
	}
	if marks > maxMarks {
		return nil, fmt.Errorf("more than %d lines, brackets and other marks", maxMarks)
	}
	return parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
}

// walker goes through one document and collects the keys in the table. Any other key is
// an error.
type walker struct {
	table table
	errs  *errorList
	out   settings
	// topics reads the value of the key topics, which is no field; nil in a topic.
	topics func(value ast.Node)
}

func (w *walker) mapping(section string, n ast.Node) {
	pairs := w.errs.pairs(section, n)
	for _, p := range pairs {
		key := p.key
		if section != "" {
			key = section + "." + p.key
		}
		w.entry(section, key, p)
	}
}

func (w *walker) entry(section, key string, p pair) {
	if key == "topics" && w.topics != nil {
		w.topics(p.value)
		return
	}
	if w.table.isSection(key) && !strings.Contains(p.key, ".") {
		w.out.sections[key] = p.line
		w.mapping(key, p.value)
		return
	}
	f, ok := w.table.find(key)
	if !ok || strings.Contains(p.key, ".") { // a section is not written with a dot
		w.unknown(section, key, p)
		return
	}
	value, problem := fromNode(f.zero, p.value)
	if problem == "" {
		problem = f.check(value)
	}
	if problem != "" {
		w.errs.add(key, p.line, "%s", problem)
		w.out.refused[key] = p.line
		return
	}
	w.out.values[key] = given{value: value, line: p.line}
}

func (w *walker) unknown(section, key string, p pair) {
	names := w.table.children(section)
	if w.topics != nil {
		names = append(names, "topics")
	}
	w.errs.add(key, p.line, unknownKey+"%s", didYouMean(p.key, names, ""))
}

// pair is one line of a mapping.
type pair struct {
	key   string
	line  int
	value ast.Node
}

// pairs lists a mapping's entries. A section without a value is an empty mapping, because
// all its keys may be commented out.
func (l *errorList) pairs(section string, n ast.Node) []pair {
	if _, empty := n.(*ast.NullNode); empty {
		return nil
	}
	m, ok := n.(ast.MapNode)
	if !ok {
		l.add(section, n.GetToken().Position.Line, "must be keys with values; got %s", nodeName(n))
		return nil
	}
	var list []pair
	seen := map[string]int{}
	for it := m.MapRange(); it.Next(); {
		tok := it.Key().GetToken()
		if problem := keyProblem(it.Key()); problem != "" {
			l.add(section, tok.Position.Line, "%s", problem)
			continue
		}
		p := pair{key: tok.Value, line: tok.Position.Line, value: it.Value()}
		if first, twice := seen[p.key]; twice {
			key := p.key
			if section != "" {
				key = section + "." + key
			}
			l.add(key, p.line, "given twice; first at line %d", first)
			continue
		}
		seen[p.key] = p.line
		list = append(list, p)
	}
	return list
}

func keyProblem(key ast.Node) string {
	switch key.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return ""
	default:
		return "a key must be a plain word; got " + nodeName(key)
	}
}

// fromNode converts a YAML value to zero's type. The problem never quotes a text, which
// may be a secret.
func fromNode(zero any, n ast.Node) (any, string) {
	switch zero.(type) {
	case string:
		return nodeText(n)
	case []string:
		return nodeList(n)
	case int:
		switch n.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			return parseText(zero, n.GetToken().Value)
		}
		return nil, "must be a whole number; got " + nodeName(n)
	case bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return nil, "must be true or false; got " + nodeName(n)
		}
		return b.Value, ""
	default:
		switch n.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
			return parseText(zero, n.GetToken().Value)
		}
		return nil, duetime.SpanForm + "; got " + nodeName(n)
	}
}

func nodeText(n ast.Node) (any, string) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, ""
	case *ast.LiteralNode:
		return v.Value.Value, ""
	default:
		return nil, "must be a text, in quotes if it looks like something else; got " + nodeName(n)
	}
}

func nodeList(n ast.Node) (any, string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, "must be a list, as in [a, b]; got " + nodeName(n)
	}
	list := []string{}
	for i, item := range seq.Values {
		if whole, ok := unsplit(item); ok {
			list = append(list, whole)
			continue
		}
		text, problem := nodeText(item)
		if problem != "" {
			return nil, fmt.Sprintf("number %d %s", i+1, problem)
		}
		list = append(list, text.(string))
	}
	return list, ""
}

// unsplit repairs the parser's result for {addrs: [redis:6379]}. Inside braces the parser
// reads redis:6379 as a key with a value, but by YAML's rules only a colon with a space
// ends a key. It returns the text and whether it had been split.
func unsplit(n ast.Node) (string, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok || m.IsFlowStyle || len(m.Values) != 1 {
		return "", false
	}
	switch m.Values[0].Value.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
	default:
		return "", false
	}
	key, value := m.Values[0].Key.GetToken(), m.Values[0].Value.GetToken()
	apart := !strings.HasSuffix(key.Origin, key.Value) || !strings.HasPrefix(value.Origin, value.Value)
	if apart || key.Type == token.DoubleQuoteType || key.Type == token.SingleQuoteType {
		return "", false
	}
	return key.Value + ":" + value.Value, true
}

// nodeName returns the kind of a value, without the value.
func nodeName(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "no value"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias, which are not supported"
	case *ast.MergeKeyNode:
		return "a merge key, which is not supported"
	case *ast.TagNode:
		return "a tag, which is not supported"
	default:
		return "something else"
	}
}
