package client

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzScanDecision: what the short reader reads is what encoding/json reads.
func FuzzScanDecision(f *testing.F) {
	for _, body := range []string{
		`{"outcome":"granted","granted":true,"limit":5,"remaining":4,"reset_after":60000}`,
		`{"outcome":"refused","granted":false,"limit":1,"remaining":0,"retry_after":-1,"detail":"a \"b\""}`,
		`{"outcome":"granted","granted":true,"key":"k","fence":1795708639859544,"expires_after":60000}`,
		`{"outcome":"granted","granted":true,"value":-9223372036854775808}`, `{}`, `{"outcome":"granted"}x`,
		`{"outcome":"granted","windows":[{"limit":"10/1s"}]}`, `{"delay":1.5}`, `{"delay":01}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var scanned, read decisionJSON
		if !scanDecision(body, &scanned) {
			return
		}
		if err := json.Unmarshal(body, &read); err != nil {
			return // the short reader is not as strict
		}
		if !reflect.DeepEqual(scanned, read) {
			t.Errorf("%s is %+v, want %+v", body, scanned, read)
		}
	})
}
