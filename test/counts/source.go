package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// longFunction is the length in lines above which a function is long.
const longFunction = 60

// counts are the figures of one version of the source.
type counts struct {
	Files    int `json:"files"`
	Lines    int `json:"lines"`
	Median   int `json:"median_function_lines"`
	P90      int `json:"p90_function_lines"`
	Long     int `json:"functions_above_60_lines"`
	Longest  int `json:"longest_file_lines"`
	Tests    int `json:"test_lines"`
	Helpers  int `json:"test_helper_lines"`
	Untyped  int `json:"untyped_replies"`
	Exported int `json:"exported_names_of_shard"`

	LongestFile string          `json:"longest_file"`
	Packages    map[string]size `json:"packages"`
	Walks       map[string]walk `json:"walks,omitempty"`
}

// size is the size of a package without its tests.
type size struct {
	Files int `json:"files"`
	Lines int `json:"lines"`
}

// product reports whether a file is part of the product. The conformance kit is a test.
func product(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	in := slices.Contains([]string{"task", "producer", "consumer", "topics", "cmd", "internal"}, first)
	return in && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "internal/conform/")
}

// helping reports whether a file outside the tests themselves serves only tests.
func helping(path string) bool {
	return strings.HasPrefix(path, "test/") && !strings.HasPrefix(path, "test/conform/") &&
		!strings.HasPrefix(path, "test/counts/") && !strings.HasPrefix(path, "test/demo/")
}

// countSource counts the Go files below root.
func countSource(root string) (counts, error) {
	c := counts{Packages: map[string]size{}}
	var lengths []int
	err := filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err := filepath.Rel(root, at)
		if err != nil {
			return err
		}
		if e.IsDir() {
			if name := e.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := readFile(at, filepath.ToSlash(path))
		if err == nil {
			lengths = append(lengths, c.add(f)...)
		}
		return err
	})
	slices.Sort(lengths)
	if n := len(lengths); n > 0 {
		c.Median, c.P90 = lengths[n/2], lengths[n*9/10]
	}
	return c, err
}

// file is a parsed Go file.
type file struct {
	path string // from the root
	ast  *ast.File
	set  *token.FileSet
}

func readFile(at, path string) (file, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, at, nil, parser.SkipObjectResolution)
	return file{path: path, ast: parsed, set: set}, err
}

func (f file) lines() int { return f.set.File(f.ast.FileStart).LineCount() }

func (f file) linesOf(n ast.Node) int {
	return f.set.Position(n.End()).Line - f.set.Position(n.Pos()).Line + 1
}

// functions returns the functions and methods of a file.
func (f file) functions() (all []*ast.FuncDecl) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			all = append(all, fn)
		}
	}
	return all
}

// add counts a file. It returns the lengths of its functions if it is part of the product.
func (c *counts) add(f file) (lengths []int) {
	lines := f.lines()
	if strings.HasSuffix(f.path, "_test.go") {
		c.Tests += lines
		c.Helpers += f.helperLines()
	} else if helping(f.path) {
		c.Helpers += lines
	}
	if !product(f.path) {
		return nil
	}
	c.Files++
	c.Lines += lines
	dir := filepath.ToSlash(filepath.Dir(f.path))
	c.Packages[dir] = size{c.Packages[dir].Files + 1, c.Packages[dir].Lines + lines}
	if lines > c.Longest {
		c.Longest, c.LongestFile = lines, f.path
	}
	for _, fn := range f.functions() {
		n := f.linesOf(fn)
		lengths = append(lengths, n)
		if n > longFunction {
			c.Long++
		}
	}
	switch dir {
	case "internal/shard":
		c.Exported += f.exported()
		c.Untyped += f.untyped()
	case "internal/luascript", "internal/router":
		c.Untyped += f.untyped()
	}
	return lengths
}

// helperLines returns how many lines of a test file are in functions that aren't tests,
// benchmarks or examples themselves.
func (f file) helperLines() (n int) {
	for _, fn := range f.functions() {
		name := fn.Name.Name
		of := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if fn.Recv != nil || !of("Test") && !of("Benchmark") && !of("Fuzz") && !of("Example") {
			n += f.linesOf(fn)
		}
	}
	return n
}

// exported returns how many names of a file other packages can use: types, functions,
// variables, constants, and the methods of exported types.
func (f file) exported() (n int) {
	count := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type)) {
				count(d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					count(s.Name)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						count(name)
					}
				}
			}
		}
	}
	return n
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// untyped returns how many replies a file reads as x, _ := v.(T), which turns a value of a
// wrong type into a zero.
func (f file) untyped() (n int) {
	ast.Inspect(f.ast, func(node ast.Node) bool {
		a, ok := node.(*ast.AssignStmt)
		if !ok || len(a.Lhs) != 2 || len(a.Rhs) != 1 {
			return true
		}
		blank, isName := a.Lhs[1].(*ast.Ident)
		if _, asserted := a.Rhs[0].(*ast.TypeAssertExpr); asserted && isName && blank.Name == "_" {
			n++
		}
		return true
	})
	return n
}
