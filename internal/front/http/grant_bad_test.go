package http

import (
	"fmt"
	"strings"
	"testing"
)

// badGrants are bodies of POST /v1/grants, and what is said of each.
var badGrants = []struct{ body, want string }{
	{``, "body is empty, want a JSON object"},
	{` `, "body is empty"},
	{`x`, `byte 0 is "x", want a value`},
	{`[]`, "body is an array, want an object"},
	{`"want"`, "body is a text, want an object"},
	{`5`, "body is a number, want an object"},
	{`null`, "body is null, want an object"},
	{`{`, "it ends at byte 1, want a name in quotes"},
	{`{"want"`, "want a colon"},
	{`{"want":`, "want a value"},
	{`{"want":[`, "want a value"},
	{`{"want":[{"gcra":"a"}`, "want a comma, or the end of the array"},
	{`{"want":[{"gcra":"a"}]`, "want a comma, or the end of the object"},
	{`{"want":[{"gcra":"a"}]}}`, "want the end of the body"},
	{`{"want":[{"gcra":"a"}]} {}`, "want the end of the body"},
	{`{"want":[{"gcra":"a"},]}`, "want a value"},
	{`{"want":[{"gcra":"a",}]}`, "want a name in quotes"},
	{`{"want":[{"gcra":"a"}],}`, "want a name in quotes"},
	{`{,"want":[{"gcra":"a"}]}`, "want a name in quotes"},
	{`{want:[{"gcra":"a"}]}`, "want a name in quotes"},
	{`{'want':[]}`, "want a name in quotes"},
	{`{"want" [{"gcra":"a"}]}`, "want a colon"},
	{`{"want":[{"gcra":"a"}] "id":"x"}`, "want a comma"},
	{`{"want":[{"gcra":"a` + "\n" + `"}]}`, "want control characters as escapes"},
	{`{"want":[{"gcra":"a`, "want the end of a text"},
	{`{"want":[{"gcra":"\x"}]}`, "has a bad escape"},
	{`{"want":[{"gcra":"\ud800"}]}`, "half of a surrogate pair"},
	{"{\"want\":[{\"gcra\":\"\xff\"}]}", "body is not UTF-8"},
	{`{"want":[{"gcra":"a","size":01}]}`, "want the end of a number"},
	{`{"want":[{"gcra":"a","size":+1}]}`, "want a value"},
	{`{"want":[{"gcra":"a","size":.5}]}`, "want a value"},
	{`{"want":[{"gcra":"a","size":5.}]}`, "want a digit"},
	{`{"want":[{"gcra":"a","size":5e}]}`, "want a digit"},
	{`{"want":[{"gcra":"a","size":-}]}`, "want a digit"},
	{`{"want":[{"gcra":"a","size":Infinity}]}`, "want a value"},
	{`{"want":[{"gcra":"a","size":nul}]}`, "want a value"},
	{`{"want":[{"gcra":"a"}],"want":[{"gcra":"a"}]}`, `body has "want" twice`},
	{`{"want":[{"gcra":"a"}],"id":"a","ID":"b"}`, `body has "ID" twice`},
	{`{"want":[{"gcra":"a","gcra":"b"}]}`, `want[0]: this has "gcra" twice`},

	{`{}`, "want is missing or empty, want 1 to 16 names"},
	{`{"want":[]}`, "want is missing or empty"},
	{`{"want":null}`, "want is null, want an array"},
	{`{"want":{"gcra":"a"}}`, "want is an object, want an array"},
	{`{"want":"gcra/a"}`, "want is a text, want an array"},
	{`{"want":["gcra/a"]}`, "want[0]: this is a text, want an object"},
	{`{"want":[{}]}`, "want[0]: no name is given"},
	{`{"want":[{"size":5}]}`, "want[0]: no name is given"},
	{`{"want":[{"gcra":"a"},{"gcra":"a"}]}`, "want[1]: gcra/a is want[0] already"},
	{`{"want":[{"gcra":"a","lock":"b"}]}`, "want[0]: gcra and lock are both given"},
	{`{"want":[{"gcra":5}]}`, "want[0]: gcra is a number, want a name as text"},
	{`{"want":[{"gcra":{"name":"a"}}]}`, `want[0]: "gcra" is an object, want a single value`},
	{`{"want":[{"gcra":[["a"]]}]}`, `want[0]: "gcra" is an array, want a single value`},
	{`{"want":[{"gcra":""}]}`, "want[0]: gcra: name has 0 bytes, want 1 to 512"},
	{`{"want":[{"gcra":"\u0000"}]}`, "has a control character"},
	{`{"want":[{"gcra":"` + strings.Repeat("a", 513) + `"}]}`, "name has 513 bytes"},
	{`{"want":[{"gcra":"a\u202eb"}]}`, "changes the direction of text"},
	{`{"want":[{"counter":"a"}]}`, "want[0]: counter cannot be part of a grant, want a limiter"},
	{`{"want":[{"event":"a"}]}`, "want[0]: event cannot be part of a grant"},
	{`{"want":[{"grant":"a"}]}`, "want[0]: grant cannot be part of a grant"},
	{`{"want":[{"bucket":"a"}]}`, `want[0]: parameter "bucket" is unknown, want one of size cost`},
	{`{"want":[{"gcra":"a","key":"k"}]}`, `want[0]: parameter "key" is unknown`},
	{`{"want":[{"gcra":"a","maxwait":5}]}`, `want[0]: parameter "maxwait" is unknown`},
	{`{"want":[{"gcra":"a","size":"5"}]}`, `want[0]: size is a text "5", want a number`},
	{`{"want":[{"gcra":"a","size":null}]}`, `want[0]: size is null "null", want a number`},
	{`{"want":[{"gcra":"a","size":true}]}`, `want[0]: size is true or false "true", want a number`},
	{`{"want":[{"gcra":"a","size":{}}]}`, `want[0]: "size" is an object, want a single value`},
	{`{"want":[{"gcra":"a","size":-1}]}`, `want[0]: size is "-1", want a whole number from 0`},
	{`{"want":[{"gcra":"a","size":1.5}]}`, `want[0]: size is "1.5", want a whole number`},
	{`{"want":[{"gcra":"a","size":1e3}]}`, `want[0]: size is "1e3", want a whole number`},
	{`{"want":[{"gcra":"a","size":9999999999999999}]}`, "to 999999999999999"},
	{`{"want":[{"gcra":"a","cost":0}]}`, `want[0]: cost is "0", want a whole number from 1`},
	{`{"want":[{"gcra":"a","interval":0}]}`, `want[0]: interval is "0", want a whole number of milliseconds`},
	{`{"want":[{"gcra":"a","interval":"60s"}]}`, `want[0]: interval is a text "60s", want a number`},
	{`{"want":[{"gcra":"a","interval":"year"}]}`, `interval is "year", want milliseconds, or day`},
	{`{"want":[{"gcra":"a","limits":5}]}`, `want[0]: limits is a number "5", want a text`},
	{`{"want":[{"gcra":"a","limits":"5 a minute"}]}`, "want limits such as 10/1s"},
	{`{"want":[{"gcra":"a","limits":"5/1m","size":5}]}`, "want it instead of size"},
	{`{"want":[{"gcra":"a","size":5,"cost":6}]}`, "gcra/a: cost 6 can never fit a size of 5"},
	{`{"want":[{"pace":"a","mode":"fine"}]}`, `want[0]: mode is "fine", want one of reserve paced classic`},
	{`{"want":[{"gcra":"a","fit":"cut"}]}`, `want[0]: fit is "cut", want clip`},
	{`{"want":[{"gcra":"a","fit":true}]}`, `fit is true or false "true", want a text`},
	{`{"want":[{"semaphore":"a","fit":"clip"}]}`, "want[0]: fit is a parameter of limiters"},
	{`{"want":[{"semaphore":"a","interval":5}]}`, "want[0]: interval is a parameter of limiters, want " +
		"only size"},
	{`{"want":[{"lock":"a","size":2}]}`, "want[0]: size is a parameter of limiters, want only cost for " +
		"a lock"},
	{`{"want":[{"lock":"a","cost":2}]}`, "cost 2 can never fit a size of 1"},
	{`{"want":[{"semaphore":"a","size":2,"cost":3}]}`, "cost 3 can never fit a size of 2"},

	{`{"want":[{"gcra":"a"}],"limit":5}`, `parameter "limit" is unknown, want one of id maxwait expires`},
	{`{"want":[{"gcra":"a"}],"fence":5}`, `parameter "fence" is unknown`},
	{`{"want":[{"gcra":"a"}],"gcra/a":5}`, `parameter "gcra/a" is unknown`},
	{`{"want":[{"gcra":"a"}],"id":5}`, `id is a number "5", want a text`},
	{`{"want":[{"gcra":"a"}],"id":""}`, "id has 0 bytes, want 1 to 128"},
	{`{"want":[{"gcra":"a"}],"id":"` + strings.Repeat("a", 129) + `"}`, "id has 129 bytes"},
	{`{"want":[{"gcra":"a"}],"id":"a/b"}`, `"a/b" has the byte`},
	{`{"want":[{"gcra":"a"}],"id":"a b"}`, `"a b" has the byte`},
	{`{"want":[{"gcra":"a"}],"maxwait":-2}`, `maxwait is "-2", want a whole number of milliseconds from -1`},
	{`{"want":[{"gcra":"a"}],"maxwait":"5s"}`, `maxwait is a text "5s", want a number`},
	{`{"want":[{"gcra":"a"}],"expires":0}`, `expires is "0", want a whole number of milliseconds from 1`},
	{`{"want":[{"gcra":"a"}],"expires":-1}`, `expires is "-1"`},
	{`{"want":[{"gcra":"a"}],"expires":3153600000001}`, "to 3153600000000"},
	{`{"want":[{"gcra":"a"}],"overrun":"ignore"}`, `overrun is "ignore", want debt or cap`},
	{`{"want":[{"gcra":"a"}],"on-expiry":"keep"}`, `on-expiry is "keep", want estimate, zero or last`},
	{`{"want":[{"gcra":"a"}],"on-expiry":0}`, `on-expiry is a number "0", want a text`},
	{`{"want":[{"gcra":"a"}],"owners":{"name":"me"}}`, `parameter "owners" is unknown, want one of id`},
	{`{"want":[{"gcra":"a"}],"owner":"me"}`, "owner is a text, want an object"},
	{`{"want":[{"gcra":"a"}],"owner":{"nam":"me"}}`, `owner has "nam", want name, host and purpose only`},
	{`{"want":[{"gcra":"a"}],"owner":{"name":7}}`, "owner: name is a number, want a text"},
	{`{"want":[{"gcra":"a"}],"owner":{"host":"` + strings.Repeat("h", 257) + `"}}`, "host has 257 bytes"},
	{`{"want":[{"gcra":"a"}],"host":"g1"}`, "host stands alone, want it in an owner"},
}

