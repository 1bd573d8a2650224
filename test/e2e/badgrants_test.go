package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// badGrants are requests about several names that must be refused, and how. A line is a method and a path
// below /v1, the body, and the answer: a status, and what its sentence has in it. A minus is no body. {name}
// is a name that must stay untouched, {count} a command of a batch that is in order, and {10k} ten thousand
// letters.
const badGrants = `
POST grants | - | 400 body is empty, want a JSON object
POST grants | want=gcra%2Fa | 400 byte 0 is "w", want a value
POST grants | <want/> | 400 byte 0 is "<", want a value
POST grants | [{"gcra":"{name}"}] | 400 body is an array, want an object
POST grants | {"want":[{"gcra":"{name}"}]} {"want":[]} | 400 want the end of the body behind the object
POST grants | {"want":[{"gcra":"{name}"}] | 400 want a comma, or the end of the object
POST grants | {"want":[{"gcra":"{name}"},]} | 400 want a value
POST grants | {"want":[{"gcra":"{name}",}]} | 400 want a name in quotes
POST grants | {"want":[{'gcra':'{name}'}]} | 400 want a name in quotes
POST grants | {"want":[{"gcra":"{name}"}],"want":[{"lock":"{name}"}]} | 400 body has "want" twice
POST grants | {"want":[{"gcra":"{name}","GCRA":"b"}]} | 400 this has "GCRA" twice
POST grants | {"WANTS":[{"gcra":"{name}"}]} | 400 parameter "WANTS" is unknown
POST grants | {"want":[{"gcra":"{name}"}],"maxWait":"5"} | 400 maxwait is a text "5", want a number
POST grants | {"want":[]} | 400 want is missing or empty, want 1 to 16 names
POST grants | {"want":{}} | 400 want is an object, want an array
POST grants | {"want":[[]]} | 400 want[0]: this is an array, want an object
POST grants | {"want":["gcra/{name}"]} | 400 want[0]: this is a text, want an object
POST grants | {"want":[{"name":"{name}"}]} | 400 want[0]: parameter "name" is unknown, want one of size cost
POST grants | {"want":[{"gcra":"{name}"},{"gcra":"{name}"}]} | 400 want[1]: gcra/{name} is want[0] already
POST grants | {"want":[{"gcra":"{name}","lock":"{name}"}]} | 400 want[0]: gcra and lock are both given
POST grants | {"want":[{"gcra":["{name}"]}]} | 400 "gcra" is an array, want a single value
POST grants | {"want":[{"gcra":null}]} | 400 gcra is null, want a name as text
POST grants | {"want":[{"gcra":""}]} | 400 gcra: name has 0 bytes, want 1 to 512
POST grants | {"want":[{"gcra":"{10k}"}]} | 400 gcra: name has 10000 bytes, want 1 to 512
POST grants | {"want":[{"gcra":"a\u0000b"}]} | 400 has a control character
POST grants | {"want":[{"gcra":"a\u202eb"}]} | 400 a mark that changes the direction of text
POST grants | {"want":[{"gcra":"\udc00"}]} | 400 half of a surrogate pair
POST grants | {"want":[{"counter":"{name}"}]} | 400 counter cannot be part of a grant
POST grants | {"want":[{"event":"{name}"}]} | 400 event cannot be part of a grant
POST grants | {"want":[{"grant":"{name}"}]} | 400 grant cannot be part of a grant
POST grants | {"want":[{"lock":"{name}","key":"me"}]} | 400 parameter "key" is unknown
POST grants | {"want":[{"lock":"{name}","size":1}]} | 400 size is a parameter of limiters
POST grants | {"want":[{"lock":"{name}","cost":2}]} | 400 cost 2 can never fit a size of 1
POST grants | {"want":[{"semaphore":"{name}","fit":"clip"}]} | 400 fit is a parameter of limiters
POST grants | {"want":[{"semaphore":"{name}","size":3,"cost":4}]} | 400 cost 4 can never fit a size of 3
POST grants | {"want":[{"gcra":"{name}","size":3,"cost":4}]} | 400 cost 4 can never fit a size of 3
POST grants | {"want":[{"gcra":"{name}","cost":-1}]} | 400 cost is "-1", want a whole number from 1
POST grants | {"want":[{"gcra":"{name}","cost":1e1}]} | 400 cost is "1e1", want a whole number
POST grants | {"want":[{"gcra":"{name}","cost":99999999999999999999}]} | 400 to 999999999999999
POST grants | {"want":[{"gcra":"{name}","size":"10"}]} | 400 size is a text "10", want a number
POST grants | {"want":[{"gcra":"{name}","interval":"1m"}]} | 400 interval is a text "1m", want a number
POST grants | {"want":[{"gcra":"{name}","limits":"10/1m,5/1m"}]} | 400 want windows each longer
POST grants | {"want":[{"gcra":"{name}","limits":["10/1m"]}]} | 400 "limits" is an array
POST grants | {"want":[{"gcra":"{name}","limits":"10/1m","burst":5}]} | 400 want it instead of size
POST grants | {"want":[{"gcra":"{name}","fit":"scale"}]} | 400 fit is "scale", want clip
POST grants | {"want":[{"gcra":"{name}"}],"id":"a/b"} | 400 "a/b" has the byte
POST grants | {"want":[{"gcra":"{name}"}],"id":"{10k}"} | 400 id has 10000 bytes, want 1 to 128
POST grants | {"want":[{"gcra":"{name}"}],"id":7} | 400 id is a number "7", want a text
POST grants | {"want":[{"gcra":"{name}"}],"expires":0} | 400 expires is "0", want a whole
POST grants | {"want":[{"gcra":"{name}"}],"expires":1.5} | 400 expires is "1.5"
POST grants | {"want":[{"gcra":"{name}"}],"maxwait":-2} | 400 maxwait is "-2"
POST grants | {"want":[{"gcra":"{name}"}],"overrun":"none"} | 400 overrun is "none", want debt or cap
POST grants | {"want":[{"gcra":"{name}"}],"on-expiry":"none"} | 400 want estimate, zero or last
POST grants | {"want":[{"gcra":"{name}"}],"on_expiry":"zero"} | 400 parameter "on_expiry" is unknown
POST grants | {"want":[{"gcra":"{name}"}],"details":true} | 400 parameter "details" is unknown
POST grants?maxwait=0 | {"want":[{"gcra":"{name}"}]} | 400 query is "maxwait=0", want all of it in the body
POST grants/a/renew | {"expires":"1m"} | 400 expires is a text "1m", want a number
POST grants/a/renew | {"id":"b"} | 400 parameter "id" is unknown, want one of expires fence
POST grants/a/settle | {} | 400 body has no cost
POST grants/a/settle | {"gcra/{name}":-1} | 400 cost is "-1"
POST grants/a/settle | {"gcra/{name}":"5"} | 400 is a text, want a number
POST grants/a/settle | {"semaphore/{name}":1} | 400 want it of a limiter of the grant
POST grants/a/settle | {"gcra":{"{name}":5}} | 400 parameter "gcra" is unknown, want one of fence
POST grants/a/settle | {"gcra/{name}":5,"maxwait":0} | 400 parameter "maxwait" is unknown
POST grants/a/topup | {"gcra/{name}":0} | 400 cost is "0", want a whole number from 1
POST grants/a/release | {"gcra/{name}":5,"fence":-1} | 400 fence is "-1"
POST grants/a/release | release | 400 byte 0 is "r"
POST grants/a%2Fb/release | - | 400 "a/b" has the byte
POST grants/a%/release | - | 400 want every % followed by two hexadecimal digits
POST grants/{10k}/release | - | 431 request line and headers are longer
POST grants/a/take | {} | 404 kind "grants" is unknown here
POST grants/a | {} | 405 want one of GET, OPTIONS
PUT grants | {} | 405 want one of POST, OPTIONS
DELETE grants/a | - | 405 want one of GET, OPTIONS
GET grants | - | 405 want one of POST, OPTIONS
GET grant | - | 404 kind "grant" is unknown here
GET grant/a/peek | - | 404 kind "grant" is unknown here
POST batch | - | 400 body is empty
POST batch | {"commands":[]} | 400 commands is missing or empty, want 1 to 1000
POST batch | {"commands":[{count},{"counter":"{name}"}]} | 400 commands[1]: op is ""
POST batch | {"commands":[{count},{"counter":"{name}","op":"delete"}]} | 400 op is "delete"
POST batch | {"commands":[{count},{"grant":"{name}","op":"peek"}]} | 400 "grant" is unknown
POST batch | {"commands":[{"counter":"{name}","op":"count","by":1}]} | 400 parameter "by" is unknown
POST batch | {"commands":[{"gcra":"{name}","op":"acquire","maxwait":1}]} | 400 maxwait is "1", want 0
POST batch | {"commands":{"counter":"{name}","op":"count"}} | 400 commands is an object, want an array`

