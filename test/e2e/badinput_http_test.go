package e2e

import (
	"slices"
	"strings"
)

// badPaths are of no controller, or of one whose name cannot be.
var badPaths = []badInput{
	{"an empty name", get("/v1/counter//count"), []string{
		"400 Bad Request: counter: name has 0 bytes, want 1 to 512"}},
	{"a name of 513 bytes", get("/v1/counter/" + strings.Repeat("n", 513) + "/count"), []string{
		"400 Bad Request: counter: name has 513 bytes, want 1 to 512"}},
	{"a name of 10 KB", get("/v1/counter/" + strings.Repeat("n", 10_000) + "/count"),
		[]string{tooLong, closed}},
	{"an encoded null byte in a name", get("/v1/counter/a%00b/count"), []string{
		`400 Bad Request: counter: name "a\x00b" has a control character`}},
	{"an encoded line end in a name", get("/v1/counter/a%0D%0Ab/count"), []string{
		`400 Bad Request: counter: name "a\r\nb" has a control character`}},
	{"a name that is no UTF-8", get("/v1/counter/a%FFb/count"), []string{
		`400 Bad Request: counter: name "a\xffb" is not valid UTF-8`}},
	{"raw bytes that are no UTF-8", get("/v1/counter/a\xff\xfeb/count"), []string{
		`400 Bad Request: counter: name "a\xff\xfeb" is not valid UTF-8`}},
	{"a wrong escape in a name", get("/v1/counter/a%zzb/count"), []string{
		`400 Bad Request: name is "a%zzb", want every % followed by two hexadecimal digits`}},
	{"half an escape in a name", get("/v1/counter/a%4/count"), []string{
		`400 Bad Request: name is "a%4", want every % followed by two hexadecimal digits`}},
	{"a slash in a name", get("/v1/counter/kept/kept/count"),
		[]string{tooDeep("/v1/counter/kept/kept/count")}},
	{"dots are no way up", get("/v1/counter/../../counter/kept/count"), []string{
		tooDeep("/v1/counter/../../counter/kept/count")}},
	{"nor are encoded ones", get("/v1/counter/x/%2e%2e/kept/count"), []string{
		tooDeep("/v1/counter/x/%2e%2e/kept/count")}},
	{"two slashes in front", get("//v1/counter/kept/count"), []string{noPath("//v1/counter/kept/count")}},
	{"a fragment", get("/v1/counter/kept/count#now"), []string{noOperation("count#now")}},
	{"an encoded operation", get("/v1/counter/kept/%63ount"), []string{noOperation("%63ount")}},
	{"an unknown kind", get("/v1/mutex/kept/acquire"), []string{noKind("mutex")}},
	{"an unknown operation", get("/v1/counter/kept/undo"), []string{noOperation("undo")}},
	{"no path", get("*"), []string{malformed, closed}},
	{"a path without a slash", get("v1/counter/kept/count"), []string{malformed, closed}},
	{"a path of unicode is repeated as it is", get("/v1/⚑/a/b"), []string{noKind("⚑")}},
	{"a long path is cut in the answer", get("/" + strings.Repeat("p", 4000)), []string{
		strings.Replace(noPath("/"+strings.Repeat("p", 79)), `p",`, `p"…,`, 1)}},
	{"another letter case", get("/V1/Counter/kept/Count?amount=1"), []string{moved}},
	{"a slash too many", get("/v1/counter/kept/count/"), []string{moved}},
	{"a whole URL", get("http://localhost/v1/counter/kept/value"), []string{valueIs}},
	{"a whole URL with a query", get("http://me@localhost:80/v1/counter/kept/count?amount=0"),
		[]string{valueIs}},
	{"a whole URL without a path", get("http://localhost"), []string{"302 Found"}},
	{"a whole URL of another host", get("http://example.com/v1/counter/kept/count"),
		[]string{otherHost("example.com")}},
}

const (
	counter = " /v1/counter/kept/count HTTP/1.1\r\nHost: localhost\r\n\r\n"
	formed  = " /v1/counter/kept/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\namount=5"
)

