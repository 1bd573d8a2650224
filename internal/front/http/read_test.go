package http

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// FuzzRead reads whatever may come as a request line. What it lets through, it has understood: the
// parameters are in range, and the path is one that leads back to the same request.
func FuzzRead(f *testing.F) {
	for _, seed := range [][3]string{
		{"GET", "/v1/tokenbucket/a/acquire", "size=5&interval=1000&maxwait=-1"},
		{"GET", "/semaphore/%E2%82%AC%2F/release", "key=%20+&size="},
		{"DELETE", "/V1/Event/x/", "id=1"},
		{"GET", "/counter/c/count", "amount=-9223372036854775808&value=%2B5"},
		{"OPTIONS", "/barrier//wait", "size=18446744073709551616&&=&a;b"},
		{"GET", "/v1/gcra/a/peek", "size=5&interval=1&burst=999999999999998&cost=0"},
		{"GET", "/v1/slidingwindow/a/reserve", "limits=10/1s,5000/day&zone=Europe%2FBerlin&mode=strict"},
		{"GET", "/pace/a/cancel", "key=%00&guard=5&interval=month"},
		{"GET", "/docs/x", ""}, {"POST", "//", "%"}, {"GET", "/v1/lock", "after=a"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		var r httpRequest
		page, p := r.readRequest([]byte(method), []byte(path), []byte(query))
		switch {
		case p != nil:
			if p.status < 200 || p.status > 499 || p.status >= 400 && p.detail == "" {
				t.Errorf("%s %s?%s: problem %+v", method, path, query, p)
			}
			if strings.ContainsAny(p.location, "\r\n") {
				t.Errorf("location %q splits the answer", p.location)
			}
		case page == "":
			checkRequest(t, &r)
		}
	})
}

// checkedByTheCore are what a request is refused for only when it is put to its controller: its name, a
// cost that can never fit, and a rate that is beyond what a GCRA can count.
var checkedByTheCore = []string{": name ", "can never fit", "want a lower"}

// checkRequest holds what was read against what the core would refuse.
func checkRequest(t *testing.T, r *httpRequest) {
	t.Helper()
	err := r.Command.Check(r.Key)
	known := func(text string) bool { return strings.Contains(err.Error(), text) }
	if err != nil && !slices.ContainsFunc(checkedByTheCore, known) {
		t.Errorf("%s %+v was let through, but: %v", r.Key, r.Command, err)
	}
	if gatehouse.CodeOf(err) != gatehouse.CodeInvalid && err != nil {
		t.Errorf("%s: code %s, want invalid", r.Key, gatehouse.CodeOf(err))
	}
	var again httpRequest
	path := "/" + r.Key.Kind.String() + "/" + url.PathEscape(r.Key.Name)
	method := "DELETE"
	if r.Command.Op != gatehouse.OpDelete {
		path += "/" + r.Command.Op.String()
		method = "GET"
	}
	if r.Key.Name == "" {
		return
	}
	query := "key=" + url.QueryEscape(r.Command.Holder)
	_, p := again.readRequest([]byte(method), []byte(path), []byte(query))
	if p != nil || again.Key != r.Key {
		t.Errorf("%s leads to %s, %+v, want %s", path, again.Key, p, r.Key)
	}
}

// FuzzUnescape compares the decoding with that of net/url.
func FuzzUnescape(f *testing.F) {
	for _, seed := range []string{"", "a+b", "%41%zz", "%", "%4", "100%25", "\x00%ff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, err := url.QueryUnescape(text)
		got, ok := decodePercent([]byte(text), true)
		if ok != (err == nil) || ok && string(got) != want {
			t.Errorf("query %q = %q, %t, want %q, %v", text, got, ok, want, err)
		}
		want, err = url.PathUnescape(text)
		got, ok = decodePercent([]byte(text), false)
		if ok != (err == nil) || ok && string(got) != want {
			t.Errorf("path %q = %q, %t, want %q, %v", text, got, ok, want, err)
		}
	})
}

// readRequest reads a method, a raw path and a raw query, as handleRequest does.
func (r *httpRequest) readRequest(method, path, query []byte) (page string, p *rejection) {
	page, p = r.readPath(method, path, query)
	if p != nil || page != "" {
		return page, p
	}
	return "", r.readParams(query, nil)
}