// Whatever is wrong with a request about several names is named, and does nothing.
func TestBadGrants(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	in := strings.NewReplacer("{name}", name, "{10k}", strings.Repeat("k", 10_000),
		"{count}", fmt.Sprintf(`{"counter":%q,"op":"count"}`, name))
	lines := strings.Split(strings.TrimSpace(badGrants), "\n")
	if len(lines) < 60 {
		t.Errorf("there are %d lines, want 60 at least", len(lines))
	}
	for _, line := range lines {
		parts := strings.Split(in.Replace(line), " | ")
		method, path, _ := strings.Cut(parts[0], " ")
		body, want := strings.TrimPrefix(parts[1], "-"), parts[2]
		c := s.dial(t)
		c.send(fmt.Sprintf("%s /v1/%s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, grantBody(body)))
		a := c.answer()
		status, detail, _ := strings.Cut(want, " ")
		told := strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(a.body)
		if fmt.Sprint(a.status) != status || !strings.Contains(told, detail) {
			t.Errorf("%.200s = %s, want %s", line, a, want)
		}
	}
	for _, kind := range []string{"gcra", "lock", "semaphore", "counter"} {
		s.want(t, "/v1/"+kind+"/"+name+"/stats", "404")
	}
}

// Bodies that are cut off, too long or framed badly do nothing either.
func TestBadGrantBodies(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	good := fmt.Sprintf(`{"want":[{"lock":%q}]}`, name)
	head := "POST /v1/grants HTTP/1.1\r\nHost: localhost\r\n"
	for fact, test := range map[string]struct{ raw, want string }{
		"64 KiB and a byte": {head + grantBody(good+strings.Repeat(" ", 64<<10+1-len(good))),
			"413 …body is longer than 65536 bytes…"},
		"more in chunks": {head + "Transfer-Encoding: chunked\r\n\r\n10001\r\n" + strings.Repeat(" ",
			64<<10+1),
			"413 …body is longer than 65536 bytes…"},
		"a batch of 1 MiB and a byte": {strings.Replace(head, "grants", "batch", 1) +
			grantBody(strings.Repeat(" ", 1<<20+1)), "413 …body is longer than 1048576 bytes…"},
		"a batch of blanks": {strings.Replace(head, "grants", "batch", 1) +
			grantBody(strings.Repeat(" ", 1<<20)), "400 …body is empty…"},
		"a length that is none": {head + "Content-Length: x\r\n\r\n" + good, "400 …"},
		"two lengths":           {head + "Content-Length: 1\r\n" + grantBody(good), "400 …"},
		"a chunk that is none":  {head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n" + good, "400 …"},
		"deep":                  {head + grantBody(strings.Repeat("[", 60_000)), "400 …body is an array…"},
		"deep in want":          {head + grantBody(`{"want":`+strings.Repeat("[", 60_000)), "400 …"},
		"no UTF-8": {head + grantBody("{\"want\":[{\"lock\":\"\xff\"}]}"),
			"400 …body is not UTF-8…"},
	} {
		c := s.dial(t)
		go func() { _, _ = io.WriteString(c.TCPConn, test.raw) }() // it may be answered before its end
		c.method = "POST"
		if a := c.answer(); !a.is(test.want) {
			t.Errorf("%s = %s, want %s", fact, a, test.want)
		}
	}
	// What is cut off in the middle is not done.
	c := s.dial(t)
	c.send(head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(good)+1, good))
	_ = c.CloseWrite()
	if a, err := c.read(); err == nil && a.status != 400 {
		t.Errorf("a body that was cut off = %s, want 400 or nothing", a)
	}
	s.want(t, "/v1/lock/"+name+"/stats", "404")
}

// badGrantCommands are commands that must be refused, and what the error has in it.
const badGrantCommands = `
GH.GRANT | wrong number of arguments
GH.GRANT WANT | wrong number of arguments
GH.GRANT ID x | has no WANT kind/name
GH.GRANT ID x EXPIRES 5 | has no WANT kind/name
GH.GRANT WANT lock/a WANT | has no value
GH.GRANT WANT lock | want kind/name
GH.GRANT WANT mutex/a | kind "mutex" is unknown
GH.GRANT WANT grant/a | grants have GH.GRANT, and GH.PEEK, RENEW, TOPUP, SETTLE and RELEASE
GH.GRANT WANT counter/a | cannot be part of a grant
GH.GRANT WANT lock/a WANT lock/a | lock/a twice
GH.GRANT WANT lock/a SIZE 2 | size is a parameter of limiters
GH.GRANT WANT gcra/a SIZE -1 | size is "-1"
GH.GRANT WANT gcra/a SIZE 5 COST 6 | can never fit
GH.GRANT WANT gcra/a LIMITS 5 | want limits such as
GH.GRANT WANT gcra/a FIT no | fit is "no", want clip
GH.GRANT WANT gcra/a KEY me | parameter "KEY" is unknown
GH.GRANT SIZE 5 WANT gcra/a | parameter "SIZE" is unknown
GH.GRANT ID a/b WANT gcra/a | has the byte
GH.GRANT EXPIRES 0 WANT gcra/a | expires is "0"
GH.GRANT MAXWAIT 1s WANT gcra/a | write maxwait=1000 for 1s
GH.GRANT OVERRUN x WANT gcra/a | want debt or cap
GH.GRANT ON-EXPIRY x WANT gcra/a | want estimate, zero or last
GH.GRANT WITH x WANT gcra/a | with is "x", want DETAILS
GH.RENEW grant/x | NOTFOUND
GH.RENEW grant/ | has 0 bytes
GH.RENEW grant/x EXPIRES 0 | expires is "0"
GH.PEEK grant/x COST 1 | want none of a peek
GH.SETTLE grant/x | wrong number of arguments
GH.SETTLE grant/x lock/a 1 | want it of a limiter
GH.SETTLE lock/a KEY me | has no operation settle
GH.TOPUP grant/x gcra/a 0 | cost is "0"
GH.STATS grant/x | grants have GH.GRANT, and GH.PEEK, RENEW, TOPUP, SETTLE and RELEASE
GH.DELETE grant/x | grants have GH.GRANT, and GH.PEEK, RENEW, TOPUP, SETTLE and RELEASE
GH.ACQUIRE grant/x | grants have GH.GRANT, and GH.PEEK, RENEW, TOPUP, SETTLE and RELEASE
GH.LIST grant | grants have GH.GRANT, and GH.PEEK, RENEW, TOPUP, SETTLE and RELEASE
GH.DELETEPREFIX grant x CONFIRM grant | grants have GH.GRANT, and GH.PEEK, RENEW, TOPUP, SETTLE and RELEASE`

func TestBadGrantCommands(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dialRedis(t, s.redisAddress(t))
	for line := range strings.SplitSeq(strings.TrimSpace(badGrantCommands), "\n") {
		command, want, _ := strings.Cut(line, " | ")
		c.want(command, "-…"+want+"…")
	}
	for _, kind := range []string{"gcra", "lock", "counter"} {
		s.want(t, "/v1/"+kind+"/a/stats", "404")
	}
}
