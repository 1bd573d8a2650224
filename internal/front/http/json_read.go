package http

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// A jsonReader takes a JSON text apart in one pass. It is stricter than encoding/json and says where the
// fault is: a name that comes twice is one, and so is anything behind the value. It goes as deep as its
// caller does and no deeper, so that no text can nest.
type jsonReader struct {
	text []byte
	at   int
}

// The types of JSON values, by the bytes that they begin with; a number begins with several.
const (
	jsonText   = '"'
	jsonNumber = '0'
	jsonBool   = 't'
	jsonNull   = 'n'
	jsonList   = '['
	jsonMap    = '{'
)

// jsonTypeNames are the types as sentences have them.
var jsonTypeNames = map[byte]string{
	jsonText: "a text", jsonNumber: "a number", jsonBool: "true or false", jsonNull: "null",
	jsonList: "an array", jsonMap: "an object",
}

// A jsonScalar is a text, a number, true, false or null. A text is without its quotes and escapes, and may
// lie in the text that is read.
type jsonScalar struct {
	form byte
	text []byte
}

// newJSONReader returns a reader of a text that is to be one JSON object.
func newJSONReader(text []byte) (r jsonReader, err error) {
	// Bad bytes would be replaced when an answer names them, and two names could become the same.
	if !utf8.Valid(text) {
		return r, gatehouse.Errorf(gatehouse.CodeInvalid, "body is not UTF-8, want a JSON object")
	}
	r.text = text
	r.skipBlanks()
	if r.at == len(text) {
		return r, gatehouse.Errorf(gatehouse.CodeInvalid, "body is empty, want a JSON object")
	}
	return r, nil
}

// endText returns an error if anything but blanks is left.
func (r *jsonReader) endText() error {
	r.skipBlanks()
	if r.at < len(r.text) {
		return r.fault("the end of the body behind the object")
	}
	return nil
}

// fault is the error when what is wanted is not there.
func (r *jsonReader) fault(want string) error {
	if r.at >= len(r.text) {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "body is no JSON: it ends at byte %d, want %s",
			len(r.text), want)
	}
	_, size := utf8.DecodeRune(r.text[r.at:])
	return gatehouse.Errorf(gatehouse.CodeInvalid, "body is no JSON: byte %d is %s, want %s",
		r.at, params.Quote(r.text[r.at:r.at+size]), want)
}

func (r *jsonReader) skipBlanks() {
	for r.at < len(r.text) && isBlank(r.text[r.at]) {
		r.at++
	}
}

// isBlank reports whether a byte may stand between two others that mean something.
func isBlank(c byte) bool { return c <= ' ' && (c == ' ' || c == '\t' || c == '\r' || c == '\n') }

// takeByte goes beyond a byte if it is the next one behind blanks.
func (r *jsonReader) takeByte(c byte) bool {
	r.skipBlanks()
	if r.at == len(r.text) || r.text[r.at] != c {
		return false
	}
	r.at++
	return true
}

// nextForm returns the type of the next value, 0 if there is none.
func (r *jsonReader) nextForm() byte {
	r.skipBlanks()
	if r.at == len(r.text) {
		return 0
	}
	switch c := r.text[r.at]; {
	case c == '-' || c >= '0' && c <= '9':
		return jsonNumber
	case c == 't' || c == 'f':
		return jsonBool
	case c == jsonText || c == jsonNull || c == jsonList || c == jsonMap:
		return c
	}
	return 0
}

// wantForm returns an error if the next value has another type. what is its name, such as "want".
func (r *jsonReader) wantForm(what string, form byte) error {
	next := r.nextForm()
	switch next {
	case form:
		return nil
	case 0:
		return r.fault("a value")
	}
	return gatehouse.Errorf(gatehouse.CodeInvalid, "%s is %s, want %s", what, jsonTypeNames[next],
		jsonTypeNames[form])
}

// readObject calls do for each name of an object, which must read the value. what is the object's own name.
func (r *jsonReader) readObject(what string, do func(name []byte) error) error {
	if err := r.wantForm(what, jsonMap); err != nil {
		return err
	}
	r.at++
	var room [8][]byte // most have fewer names
	seen := room[:0]
	for more := !r.takeByte('}'); more; more = !r.takeByte('}') {
		if len(seen) > 0 && !r.takeByte(',') {
			return r.fault("a comma, or the end of the object")
		}
		r.skipBlanks()
		if r.at == len(r.text) || r.text[r.at] != jsonText {
			return r.fault("a name in quotes")
		}
		name, err := r.readText()
		if err != nil {
			return err
		}
		// Readers differ in which of two counts, so that a proxy could have seen the other one.
		for _, other := range seen {
			if bytes.EqualFold(name, other) {
				return gatehouse.Errorf(gatehouse.CodeInvalid, "%s has %s twice, want it once",
					what, params.Quote(name))
			}
		}
		seen = append(seen, name)
		if !r.takeByte(':') {
			return r.fault("a colon")
		}
		if err := do(name); err != nil {
			return err
		}
	}
	return nil
}

