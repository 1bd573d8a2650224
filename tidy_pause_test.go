package gatehouse_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
)

// timers are the functions of package time that make something to wait for.
var timers = []string{"After", "NewTimer", "NewTicker", "AfterFunc", "Tick"}

// patient are the names of what may limit a wait for something else.
var patient = regexp.MustCompile(`(?i)^(.*\.)?\w*patience(\.\w+)?$`)

// pausesIn are the real pauses of one declaration.
func (b *bubbles) pausesIn(f *goFile, decl ast.Node) []finding {
	var found []finding
	report := func(at ast.Node, text string) {
		found = append(found, finding{"sleep", f.path, f.line(at.Pos()), text})
	}
	ending := endingContexts(f, decl)
	besideEvent := map[ast.Node]bool{} // the cases of a select in which an event is waited for, too
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if b.makesBubble(f, n) {
				return false // in there time is virtual
			}
			checkTimer(f, n, report)
		case *ast.SelectStmt:
			event := !onlyTimers(f, n)
			for _, clause := range n.Body.List {
				besideEvent[clause.(*ast.CommClause).Comm] = event
			}
		case *ast.ExprStmt:
			receive, ok := n.X.(*ast.UnaryExpr)
			if ok && receive.Op == token.ARROW && !besideEvent[n] &&
				(isTimer(f, receive.X) || ending(receive.X)) {
				report(n, "waits for nothing but time, want an event")
				return false
			}
		case *ast.SelectorExpr:
			if f.names(n, "time", "Sleep") || f.names(n, "time", "Tick") {
				report(n, fmt.Sprintf("time.%s, want an event, or it in a synctest.Test", n.Sel.Name))
			}
		}
		return true
	})
	return found
}

// checkTimer looks at a call that makes a timer: one that limits a wait is given a patience.
func checkTimer(f *goFile, call *ast.CallExpr, report func(ast.Node, string)) {
	for _, name := range timers {
		if !f.names(call.Fun, "time", name) || name == "Tick" {
			continue
		}
		if name == "NewTicker" || name == "AfterFunc" || !isPatience(call.Args[0]) {
			report(call, fmt.Sprintf("time.%s, want an event, and only a patience against hanging", name))
		}
	}
}

// endingContexts are the contexts that a declaration makes and that end by the clock.
func endingContexts(f *goFile, decl ast.Node) (isDone func(channel ast.Expr) bool) {
	ending := map[string]bool{}
	ast.Inspect(decl, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}
		call, isCall := assign.Rhs[0].(*ast.CallExpr)
		name, isName := assign.Lhs[0].(*ast.Ident)
		if isCall && isName && (f.names(call.Fun, "context", "WithTimeout") ||
			f.names(call.Fun, "context", "WithDeadline")) {
			ending[name.Name] = true
		}
		return true
	})
	return func(channel ast.Expr) bool {
		call, ok := channel.(*ast.CallExpr)
		if !ok {
			return false
		}
		done, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || done.Sel.Name != "Done" {
			return false
		}
		name, ok := done.X.(*ast.Ident)
		return ok && ending[name.Name]
	}
}

// isPatience reports whether a time is called patience, or is a multiple of one that is.
func isPatience(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return patient.MatchString(e.Name)
	case *ast.SelectorExpr:
		return patient.MatchString(e.Sel.Name)
	case *ast.BinaryExpr:
		return e.Op == token.MUL && (isPatience(e.X) || isPatience(e.Y))
	}
	return false
}

// isTimer reports whether a channel is that of a timer, or of a context that ends by itself.
func isTimer(f *goFile, channel ast.Expr) bool {
	switch channel := channel.(type) {
	case *ast.CallExpr:
		return f.names(channel.Fun, "time", "After") || f.names(channel.Fun, "time", "Tick")
	case *ast.SelectorExpr:
		return channel.Sel.Name == "C"
	}
	return false
}

// onlyTimers reports whether nothing but time ends a select.
func onlyTimers(f *goFile, s *ast.SelectStmt) bool {
	for _, clause := range s.Body.List {
		comm, ok := clause.(*ast.CommClause).Comm.(*ast.ExprStmt)
		if !ok {
			return false
		}
		receive, ok := comm.X.(*ast.UnaryExpr)
		if !ok || !isTimer(f, receive.X) {
			return false
		}
	}
	return len(s.Body.List) > 0
}
