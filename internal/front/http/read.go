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

	stream bool // its place is told as a stream of events, and then its outcome

	parents []gatehouse.Member // which are charged together with the name

	answerOptions

	form params.Values // of the query and the body
}

// readPath reads all of a request except its parameters. If the path is a page, page is set and nothing else
// is read.
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
	r.Key.Kind = t.kind
	r.Command = gatehouse.Command{Op: op}
	r.v1 = t.v1
	r.answerOptions = answerOptions{}
	if t.page != "" {
		r.Key.Name = ""
		return t.page, nil
	}
	name, ok := decodePercent(t.name, false)
	if !ok {
		return "", badEscape("name", t.name)
	}
	// Many requests have the name of the one before, which need not be copied again then.
	if r.Key.Name != string(name) {
		r.Key.Name = string(name)
	}
	return "", nil
}

func badRequest(format string, args ...any) *rejection {
	return reject(fasthttp.StatusBadRequest, format, args...)
}

func reject(status int, format string, args ...any) *rejection {
	return &rejection{status: status, detail: fmt.Sprintf(format, args...)}
}

func badEscape(what string, raw []byte) *rejection {
	return badRequest("%s is %s, want every %% followed by two hexadecimal digits", what, params.Quote(raw))
}

// wrongMethod rejects a method that a path does not have. To OPTIONS, which every path has, it is the answer.
func wrongMethod(method []byte, allow string) *rejection {
	if string(method) == fasthttp.MethodOptions {
		return &rejection{status: fasthttp.StatusOK, allow: allow}
	}
	p := reject(fasthttp.StatusMethodNotAllowed, "method is %s, want one of %s", params.Quote(method), allow)
	p.allow = allow
	return p
}

// readParams reads the parameters of the query, and then those of a form in the body: the form counts where
// both have one.
func (r *httpRequest) readParams(query, body []byte) *rejection {
	r.form.Reset()
	for _, text := range [...][]byte{query, body} {
		if p := eachParam(text, r.setParam); p != nil {
			return p
		}
	}
	err := r.form.Read(r.Key.Kind, &r.Command)
	if err == nil {
		r.parents, err = r.form.Parents(r.Key)
	}
	if err != nil {
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

// readOptions reads the parameters of a request that has no command into texts, by their names. names are
// those for the error. id is bouncer's name for what a client logs.
func readOptions(ctx *fasthttp.RequestCtx, texts map[string]*string, names string) *rejection {
	_, query := splitURI(ctx.Request.Header.RequestURI())
	return eachParam(query, func(name, value []byte) error {
		// Names may be in any letter case, as those of commands.
		known := strings.ToLower(string(name))
		text := texts[known]
		switch {
		case text != nil:
			*text = string(value)
		case known != "id":
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"parameter %s is unknown, want one of %s id", params.Quote(name), names)
		}
		return nil
	})
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

// The answerOptions say how a request wants to be answered. They do not change what is done.
type answerOptions struct {
	refusalStatus int16 // the status of a refusal; 0 means the server's default
	details       bool  // every decision is answered with 200 and a JSON object
}

// optionNames are the parameters of answerOptions.
var optionNames = []string{"refusal", "details"}

// setOption sets an option by its name, in any letter case. known is false for every other parameter.
func (w *answerOptions) setOption(name, value []byte) (known bool, err error) {
	switch {
	case bytes.EqualFold(name, []byte("refusal")):
		w.refusalStatus, err = parseRefusal(value)
		return true, err
	case bytes.EqualFold(name, []byte("details")):
		w.details = string(value) == "true"
		if !w.details && string(value) != "false" {
			err = gatehouse.Errorf(gatehouse.CodeInvalid, "details is %s, want true or false",
				params.Quote(value))
		}
		return true, err
	}
	return false, nil
}

func parseRefusal(value []byte) (status int16, err error) {
	switch string(value) {
	case "408":
		return fasthttp.StatusRequestTimeout, nil
	case "429":
		return fasthttp.StatusTooManyRequests, nil
	}
	return 0, gatehouse.Errorf(gatehouse.CodeInvalid, "refusal is %s, want 408 or 429", params.Quote(value))
}

// wantsDetails reports whether there is details=true among parameters of which one is wrong. The sentence
// about that one then comes in the form that the client reads.
func wantsDetails(query, body []byte) bool {
	// Errors are ignored: readParams has found the first one, and is about to answer with it.
	var w answerOptions
	for _, text := range [...][]byte{query, body} {
		_ = eachParam(text, func(name, value []byte) error {
			_, _ = w.setOption(name, value)
			return nil
		})
	}
	return w.details
}
