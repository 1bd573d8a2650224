package bouncer

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gatehousehq/gatehouse"
	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
)

// A request is what a request line asks for.
type request struct {
	key gatehouse.Key
	cmd gatehouse.Command
	v1  bool // under /v1/, where waiting for an event answers 204

	values  values   // of the query
	scratch [96]byte // for the answer's headers
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
	return bad("%s is %s, want every %% followed by two hexadecimal digits", what, quote(raw))
}

// wrongMethod answers a method that a path does not have; OPTIONS it has.
func wrongMethod(method []byte, allow string) *problem {
	if string(method) == fasthttp.MethodOptions {
		return &problem{status: fasthttp.StatusOK, allow: allow}
	}
	return &problem{
		status: fasthttp.StatusMethodNotAllowed, allow: allow,
		detail: "method is " + quote(method) + ", want one of " + allow,
	}
}

// The parameters. Every call knows and checks all of them; those it has no use for do no harm.
const (
	paramSize = iota
	paramCost
	paramInterval
	paramExpires
	paramMaxWait
	paramKey
	paramMessage
	paramAmount
	paramValue
	paramID
	numParams
)

var paramNames = [numParams]string{
	"size", "cost", "interval", "expires", "maxwait", "key", "message", "amount", "value", "id",
}

// values holds what a query gives for each parameter, still encoded; nil is absent. The last of a
// repeated parameter counts.
type values [numParams][]byte

func (v *values) set(name, value []byte) *problem {
	for i, known := range paramNames {
		if len(name) == len(known) && bytes.EqualFold(name, []byte(known)) {
			v[i] = value
			return nil
		}
	}
	return bad("parameter %s is unknown, want one of %s", quote(name), strings.Join(paramNames[:], " "))
}

// readQuery fills in the command's parameters.
func (r *request) readQuery(query []byte) *problem {
	v := &r.values
	*v = values{}
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, []byte{'&'})
		if len(pair) == 0 {
			continue
		}
		name, value, _ := bytes.Cut(pair, []byte{'='})
		if value == nil {
			value = []byte{}
		}
		if p := v.set(name, value); p != nil {
			return p
		}
	}
	if p := r.readNumbers(v); p != nil {
		return p
	}
	return r.readTexts(v)
}

const maxMillis = int64(gatehouse.MaxDuration / time.Millisecond)

// readNumbers reads the sizes and times, and puts the defaults in where there is none.
func (r *request) readNumbers(v *values) *problem {
	size := int64(gatehouse.DefaultSize)
	if r.key.Kind == gatehouse.Barrier {
		size = gatehouse.DefaultBarrierSize
	}
	expires := gatehouse.DefaultExpires
	if r.cmd.Op == gatehouse.OpRenew {
		expires = gatehouse.AsAcquired
	}
	n := numbers{values: v}
	r.cmd.Size = n.read(paramSize, number{size, 0, gatehouse.MaxSize})
	r.cmd.Cost = n.read(paramCost, number{1, 1, gatehouse.MaxSize})
	r.cmd.Interval = n.millis(paramInterval, gatehouse.DefaultInterval, 1)
	r.cmd.Expires = n.millis(paramExpires, expires, 0)
	r.cmd.MaxWait = n.millis(paramMaxWait, gatehouse.Forever, -1)
	amount := n.read(paramAmount, number{1, minInt64, maxInt64})
	value := n.read(paramValue, number{0, minInt64, maxInt64})
	if r.cmd.Amount = amount; r.cmd.Op == gatehouse.OpReset {
		r.cmd.Amount = value
	}
	return n.problem
}

const (
	minInt64 = -1 << 63
	maxInt64 = 1<<63 - 1
)

// numbers reads one number after the other and remembers the first problem.
type numbers struct {
	values  *values
	problem *problem
}

// A number is what a parameter is when it is absent, and its range.
type number struct{ absent, least, most int64 }

func (n *numbers) read(param int, want number) int64 {
	raw := n.values[param]
	if raw == nil || len(raw) == 0 && param == paramSize {
		return want.absent
	}
	text, ok := unescape(raw, true)
	if ok {
		// A leading plus sign is accepted, as bouncer's times and amounts accept it.
		if i, err := strconv.ParseInt(string(text), 10, 64); err == nil &&
			i >= want.least && i <= want.most && signed(text[0], param) {
			return i
		}
	}
	if n.problem == nil {
		n.problem = bad("%s is %s, want a whole number from %d to %d",
			paramNames[param], quote(raw), want.least, want.most)
	}
	return want.absent
}

// signed reports whether a parameter may begin as it does: a size or cost has no sign at all, and
// only what may be negative has a minus.
func signed(first byte, param int) bool {
	switch param {
	case paramSize, paramCost:
		return first != '+' && first != '-'
	case paramInterval, paramExpires:
		return first != '-'
	}
	return true
}

// millis reads a time in milliseconds; -1 stays what it is.
func (n *numbers) millis(param int, absent time.Duration, least int64) time.Duration {
	if n.values[param] == nil {
		return absent
	}
	ms := n.read(param, number{0, least, maxMillis})
	if ms < 0 {
		return gatehouse.Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// readTexts reads the key and the message.
func (r *request) readTexts(v *values) *problem {
	for _, param := range [...]int{paramKey, paramMessage, paramID} {
		raw := v[param]
		if raw == nil {
			continue
		}
		text, ok := unescape(raw, true)
		if !ok {
			return badEscape(paramNames[param], raw)
		}
		most := gatehouse.MaxMessage
		switch param {
		case paramKey:
			most = gatehouse.MaxHolder
			if r.hasHolders() {
				r.cmd.Holder = string(text)
			}
		case paramMessage:
			r.cmd.Message = string(text)
		}
		if len(text) > most {
			return bad("%s has %d bytes, want at most %d", paramNames[param], len(text), most)
		}
	}
	return r.needKey()
}

func (r *request) hasHolders() bool {
	return r.key.Kind == gatehouse.Semaphore || r.key.Kind == gatehouse.Lock
}

// needKey makes a key for an acquire that has none, and refuses a release or renew without.
func (r *request) needKey() *problem {
	if !r.hasHolders() || r.cmd.Holder != "" {
		return nil
	}
	switch r.cmd.Op {
	case gatehouse.OpAcquire:
		r.cmd.Holder = uuid.NewString()
	case gatehouse.OpRelease, gatehouse.OpRenew:
		return bad("key is missing, want the key that acquire answered with")
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
			if i+2 >= len(raw) || unhex(raw[i+1]) < 0 || unhex(raw[i+2]) < 0 {
				return nil, false
			}
			text = append(text, byte(unhex(raw[i+1])<<4|unhex(raw[i+2])))
			i += 2
		case c == '+' && query:
			text = append(text, ' ')
		default:
			text = append(text, c)
		}
	}
	return text, true
}

// unhex returns the value of a hexadecimal digit, -1 for anything else.
func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
