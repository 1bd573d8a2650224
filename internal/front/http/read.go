package http

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// An httpRequest is the command that a request asks for. It is used again for other requests.
type httpRequest struct {
	Key     gatehouse.Key
	Command gatehouse.Command
	v1      bool // under /v1/, where waiting for an event answers 204

	answerOptions

	form    params.Values // of the query and the body
	scratch [96]byte      // for the answer's headers
}

// acquiresHold reports whether the request acquires a hold, which lasts until it is released or expires.
func (r *httpRequest) acquiresHold() bool {
	return r.Command.Op == gatehouse.OpAcquire && params.HasHolders(r.Key.Kind)
}

// A rejection is the answer to a request that is put to no controller.
type rejection struct {
	status   int
	detail   string
	allow    string // the methods there are, with 405 and OPTIONS
	location string // with 301 and 308
	accept   string // the type of body that is read, with 415
}

// readRequest reads a method, a raw path and a raw query. If the path is a page, page is set and nothing else
// is read.
func (r *httpRequest) readRequest(method, path, query []byte) (page string, p *rejection) {
	page, p = r.readPath(method, path, query)
	if p != nil || page != "" {
		return page, p
	}
	return "", r.readParams(query, nil)
}

// readPath reads all of a request except its parameters. page is as in readRequest.
func (r *httpRequest) readPath(method, path, query []byte) (page string, p *rejection) {
	// The metrics of a rejected request name these two. They must not be left over from the request before.
	r.Key.Kind, r.Command.Op = 0, 0
	t, p := readTarget(path)
	if p != nil {
		return "", p
	}
	op, p := t.methodOperation(method)
	if p != nil {
		return "", p
	}
	if t.notCanonical {
		return "", redirectTo(method, withQuery(t.canonicalPath(), query))
	}
	r.Key = gatehouse.Key{Kind: t.kind}
	r.Command = gatehouse.Command{Op: op}
	r.v1 = t.v1
	r.answerOptions = answerOptions{}
	if t.page != "" {
		return t.page, nil
	}
	name, ok := decodePercent(t.name, false)
	if !ok {
		return "", badEscape("name", t.name)
	}
	r.Key.Name = string(name)
	return "", nil
}

func badRequest(format string, args ...any) *rejection {
	return &rejection{status: fasthttp.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

func badEscape(what string, raw []byte) *rejection {
	return badRequest("%s is %s, want every %% followed by two hexadecimal digits", what, params.Quote(raw))
}

// wrongMethod rejects a method that a path does not have. To OPTIONS, which every path has, it is the answer.
func wrongMethod(method []byte, allow string) *rejection {
	if string(method) == fasthttp.MethodOptions {
		return &rejection{status: fasthttp.StatusOK, allow: allow}
	}
	return &rejection{
		status: fasthttp.StatusMethodNotAllowed, allow: allow,
		detail: "method is " + params.Quote(method) + ", want one of " + allow,
	}
}

// readParams reads the parameters of the query, and then those of a form in the body: the form counts where
// both have one.
func (r *httpRequest) readParams(query, body []byte) *rejection {
	r.form = params.Values{}
	for _, text := range [...][]byte{query, body} {
		if p := eachParam(text, r.setParam); p != nil {
			return p
		}
	}
	if err := r.form.Read(r.Key.Kind, &r.Command); err != nil {
		return badRequest("%s", err)
	}
	return nil
}

// setParam notes one parameter: the command's, or one that says how the request is to be answered.
func (r *httpRequest) setParam(name, value []byte) error {
	if known, err := r.setOption(name, value); known {
		return err
	}
	if !r.form.TrySet(name, value) {
		return params.Unknown(name, optionNames...)
	}
	return nil
}

// eachParam decodes the parameters of a query one after the other, and calls set for each. It stops at the
// first error.
func eachParam(query []byte, set func(name, value []byte) error) *rejection {
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, []byte{'&'})
		if len(pair) == 0 {
			continue
		}
		rawName, raw, _ := bytes.Cut(pair, []byte{'='})
		name, ok := decodePercent(rawName, true)
		if !ok {
			return badEscape("name of a parameter", rawName)
		}
		value, ok := decodePercent(raw, true)
		if !ok {
			value = raw
		}
		// set comes before the complaint about the escape: that names the parameter as it was sent, and only
		// a name that set has accepted is known to be short and harmless.
		if err := set(name, value); err != nil {
			return badRequest("%s", err)
		}
		if !ok {
			return badEscape(strings.ToLower(string(name)), raw)
		}
	}
	return nil
}

// decodePercent decodes percent escapes, and in a query also the plus sign. ok is false if an escape is
// malformed. If there is nothing to decode, text is raw itself.
func decodePercent(raw []byte, query bool) (text []byte, ok bool) {
	if bytes.IndexByte(raw, '%') < 0 && (!query || bytes.IndexByte(raw, '+') < 0) {
		return raw, true
	}
	// net/url would take and return strings, an allocation for each parameter.
	text = make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '%':
			if i+2 >= len(raw) {
				return nil, false
			}
			var err error
			text, err = hex.AppendDecode(text, raw[i+1:i+3])
			if err != nil {
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