// Each fault of a body is named, with what was given and what is wanted, and nothing is asked of the gate.
func TestBadGrants(t *testing.T) {
	fake := &fakeGrants{decide: grants}
	r := newRig(t, Config{Gate: fake})
	for _, test := range badGrants {
		r.wantBad(t, grantsPath, test.body, test.want)
	}
	seventeen := strings.Repeat(`{"lock":"%d"},`, 17)
	seventeen = fmt.Sprintf(seventeen, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	r.wantBad(t, grantsPath, `{"want":[`+seventeen[:len(seventeen)-1]+`]}`, "want has more than 16 names")
	// No text nests, however deep it is.
	for _, deep := range []string{"[", `{"want":`, `{"want":[`, `{"want":[{"gcra":`, `{"id":{"a":`} {
		r.wantBad(t, grantsPath, strings.Repeat(deep, maxBody/len(deep)), "want ")
	}
	for _, test := range []struct{ path, body, want string }{
		{"/a/renew", `{"expires":0}`, `expires is "0", want a whole number of milliseconds from 1`},
		{"/a/renew", `{"maxwait":0}`, `parameter "maxwait" is unknown, want one of expires fence`},
		{"/a/renew", `{"gcra/a":5}`, `parameter "gcra/a" is unknown`},
		{"/a/renew", `{"fence":-1}`, `fence is "-1", want a whole number from 0 to 18446744073709551615`},
		{"/a/renew", `{"fence":"7"}`, `fence is a text "7", want a number`},
		{"/a/renew", `[]`, "body is an array, want an object"},
		{"/a/settle", ``, "body is empty"},
		{"/a/settle", `{}`, "body has no cost"},
		{"/a/settle", `{"fence":7}`, "body has no cost"},
		{"/a/settle", `{"gcra/a":-1}`, `"gcra/a": cost is "-1", want a whole number from 0`},
		{"/a/settle", `{"gcra/a":1.5}`, `"gcra/a": cost is "1.5"`},
		{"/a/settle", `{"gcra/a":"5"}`, `"gcra/a" is a text, want a number`},
		{"/a/settle", `{"gcra/a":null}`, `"gcra/a" is null, want a number`},
		{"/a/settle", `{"gcra/a":{"cost":5}}`, `"gcra/a" is an object, want a single value`},
		{"/a/settle", `{"gcra/a":5,"gcra/a":6}`, `body has "gcra/a" twice`},
		{"/a/settle", `{"semaphore/a":5}`, `settle is the cost of "semaphore/a", want it of a limiter`},
		{"/a/settle", `{"bucket/a":5}`, `"bucket/a", want it of a limiter`},
		{"/a/settle", `{"a":5}`, `parameter "a" is unknown, want one of fence`},
		{"/a/topup", `{"gcra/a":0}`, `cost is "0", want a whole number from 1`},
		{"/a/topup", `{"gcra/a":1,"maxwait":-2}`, `maxwait is "-2"`},
		{"/a/topup", `{"maxwait":0}`, "body has no cost"},
		{"/a/release", `{"expires":5}`, `parameter "expires" is unknown`},
		{"/a/release", `{"gcra/a":5`, "it ends at byte 11"},
		{"/a%2Fb/release", ``, `"a/b" has the byte`},
	} {
		r.wantBad(t, grantsPath+test.path, test.body, test.want)
	}
	fake.asked(t, 0)
}

// wantBad posts a body that must be refused with a sentence.
func (r *rig) wantBad(t *testing.T, path, body, want string) {
	t.Helper()
	got, header := r.visit(t, postText(path, body))
	detail, kind := fmt.Sprintf("%q", want), header.Get("Content-Type")
	detail = detail[1 : len(detail)-1]
	if !strings.HasPrefix(got, `400 {"type":"about:blank"`) || !strings.Contains(got, detail) ||
		kind != "application/problem+json" {
		t.Errorf("%s %.80s = %s %s, want 400 and %s", path, body, kind, got, want)
	}
}

// Bodies are bounded, however their length is told.
func TestGrantBodyIsLimited(t *testing.T) {
	r := newRig(t, Config{Gate: &fakeGrants{decide: grants}})
	for _, test := range []struct {
		path, body, want string
		most             int
	}{
		{grantsPath, `{"want":[{"gcra":"a"}]}`, "200", maxBody},
		{grantsPath + "/a/release", ``, "200", maxBody},
		{batchPath, `{"commands":[{"gcra":"a","op":"acquire","size":100}]}`, "200", maxBatchBody},
	} {
		for size, want := range map[int]string{test.most: "200", test.most + 1: "413"} {
			r.wantLimit(t, test.path, test.body+strings.Repeat(" ", size-len(test.body)), want)
		}
	}
}

// wantLimit posts a body in two ways, and wants a status.
func (r *rig) wantLimit(t *testing.T, path, body, want string) {
	t.Helper()
	chunked := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"%x\r\n%s\r\n0\r\n\r\n", path, len(body), body)
	for _, raw := range []string{postText(path, body), chunked} {
		got, _ := r.visit(t, raw)
		told := strings.Contains(got, fmt.Sprintf("body is longer than %d bytes", len(body)-1))
		if !strings.HasPrefix(got, want) || want == "413" && !told {
			t.Errorf("%s with a body of %d bytes = %.200s, want %s", path, len(body), got, want)
		}
	}
}
