package e2e

import (
	"strings"
	"testing"
)

// Rows of the table of differences from bouncer that no other test looks at.
func TestDifferencesFromBouncer(t *testing.T) {
	t.Parallel()
	s := shared()
	name := fresh(t)
	long := strings.Repeat("n", 513)
	s.want(t, "/v1/counter/"+name+"/count", "200 1")
	for request, want := range map[string]string{
		"/v1/counter/" + name + "/value?verbose=1":                        "400 parameter …",
		"/v1/counter/" + name + "/stats?verbose=1":                        "400 parameter …",
		"DELETE /v1/counter/" + name + "?verbose=1":                       "400 parameter …",
		"/v1/counter/" + long + "/count":                                  "400 …512…",
		"/v1/counter/" + long[1:] + "/count":                              "200",
		"/v1/counter/" + name + "/value?id=" + strings.Repeat("i", 8<<10): "431",
		"/v1/semaphore/" + name + "/acquire?key=a&size=1000000000000000":  "400 size …",
		"/v1/semaphore/" + name + "/acquire?key=a&size=999999999999999":   "200 a",
		"/docs/doc.json": `200 …"openapi": "3.0.3",…`, "/docs/index.html": "302", "/docs/openapi.yaml": "302",
		"HEAD /docs/": "200", "HEAD /healthz": "200", "HEAD /": "302", "HEAD /.well-known/ready": "200",
		"/": "302", "/docs": "302",
		"HEAD /v1/counter/" + name + "/value": "405", "HEAD /v1/counter/" + name + "/count": "405",
		"POST /counter/" + name + "/count": "405",
	} {
		if a := s.get(t, request); !a.is(want) {
			t.Errorf("%.80s = %.200s, want %s", request, a, want)
		}
	}
	s.want(t, "/v1/counter/"+name+"/value", "200 1")
}
