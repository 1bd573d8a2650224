package bouncer

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/form"
	"github.com/valyala/fasthttp"
)

// A request is what a request line asks for.
type request struct {
	key gatehouse.Key
	cmd gatehouse.Command
	v1  bool // under /v1/, where waiting for an event answers 204

	form    form.Form // of the query
	scratch [96]byte  // for the answer's headers
}

// holds reports whether the request acquires something that is held until it is released or expires.
func (r *request) holds() bool {
	return r.cmd.Op == gatehouse.OpAcquire && form.HasHolders(r.key.Kind)
}

// A problem is a request that is not put to a controller, and how it is answered.
type problem struct {
	status   int
	detail   string
	allow    string // the methods there are, with 405 and OPTIONS
	location string // with 301
}

// read makes the request of a method and a raw path and query. page is set as well when the path is
// none of a controller's.
func (r *request) read(method, path, query []byte) (page string, p *problem) {
	t, p := readTarget(path)
	if p != nil {
		return "", p
	}
	op, p := t.operation(method)
	if p != nil {
		return "", p
	}
	if t.odd {
		moved := withQuery(t.proper(), query)
		if strings.ContainsFunc(moved, unicode.IsControl) {
			return "", bad("request target has a control character, want it percent-encoded")
		}
		return "", &problem{status: fasthttp.StatusMovedPermanently, location: moved}
	}
	r.key, r.cmd, r.v1 = gatehouse.Key{Kind: t.kind}, gatehouse.Command{}, t.v1
	if t.page != "" {
		return t.page, nil
	}
	r.cmd.Op = op
	if p := r.readQuery(query); p != nil {
		return "", p
	}
	name, ok := unescape(t.name, false)
	if !ok {
		return "", badEscape("name", t.name)
	}
	r.key.Name = string(name)
	return "", nil
}

func bad(format string, args ...any) *problem {
	return &problem{status: fasthttp.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

func badEscape(what string, raw []byte) *problem {
	return bad("%s is %s, want every %% followed by two hexadecimal digits", what, form.Quote(raw))
}

// wrongMethod answers a method that a path does not have; OPTIONS it has.
func wrongMethod(method []byte, allow string) *problem {
	if string(method) == fasthttp.MethodOptions {
		return &problem{status: fasthttp.StatusOK, allow: allow}
	}
	return &problem{
		status: fasthttp.StatusMethodNotAllowed, allow: allow,
		detail: "method is " + form.Quote(method) + ", want one of " + allow,
	}
}

// readQuery fills in the command's parameters.
func (r *request) readQuery(query []byte) *problem {
	r.form = form.Form{}
	if p := eachParam(query, func(name, value []byte) error { return r.form.Set(name, value) }); p != nil {
		return p
	}
	if err := r.form.Read(r.key.Kind, &r.cmd); err != nil {
		return bad("%s", err)
	}
	return nil
}

// eachParam decodes one parameter of a query after the other, and sets it. The sentence about a wrong value
// may name its parameter as it is, because set has accepted the name.
func eachParam(query []byte, set func(name, value []byte) error) *problem {
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, []byte{'&'})
		if len(pair) == 0 {
			continue
		}
		rawName, raw, _ := bytes.Cut(pair, []byte{'='})
		name, ok := unescape(rawName, true)
		if !ok {
			return badEscape("name of a parameter", rawName)
		}
		value, ok := unescape(raw, true)
		if !ok {
			value = raw // to be named in a sentence
		}
		if err := set(name, value); err != nil {
			return bad("%s", err)
		}
		if !ok {
			return badEscape(strings.ToLower(string(name)), raw)
		}
	}
	return nil
}

// unescape decodes percent escapes, and in a query also the plus sign. ok is false for an escape that
// is none. What needs no decoding is returned as it is.
func unescape(raw []byte, query bool) (text []byte, ok bool) {
	if bytes.IndexByte(raw, '%') < 0 && (!query || bytes.IndexByte(raw, '+') < 0) {
		return raw, true
	}
	text = make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '%':
			if i+2 >= len(raw) {
				return nil, false
			}
			var err error
			if text, err = hex.AppendDecode(text, raw[i+1:i+3]); err != nil {
				return nil, false
			}
			i += 2
		case c == '+' && query:
			text = append(text, ' ')
		default:
			text = append(text, c)
		}
	}
	return text, true
}
