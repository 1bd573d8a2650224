package http

import (
	"encoding/json"
	"testing"
)

// readAny reads a value to its end, as deep as it goes. It is for tests: no request may be read so.
func (r *jsonReader) readAny() error {
	switch r.nextForm() {
	case jsonMap:
		return r.readObject("body", func([]byte) error { return r.readAny() })
	case jsonList:
		return r.readArray("body", func(int) error { return r.readAny() })
	}
	_, err := r.readScalar(nil)
	return err
}

// What is read is JSON, and all JSON is read but what is refused on purpose: a name that comes twice in one
// object, half of a surrogate pair, and texts that are no UTF-8.
func FuzzJSONReader(f *testing.F) {
	for _, test := range badGrants {
		f.Add([]byte(test.body))
	}
	for _, text := range []string{
		waitingGrant, `{"a":[1,-0.5e+7,true,false,null,"\u00e4\n"],"b":{"c":[]}}`, `{"a":1E400}`, `{"":""}`,
		`{"a":"\ud83d\ude00"}`, "{\"a\":\"\x7f\"}", `{"a":-0}`, `{"a":0.0}`, `{"a" : [ ] }`, `{"a":{}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := newJSONReader(text)
		if err == nil {
			err = r.readAny()
		}
		if err == nil {
			err = r.endText()
		}
		switch valid := json.Valid(text); {
		case err == nil && !valid:
			t.Errorf("%q is read, want it refused", text)
		case err != nil && valid && !refusedOnPurpose(err.Error()):
			t.Errorf("%q is refused: %v", text, err)
		}
	})
}

// refusedOnPurpose reports whether an error is one about JSON that others take.
func refusedOnPurpose(text string) bool {
	for _, why := range []string{"twice, want it once", "half of a surrogate pair", "is not UTF-8"} {
		if matches(text, "…"+why+"…") {
			return true
		}
	}
	return false
}
