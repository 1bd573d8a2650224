package gatehouse_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// The rule about sleeping. A test waits for what it wants to see, or lets virtual time pass in a bubble of
// testing/synctest. A time-out is there only against hanging and is called patience. What runs in bubbles
// alone is found by following who uses whom within a folder.

// entry are the functions that the testing package calls, outside any bubble.
var entry = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example|init$|main$)`)

// A use is one place that names a declaration of the same folder.
type use struct {
	by     string // the declaration it is in
	bubble bool   // it is within a bubble that is made there
}

// A bubbles knows of each declaration of a folder whether it is used in virtual time only.
type bubbles struct {
	uses    map[string][]use  // by name: of a function, type or variable, or "method" after a dot
	methods map[string]string // "Type.method" to "Type"
	runners map[string]bool   // functions that run a function they are given in a bubble
	fields  map[string]bool   // names of fields
	virtual map[string]bool   // by name, methods as "Type.method"
}

// sleepFindings are the real pauses in the tests, and in what is there for tests alone.
func sleepFindings(files []*goFile) []finding {
	folders := map[string][]*goFile{}
	for _, f := range files {
		if f.test || f.localName("testing") != "" || f.folder == "internal/await" {
			folders[f.folder] = append(folders[f.folder], f)
		}
	}
	var found []finding
	for _, inFolder := range folders {
		b := bubblesOf(inFolder)
		for _, f := range inFolder {
			b.eachDecl(f, func(name string, decl ast.Node) {
				if !b.virtual[name] {
					found = append(found, b.pausesIn(f, decl)...)
				}
			})
		}
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// bubblesOf follows who uses whom: a declaration is virtual if all its uses are in a bubble, or in what is
// virtual itself.
func bubblesOf(files []*goFile) *bubbles {
	b := &bubbles{uses: map[string][]use{}, methods: map[string]string{}, runners: map[string]bool{},
		fields: map[string]bool{}, virtual: map[string]bool{}}
	for _, f := range files {
		b.eachDecl(f, func(name string, decl ast.Node) {
			b.noteFields(decl)
			b.virtual[name] = !entry.MatchString(name)
			if function, ok := decl.(*ast.FuncDecl); ok {
				b.runners[name] = b.runsArgument(f, function)
			}
		})
	}
	for _, f := range files {
		b.eachDecl(f, func(name string, decl ast.Node) { b.collect(f, name, decl) })
	}
	for changed := true; changed; {
		changed = false
		for name, virtual := range b.virtual {
			if virtual && !b.stays(name) {
				b.virtual[name], changed = false, true
			}
		}
	}
	return b
}

// noteFields notes the names of the fields of structs.
func (b *bubbles) noteFields(decl ast.Node) {
	ast.Inspect(decl, func(n ast.Node) bool {
		structure, ok := n.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range structure.Fields.List {
			for _, name := range field.Names {
				b.fields[name.Name] = true
			}
		}
		return true
	})
}

// eachDecl visits what a file declares: methods as "Type.method", and each type and variable by itself.
func (b *bubbles) eachDecl(f *goFile, visit func(name string, decl ast.Node)) {
	for _, decl := range f.syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name := decl.Name.Name
			if decl.Recv != nil {
				of := receiver(decl.Recv.List[0].Type)
				name = of + "." + name
				b.methods[name] = of
			}
			visit(name, decl)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				visitSpec(spec, visit)
			}
		}
	}
}

func visitSpec(spec ast.Spec, visit func(name string, decl ast.Node)) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		visit(spec.Name.Name, spec)
	case *ast.ValueSpec:
		visit(spec.Names[0].Name, spec)
	}
}

// runsArgument reports whether a function runs a function it is given in a bubble of its own.
func (b *bubbles) runsArgument(f *goFile, function *ast.FuncDecl) bool {
	given := map[string]bool{}
	for _, field := range function.Type.Params.List {
		if _, ok := field.Type.(*ast.FuncType); ok {
			for _, name := range field.Names {
				given[name.Name] = true
			}
		}
	}
	runs := false
	ast.Inspect(function, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !f.names(call.Fun, "testing/synctest", "Test") {
			return true
		}
		ast.Inspect(call, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			runs = runs || ok && given[name.Name]
			return true
		})
		return false
	})
	return runs
}

// makesBubble reports whether what a call is given runs in virtual time.
func (b *bubbles) makesBubble(f *goFile, call *ast.CallExpr) bool {
	switch of := call.Fun.(type) {
	case *ast.Ident:
		return b.runners[of.Name]
	case *ast.SelectorExpr:
		if f.names(of, "testing/synctest", "Test") {
			return true
		}
		return slices.ContainsFunc(b.methodsNamed(of.Sel.Name), func(m string) bool { return b.runners[m] })
	}
	return false
}

// methodsNamed are the methods of this name, of any type.
func (b *bubbles) methodsNamed(name string) []string {
	var all []string
	for method := range b.methods {
		if strings.HasSuffix(method, "."+name) {
			all = append(all, method)
		}
	}
	return all
}

// collect notes what a declaration uses. The type of a receiver is no use of it.
func (b *bubbles) collect(f *goFile, by string, decl ast.Node) {
	own := map[ast.Node]bool{}
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		own[decl.Name] = true
		if decl.Recv != nil {
			own[decl.Recv] = true
		}
	case *ast.TypeSpec:
		own[decl.Name] = true
	case *ast.ValueSpec:
		own[decl.Names[0]] = true
	}
	ast.Walk(&collector{b: b, f: f, by: by, own: own}, decl)
}

// A collector walks a declaration and knows whether it is within a bubble.
type collector struct {
	b      *bubbles
	f      *goFile
	by     string
	own    map[ast.Node]bool
	bubble bool
}

// Visit is one step of ast.Walk.
func (c *collector) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.CallExpr:
		c.noteMethods(n)
		if c.b.makesBubble(c.f, n) {
			ast.Walk(c, n.Fun)
			inside := *c
			inside.bubble = true
			for _, arg := range n.Args {
				ast.Walk(&inside, arg)
			}
			return nil
		}
	case *ast.SelectorExpr: // its name is that of a field or a method: of these only calls count
		ast.Walk(c, n.X)
		return nil
	case *ast.KeyValueExpr: // the name of a field
		if _, ok := n.Key.(*ast.Ident); !ok {
			ast.Walk(c, n.Key)
		}
		ast.Walk(c, n.Value)
		return nil
	case *ast.Field: // the same
		ast.Walk(c, n.Type)
		return nil
	case *ast.Ident:
		c.note(n.Name)
	}
	if c.own[n] {
		return nil
	}
	return c
}

// noteMethods notes the methods that are called, or given to what is.
func (c *collector) noteMethods(call *ast.CallExpr) {
	inside := *c
	inside.bubble = c.bubble || c.b.makesBubble(c.f, call)
	if of, ok := call.Fun.(*ast.SelectorExpr); ok {
		c.note("." + of.Sel.Name)
	}
	for _, arg := range call.Args {
		if of, ok := arg.(*ast.SelectorExpr); ok && !c.b.fields[of.Sel.Name] {
			inside.note("." + of.Sel.Name)
		}
	}
}

func (c *collector) note(name string) {
	c.b.uses[name] = append(c.b.uses[name], use{c.by, c.bubble})
}

// stays reports whether a declaration is used, and in virtual time only. A method may be called by others
// through an interface: then its type decides.
func (b *bubbles) stays(name string) bool {
	of, isMethod := b.methods[name]
	if !isMethod {
		return b.allVirtual(b.uses[name], name)
	}
	if b.virtual[of] {
		return true
	}
	return b.allVirtual(b.uses["."+strings.TrimPrefix(name, of+".")], name)
}

func (b *bubbles) allVirtual(uses []use, self string) bool {
	used := false
	for _, u := range uses {
		if u.by == self || b.methods[u.by] == self {
			continue
		}
		if !u.bubble && !b.virtual[u.by] {
			return false
		}
		used = true
	}
	return used
}