// badRequestLines are not what HTTP/1.1 requests begin with.
var badRequestLines = []badInput{
	{"POST without v1", "POST" + strings.Replace(counter, "/v1", "", 1), []string{noMethod("POST", "GET")}},
	{"POST with no type", "POST" + formed,
		[]string{"415 Unsupported Media Type: Content-Type of the body is \"\", " +
			"want application/x-www-form-urlencoded or no body"}},
	{"PUT", "PUT" + formed, []string{noMethod("PUT", "GET, POST")}},
	{"PATCH", "PATCH" + counter, []string{noMethod("PATCH", "GET, POST")}},
	{"HEAD", "HEAD" + counter, []string{"405 Method Not Allowed"}},
	{"DELETE of an operation", "DELETE" + counter, []string{noMethod("DELETE", "GET, POST")}},
	{"GET of a controller", get("/v1/counter/kept"), []string{noMethod("GET", "DELETE")}},
	{"a made-up method", "BREW" + counter, []string{noMethod("BREW", "GET, POST")}},
	{"a method in lower case", "get" + counter, []string{noMethod("get", "GET, POST")}},
	{"CONNECT", "CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		[]string{noPath("example.com:443")}},
	{"HTTP/0.9", "GET /v1/counter/kept/count\r\n\r\n", []string{malformed, closed}},
	{"HTTP/1.0", "GET /v1/counter/kept/value HTTP/1.0\r\n\r\n", []string{valueIs, closed}},
	{"HTTP/1.0, kept alive", "GET /v1/counter/kept/value HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		[]string{valueIs}},
	{"HTTP/1.2", "GET /v1/counter/kept/value HTTP/1.2\r\nHost: localhost\r\n\r\n", []string{valueIs, closed}},
	{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []string{malformed, closed}},
	{"a request of HTTP/2.0", "GET /v1/counter/kept/count HTTP/2.0\r\nHost: localhost\r\n\r\n",
		[]string{malformed, closed}},
	{"another protocol", "GET /v1/counter/kept/count ICAP/1.0\r\nHost: localhost\r\n\r\n",
		[]string{malformed, closed}},
	{"a space in the path", get("/v1/counter/ke pt/count"), []string{malformed, closed}},
	{"two spaces", "GET " + counter, []string{malformed, closed}},
	{"a space in front", " GET" + counter, []string{malformed, closed}},
	{"a null byte in the path", get("/v1/counter/a\x00b/count"), []string{malformed, closed}},
	{"a control character in the path", get("/v1/counter/a\x01b/count"), []string{malformed, closed}},
	{"a carriage return in the path", get("/v1/counter/a\rb/count"), []string{malformed, closed}},
	{"a line end in the path", get("/v1/counter/a\nb/count"), []string{malformed, closed}},
	{"line ends in front are passed over", "\r\n\r\n" + get("/v1/counter/kept/value"), []string{valueIs}},
	{"only words", "hello server\r\n\r\n", []string{malformed, closed}},
	{"only zeros", strings.Repeat("\x00", 64) + "\r\n\r\n", []string{malformed, closed}},
	{"bare line feeds", "GET /v1/counter/kept/value HTTP/1.1\nHost: x\n\n", []string{malformed, closed}},
	{"a bare line feed among the headers", value + "A: b\nC: d\r\n\r\n", []string{malformed, closed}},
	{"Redis", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", []string{malformed, closed}},
	{"a PROXY header", "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nGET" + counter, []string{malformed, closed}},
}

// badHeaders are not how headers are to be, or try to be clever.
var badHeaders = []badInput{
	{"no host", "GET /v1/counter/kept/value HTTP/1.1\r\n\r\n", []string{malformed, closed}},
	{"two hosts", value + "Host: y\r\n\r\n", []string{malformed, closed}},
	{"no colon", value + "nonsense\r\n\r\n", []string{malformed, closed}},
	{"a space before the colon", value + "A : b\r\n\r\n", []string{malformed, closed}},
	{"a space in front of the first", "GET /v1/counter/kept/value HTTP/1.1\r\n Host: localhost\r\n\r\n",
		[]string{malformed, closed}},
	{"no name", value + ": b\r\n\r\n", []string{malformed, closed}},
	{"a null byte", value + "A: b\x00c\r\n\r\n", []string{malformed, closed}},
	{"a null byte in a name", value + "A\x00: b\r\n\r\n", []string{malformed, closed}},
	{"a control character", value + "A: b\x01c\r\n\r\n", []string{malformed, closed}},
	{"a carriage return", value + "A: b\rc\r\n\r\n", []string{malformed, closed}},
	{"a header over two lines", value + "A: b\r\n c\r\n\r\n", []string{malformed, closed}},
	{"unicode", value + "A: ü€\r\n\r\n", []string{valueIs}},
	{"9 KB in one header", count + "A: " + strings.Repeat("b", 9000) + "\r\n\r\n", []string{tooLong, closed}},
	{"12 KB in many headers", count + strings.Repeat("A: b\r\n", 2000) + "\r\n", []string{tooMany, closed}},
	{"a header without an end", count + "A: " + strings.Repeat("b", 100_000), []string{tooLong, closed}},
	{"5 KB of headers", value + "A: " + strings.Repeat("b", 5000) + "\r\n\r\n", []string{valueIs}},
	{"a hundred headers", value + strings.Repeat("A: b\r\n", 100) + "\r\n", []string{valueIs}},
	{"an empty header", value + "A:\r\n\r\n", []string{valueIs}},
	{"a wish to upgrade", value + "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", []string{valueIs}},
	{"an encoding we do not have", value + "Accept-Encoding: gzip\r\nTE: trailers\r\n\r\n",
		[]string{valueIs}},
	{"a range", value + "Range: bytes=0-0\r\n\r\n", []string{valueIs}},
	{"conditions", value + "If-None-Match: *\r\nIf-Modified-Since: Sat, 01 Jan 2099 00:00:00 GMT\r\n\r\n",
		[]string{valueIs}},
	{"another method in a header", value + "X-HTTP-Method-Override: DELETE\r\n\r\n", []string{valueIs}},
}

const (
	inChunks  = "Transfer-Encoding: chunked\r\n"
	bigChunks = 20 // of 4 KB each, more than a body may have
)

// badBodies are of no use: no call looks at its body, but where it ends must be clear.
var badBodies = []badInput{
	{"a body", value + "Content-Length: 5\r\n\r\nhello", []string{valueIs}},
	{"a body that is a request", value + "Content-Length: 56\r\n\r\n" + count + "\r\n", []string{valueIs}},
	{"a body in chunks", value + inChunks + "\r\n3\r\nabc\r\n0\r\n\r\n", []string{valueIs}},
	{"a request in chunks", value + inChunks + "\r\n38\r\n" + count + "\r\n\r\n0\r\n\r\n", []string{valueIs}},
	{"a chunk that is no number", count + inChunks + "\r\nzz\r\nabc\r\n0\r\n\r\n",
		[]string{malformed, closed}},
	{"a negative chunk", count + inChunks + "\r\n-1\r\nabc\r\n0\r\n\r\n", []string{malformed, closed}},
	{"a chunk beyond 64 bits", count + inChunks + "\r\nfffffffffffffffff\r\nabc",
		[]string{malformed, closed}},
	{"a length and chunks", count + "Content-Length: 5\r\n" + inChunks + "\r\n0\r\n\r\n",
		[]string{malformed, closed}},
	{"chunks and a length", count + inChunks + "Content-Length: 5\r\n\r\n0\r\n\r\n",
		[]string{malformed, closed}},
	{"an unknown transfer coding", count + "Transfer-Encoding: cow\r\n\r\n", []string{malformed, closed}},
	{"chunked twice", count + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		[]string{malformed, closed}},
	{"two lengths", count + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		[]string{malformed, closed}},
	{"two lengths in one", count + "Content-Length: 3, 4\r\n\r\nabcd", []string{malformed, closed}},
	{"a negative length", count + "Content-Length: -1\r\n\r\n", []string{malformed, closed}},
	{"a length with a plus sign", count + "Content-Length: +3\r\n\r\nabc", []string{malformed, closed}},
	{"a length that is no number", count + "Content-Length: three\r\n\r\n", []string{malformed, closed}},
	{"a hexadecimal length", count + "Content-Length: 0x3\r\n\r\nabc", []string{malformed, closed}},
	{"an empty length", count + "Content-Length:\r\n\r\n", []string{malformed, closed}},
	{"a length beyond 64 bits", count + "Content-Length: 99999999999999999999\r\n\r\n",
		[]string{malformed, closed}},
	{"a huge body", count + "Content-Length: 99999999\r\n\r\n", []string{tooBig, closed}},
	{"a huge body in chunks", count + inChunks + "\r\n" +
		strings.Repeat("1000\r\n"+strings.Repeat("x", 4096)+"\r\n", bigChunks), []string{tooBig, closed}},
	{"a body that is awaited", value + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n",
		[]string{"100 Continue", tooSlow, closed}},
	{"a body that comes at once", value + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
		[]string{"100 Continue", valueIs}},
	{"an unknown expectation", value + "Expect: miracles\r\n\r\n", []string{valueIs}},
}

const (
	waits20 = "GET /v1/event/never/wait?maxwait=20 HTTP/1."
	keep    = "Connection: keep-alive\r\n"
)

// badPipelines are several requests at once, which are answered in order.
var badPipelines = []badInput{
	{"three requests", value + "\r\n" + get("/nothing") + value + "\r\n",
		[]string{valueIs, noPath("/nothing"), valueIs}},
	{"one that waits comes first", get("/v1/event/never/wait?maxwait=100") + value + "\r\n" +
		get("/v1/counter/p1/count"), []string{noEvent(100), valueIs, "200 OK: 1"}},
	{"two that wait", get("/v1/event/never/wait?maxwait=60") + get("/v1/event/never/wait?maxwait=50") +
		value + "\r\n", []string{noEvent(60), noEvent(50), valueIs}},
	{"one that waits, with a body", waits20 + "1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nGET /" +
		value +
		"\r\n", []string{noEvent(20), valueIs}},
	{"a bad one ends it", value + "\r\nBAD\r\n\r\n" + count + "\r\n", []string{valueIs, malformed, closed}},
	{"a refused one does not", get("/v1/counter/kept/count?x") + value + "\r\n",
		[]string{unknown("x"), valueIs}},
	{"nothing is answered after the last", value + "Connection: close\r\n\r\n" + count + "\r\n",
		[]string{valueIs, closed}},
	{"nor after a last one that waits", waits20 + "1\r\nHost: localhost\r\nConnection: close\r\n\r\n" +
		count +
		"\r\n", []string{noEvent(20), closed}},
	{"an HTTP/1.0 client that waits", waits20 + "0\r\n\r\n", []string{noEvent(20), closed}},
	{"an HTTP/1.0 client that waits and goes on", waits20 + "0\r\n" + keep + "\r\n", []string{noEvent(20)}},
	{"8 KB behind one that waits", get("/v1/event/never/wait?maxwait=80") + strings.Repeat(value+"\r\n", 145),
		append([]string{noEvent(80)}, slices.Repeat([]string{valueIs}, 145)...)},
}