// readArray calls do for each value of an array, which must read it.
func (r *jsonReader) readArray(what string, do func(i int) error) error {
	if err := r.wantForm(what, jsonList); err != nil {
		return err
	}
	r.at++
	for i := 0; !r.takeByte(']'); i++ {
		if i > 0 && !r.takeByte(',') {
			return r.fault("a comma, or the end of the array")
		}
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// readScalar reads a value that is neither an array nor an object. what is its name.
func (r *jsonReader) readScalar(what []byte) (v jsonScalar, err error) {
	v.form = r.nextForm()
	switch v.form {
	case jsonText:
		v.text, err = r.readText()
	case jsonNumber:
		v.text, err = r.readNumber()
	case jsonBool, jsonNull:
		v.text, err = r.readWord()
	case jsonList, jsonMap:
		err = gatehouse.Errorf(gatehouse.CodeInvalid, "%s is %s, want a single value",
			params.Quote(what), jsonTypeNames[v.form])
	default:
		err = r.fault("a value")
	}
	return v, err
}

// readWord reads true, false or null.
func (r *jsonReader) readWord() ([]byte, error) {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(r.text[r.at:], []byte(word)) {
			r.at += len(word)
			return []byte(word), nil
		}
	}
	return nil, r.fault("a value")
}

// readNumber reads a number as it is written.
func (r *jsonReader) readNumber() ([]byte, error) {
	from := r.at
	// Most are a few digits, and then something that ends a number.
	if r.text[from] != '0' && r.takeDigits() && r.endsNumber() {
		return r.text[from:r.at], nil
	}
	r.at = from
	r.takeDigit("-")
	// A zero in front would make some readers take it for octal.
	if !r.takeDigit("0") && !r.takeDigits() {
		return nil, r.fault("a digit")
	}
	if r.takeDigit(".") && !r.takeDigits() {
		return nil, r.fault("a digit")
	}
	if r.takeDigit("eE") {
		r.takeDigit("+-")
		if !r.takeDigits() {
			return nil, r.fault("a digit")
		}
	}
	if !r.endsNumber() {
		return nil, r.fault("the end of a number")
	}
	return r.text[from:r.at], nil
}

// endsNumber reports whether what comes next may stand behind a number.
func (r *jsonReader) endsNumber() bool {
	if r.at == len(r.text) {
		return true
	}
	c := r.text[r.at]
	return c == ',' || c == ']' || c == '}' || isBlank(c)
}

// takeDigit goes beyond the next byte if it is one of these.
func (r *jsonReader) takeDigit(choice string) bool {
	if r.at == len(r.text) || strings.IndexByte(choice, r.text[r.at]) < 0 {
		return false
	}
	r.at++
	return true
}

// takeDigits goes beyond digits, and reports whether there is one.
func (r *jsonReader) takeDigits() bool {
	n := 0
	for rest := r.text[r.at:]; n < len(rest) && rest[n] >= '0' && rest[n] <= '9'; {
		n++
	}
	r.at += n
	return n > 0
}

// readText reads a text. Without escapes it lies in the body.
func (r *jsonReader) readText() ([]byte, error) {
	rest := r.text[r.at+1:] // behind the quote
	end := 0
	for end < len(rest) && rest[end] != '"' && rest[end] != '\\' && rest[end] >= ' ' {
		end++
	}
	if end < len(rest) && rest[end] == '"' {
		r.at += end + 2
		return rest[:end], nil
	}
	return r.readEscapedText()
}

// readEscapedText reads a text that has an escape or a fault in it.
func (r *jsonReader) readEscapedText() ([]byte, error) {
	from := r.at
	for r.at++; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			return unescapeText(r.text[from:r.at])
		case c == '\\':
			r.at++ // what is escaped does not end the text
		case c < ' ':
			return nil, r.fault("control characters as escapes")
		}
	}
	r.at = len(r.text)
	return nil, r.fault("the end of a text")
}

// unescapeText returns a text with its quotes and escapes as it is meant.
func unescapeText(quoted []byte) ([]byte, error) {
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "body is no JSON: the text %s has a bad escape",
			params.Quote(quoted))
	}
	// Half of a surrogate pair becomes this character, and two names could become the same.
	if bytes.ContainsRune([]byte(text), utf8.RuneError) && !bytes.ContainsRune(quoted, utf8.RuneError) {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
			"body is no JSON: the text %s has half of a surrogate pair", params.Quote(quoted))
	}
	return []byte(text), nil
}

// parameterForm returns the form that the value of a parameter has; an interval may also be a text.
func parameterForm(name []byte) byte {
	switch string(name) {
	case "id", "key", "message", "zone", "mode", "limits", "fit", "overrun", "on-expiry", "op", "owner",
		"host", "purpose", "reason", "after", "parents":
		return jsonText
	case "extend", "now":
		return jsonBool
	}
	return jsonNumber
}

// checkForm returns an error if the value of a parameter has the wrong type.
func (v *jsonScalar) checkForm(name []byte) error {
	if slices.ContainsFunc(name, func(c byte) bool { return c >= 'A' && c <= 'Z' }) {
		name = bytes.ToLower(name)
	}
	want := parameterForm(name)
	switch {
	case v.form == want:
		return nil
	case v.form == jsonText && string(name) == "interval":
		// A calendar window. Digits are as wrong here as in any other text for a number.
		if len(v.text) > 0 && v.text[0] > '9' {
			return nil
		}
	}
	return gatehouse.Errorf(gatehouse.CodeInvalid, "%s is %s %s, want %s", name,
		jsonTypeNames[v.form], params.Quote(v.text), jsonTypeNames[want])
}
