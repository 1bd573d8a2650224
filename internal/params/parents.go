package params

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// This file reads the parents of a name, which are charged together with it: KIND/NAME:LIMITS, and a
// semicolon between two of them.

// HasParents reports whether parents are given.
func (f *Values) HasParents() bool { return f.texts[parentsParameter] != nil }

// ErrNoParents is why parents are refused where a request is not put to the gate by itself.
var ErrNoParents = gatehouse.Errorf(gatehouse.CodeInvalid,
	"parents are for an acquire, a peek and a delay of a limiter on its own, want none here")

// checkParents refuses parents that nothing would be charged of.
func (r *formReader) checkParents(kind gatehouse.Kind, op gatehouse.Op) {
	if !r.values.HasParents() || kind.Limiter() &&
		(op == gatehouse.OpAcquire || op == gatehouse.OpPeek || op == gatehouse.OpDelay) {
		return
	}
	// Unlike other parameters they are not left alone: a caller counts on their being charged.
	r.failParameter("parents is for acquire, peek and delay of limiters, want none for %s of a %s", op, kind)
}

// Parents returns the parents of a name; nil if there are none. Their costs are left to the command. The
// error is of CodeInvalid.
func (f *Values) Parents(key gatehouse.Key) ([]gatehouse.Member, error) {
	text := f.texts[parentsParameter]
	if text == nil {
		return nil, nil
	}
	// A long text is not read to its end.
	if n := bytes.Count(text, []byte{';'}) + 1; n > gatehouse.MaxParents {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "parents are %d, want at most %d", n,
			gatehouse.MaxParents)
	}
	var all []gatehouse.Member
	for part := range bytes.SplitSeq(text, []byte{';'}) {
		m, err := readParent(part)
		if err != nil {
			return nil, err
		}
		// The name would be charged twice by one request.
		if m.Key == key {
			return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "parents has %s, want other names than "+
				"that of the request", key)
		}
		for i := range all {
			if all[i].Key == m.Key {
				return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "parents has %s twice, want each once",
					m.Key)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// readParent reads one parent. Its limits mean what they mean in an acquire of its name.
func readParent(text []byte) (m gatehouse.Member, err error) {
	bad := func(want string) error {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "parents has %s, want %s", Quote(text), want)
	}
	// Limits have no colon, so that a name may have some.
	colon := bytes.LastIndexByte(text, ':')
	if colon < 0 {
		return m, bad("KIND/NAME:LIMITS such as gcra/org-7:2000/1m")
	}
	kind, name, ok := bytes.Cut(text[:colon], []byte{'/'})
	m.Key.Kind, _ = gatehouse.ParseKind(strings.ToLower(string(kind)))
	if !ok || !m.Key.Kind.Limiter() {
		return m, bad("the name of a limiter, such as gcra/org-7:2000/1m")
	}
	// Names may have semicolons and colons, which ParentText escapes.
	m.Key.Name, err = url.PathUnescape(string(name))
	if err != nil {
		return m, bad("every % followed by two hexadecimal digits")
	}
	if fault := gatehouse.NameFault(m.Key.Name); fault != "" {
		return m, gatehouse.Errorf(gatehouse.CodeInvalid, "parents has a %s whose name %s", m.Key.Kind, fault)
	}
	// The same reading as that of an acquire, so that limits mean the same here.
	var values Values
	values.TrySet([]byte(names[limitsParameter]), text[colon+1:])
	cmd, r := gatehouse.Command{Op: gatehouse.OpAcquire}, formReader{values: &values}
	r.readNumbers(&cmd, m.Key.Kind)
	r.readLimiter(&cmd, m.Key.Kind)
	m.Rule = cmd.Rule
	if r.err != nil {
		return m, gatehouse.Errorf(gatehouse.CodeInvalid, "parents: %s: %w", m.Key, r.err)
	}
	return m, nil
}

// ParentText returns a key as parents and headers have it: kind/name, where of the name the characters that
// divide, quotes, and what is no visible ASCII are escaped.
func ParentText(key gatehouse.Key) string {
	const digits = "0123456789ABCDEF"
	out := append([]byte(key.Kind.String()), '/')
	for i := range len(key.Name) {
		// Byte by byte: what is not ASCII is escaped as its bytes of UTF-8, as in URLs.
		c := key.Name[i]
		if c <= ' ' || c > '~' || strings.IndexByte(`%:;,"\`, c) >= 0 {
			out = append(out, '%', digits[c>>4], digits[c&15])
			continue
		}
		out = append(out, c)
	}
	return string(out)
}
