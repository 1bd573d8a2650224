package http

import (
	"bytes"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A requestTarget is a path taken apart: [/v1]/<kind>[/<name>[/<operation>]], or a page.
type requestTarget struct {
	v1           bool
	kind         gatehouse.Kind
	name         []byte // still encoded; nil for a list
	op           gatehouse.Op
	page         string // a page's path, or pageList
	notCanonical bool   // the path is not in the proper form: letter case, or a slash at the end
}

// listPage is the page of a kind's names.
const listPage = "list"

// fixedPages are the paths that belong to no controller.
var fixedPages = map[string]bool{
	"/": true, "/healthz": true, "/readyz": true, "/.well-known/ready": true, "/metrics": true,
	"/docs": true,
}

// docsPath is what the documentation's pages and assets begin with.
const docsPath = "/docs/"

// assetsPath is what the scripts and styles of the page at / begin with.
const assetsPath = "/page/"

func notFound(path []byte) *rejection {
	return noSuchPath("path is %s, want /v1/<kind>/<name>/<operation>: see /docs", params.Quote(path))
}

func noSuchPath(format string, args ...any) *rejection {
	return reject(fasthttp.StatusNotFound, format, args...)
}

// unknownKind rejects a path with an unknown kind.
func unknownKind(part []byte) *rejection {
	if bytes.EqualFold(part, []byte("grant")) || bytes.EqualFold(part, []byte("grants")) {
		return noSuchPath("kind %s is unknown here, want POST %s, GET %[2]s/<id>, or POST "+
			"%[2]s/<id>/<operation> "+
			"with renew, topup, settle or release", params.Quote(part), grantsPath)
	}
	var names []string
	for kind := gatehouse.Kind(1); kind < gatehouse.Grant; kind++ {
		names = append(names, kind.String())
	}
	return noSuchPath("kind %s is unknown, want one of %s", params.Quote(part), strings.Join(names, " "))
}

// unknownOperation rejects a path with an operation that its kind does not have.
func unknownOperation(kind gatehouse.Kind, part []byte) *rejection {
	return noSuchPath("operation %s is unknown, want one of %s for a %s", params.Quote(part),
		strings.Join(opNames(kind, gatehouse.Kind.Has), " "), kind)
}

// readTarget takes a raw path apart. The name in it stays encoded.
func readTarget(path []byte) (t requestTarget, p *rejection) {
	if string(path) == cyclesPath || string(path) == topPath || string(path) == whoamiPath ||
		bytes.HasPrefix(path, []byte(decisionsPath)) {
		return requestTarget{page: string(path)}, nil
	}
	if !bytes.HasPrefix(path, []byte("/v1/")) &&
		(fixedPages[string(path)] || bytes.HasPrefix(path, []byte(docsPath)) ||
			bytes.HasPrefix(path, []byte(assetsPath))) {
		return requestTarget{page: string(path)}, nil
	}
	if len(path) == 0 || path[0] != '/' {
		return requestTarget{}, notFound(path)
	}
	// The array keeps this free of allocations. The longest path is /v1/kind/name/operation/, which has five
	// parts; one more leaves it to readParts to say which part is wrong.
	var parts [6][]byte
	n := 0
	rest := path[1:]
	for more := true; more; n++ {
		if n == len(parts) {
			return requestTarget{}, tooManyParts(path)
		}
		parts[n], rest, more = bytes.Cut(rest, []byte{'/'})
	}
	slash := n > 1 && len(parts[n-1]) == 0
	if slash {
		n--
	}
	if p := t.readParts(path, parts[:n]); p != nil {
		return requestTarget{}, p
	}
	t.notCanonical = t.notCanonical || slash
	return t, nil
}

func tooManyParts(path []byte) *rejection {
	return noSuchPath("path %s has more than kind, name and operation, want a slash in a name as %%2F",
		params.Quote(path))
}

// readParts reads the parts of a path between its slashes. The fixed ones may be in any letter case.
func (t *requestTarget) readParts(path []byte, parts [][]byte) *rejection {
	if bytes.EqualFold(parts[0], []byte("v1")) {
		t.v1 = true
		t.notCanonical = string(parts[0]) != "v1"
		parts = parts[1:]
	}
	if len(parts) == 0 || len(parts[0]) == 0 {
		return notFound(path)
	}
	// The exact spelling is tried first: lowering the case of every path would allocate.
	var ok bool
	t.kind, ok = gatehouse.ParseKind(string(parts[0]))
	if !ok {
		t.notCanonical = true
		t.kind, ok = gatehouse.ParseKind(strings.ToLower(string(parts[0])))
	}
	ok = ok && t.kind != gatehouse.Grant // which has paths of its own: see readSeveral
	switch {
	case !ok && !t.v1 && len(parts) == 1: // such as /favicon.ico, which was not meant for a kind
		return notFound(path)
	case !ok:
		return unknownKind(parts[0])
	case len(parts) > 3:
		return tooManyParts(path)
	case len(parts) == 1:
		t.page = listPage
		return nil
	}
	t.name = parts[1]
	if len(parts) == 2 {
		return nil
	}
	t.op, ok = gatehouse.ParseOp(string(parts[2]))
	if !ok {
		t.notCanonical = true
		t.op, ok = gatehouse.ParseOp(strings.ToLower(string(parts[2])))
	}
	if !ok || t.op == gatehouse.OpDelete || t.op == gatehouse.OpUndo || !t.kind.Has(t.op) ||
		!t.v1 && isManaged(t.op) {
		return unknownOperation(t.kind, parts[2])
	}
	return nil
}

// canonicalPath returns the form of the path to which all others are redirected.
func (t *requestTarget) canonicalPath() string {
	proper := "/" + t.kind.String()
	if t.v1 {
		proper = "/v1" + proper
	}
	if t.name != nil {
		proper += "/" + string(t.name)
	}
	if t.op != 0 {
		proper += "/" + t.op.String()
	}
	return proper
}

func withQuery(path string, query []byte) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + string(query)
}

// methodOperation returns the operation of a method at the target, or rejects the method.
func (t *requestTarget) methodOperation(method []byte) (gatehouse.Op, *rejection) {
	// Without /v1 the paths are bouncer's, which knows no POST (docs/decisions/0037). A name without an
	// operation, or a list, can be deleted; a page can only be read.
	switch {
	case t.page == "" && t.op == 0:
		if string(method) == fasthttp.MethodDelete {
			return gatehouse.OpDelete, nil
		}
		return 0, wrongMethod(method, "DELETE, OPTIONS")
	case isManaged(t.op):
		if string(method) == fasthttp.MethodPost {
			return t.op, nil
		}
		return 0, wrongMethod(method, "POST, OPTIONS")
	case string(method) == fasthttp.MethodGet:
		return t.op, nil
	case t.page == listPage && t.v1 && string(method) == fasthttp.MethodDelete:
		return gatehouse.OpDelete, nil
	case t.page == listPage && t.v1:
		return 0, wrongMethod(method, "GET, DELETE, OPTIONS")
	case t.page == listPage || t.page == "" && !t.v1:
		return 0, wrongMethod(method, "GET, OPTIONS")
	case t.page == "" && string(method) == fasthttp.MethodPost:
		return t.op, nil
	case t.page == "":
		return 0, wrongMethod(method, "GET, POST, OPTIONS")
	case string(method) == fasthttp.MethodHead:
		return t.op, nil
	default:
		return 0, wrongMethod(method, "GET, HEAD, OPTIONS")
	}
}
