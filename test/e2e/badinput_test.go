package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A badInput is bytes on a fresh connection and all that comes back: status lines with their bodies, and
// closed when the server then ends the connection. If it does not, it must understand another request.
type badInput struct {
	fact, raw string
	want      []string
}

// A trial is a bad input with a counter and a semaphore of its own, whose name stands for kept. It is as
// long, so that lengths in the input stay right.
type trial struct {
	badInput
	name string
}

const (
	closed    = "closed"
	malformed = "400 Bad Request: request is malformed: want an HTTP/1.1 request line and headers"
	tooSlow   = "408 Request Timeout: request did not arrive within 1s"
	tooMany   = "431 Request Header Fields Too Large: request has more than 128 header fields"
	tooLong   = "431 Request Header Fields Too Large: request line and headers are longer than 8192 bytes"
	tooBig    = "413 Request Entity Too Large: body is longer than 65536 bytes"
	notHeld   = "409 Conflict: semaphore/kept is not held with this key: " +
		"it was never acquired, was released, or has expired"
	moved   = "301 Moved Permanently"
	value   = "GET /v1/counter/kept/value HTTP/1.1\r\nHost: localhost\r\n"
	count   = "GET /v1/counter/kept/count HTTP/1.1\r\nHost: localhost\r\n"
	valueIs = "200 OK: 41" // what the kept counter was set to
)

// ranges are what numbers may be.
var ranges = map[string]string{
	"size":     "0 to 999999999999999",
	"cost":     "1 to 999999999999999",
	"maxwait":  "-1 to 3153600000000",
	"interval": "1 to 3153600000000",
	"expires":  "0 to 3153600000000",
	"amount":   "-9223372036854775808 to 9223372036854775807",
	"burst":    "0 to 999999999999998",
	"guard":    "0 to 3153600000000",
}

// noNumber is the answer to a number that is none, or out of range.
func noNumber(param, value string) string {
	unit, instead := "", ""
	switch param {
	case "maxwait", "interval", "expires", "guard":
		unit = " of milliseconds"
		if d, err := time.ParseDuration(value); err == nil && d > 0 {
			instead = fmt.Sprintf(": write %s=%d for %s", param, d.Milliseconds(), d)
		}
	}
	return fmt.Sprintf("400 Bad Request: %s is %q, want a whole number%s from %s%s",
		param, value, unit, ranges[param], instead)
}

// unknown is the answer to a parameter that there is not.
func unknown(param string) string {
	return fmt.Sprintf("400 Bad Request: parameter %q is unknown, want one of size cost interval "+
		"expires maxwait key message amount value id burst mode guard limits zone fence extend "+
		"owner host purpose reason now after limit status retry-after remaining reset parents "+
		"refusal details", param)
}

// noPath is the answer to a path that leads nowhere.
func noPath(path string) string {
	return fmt.Sprintf("404 Not Found: path is %q, want /v1/<kind>/<name>/<operation>: see /docs", path)
}

// noKind is the answer to a path that has no kind in its place.
func noKind(part string) string {
	return fmt.Sprintf("404 Not Found: kind %q is unknown, want one of tokenbucket semaphore lock event "+
		"watchdog counter barrier gcra fixedwindow slidingwindow slidinglog pace", part)
}

// noOperation is the answer to an operation that a counter does not have.
func noOperation(part string) string {
	return fmt.Sprintf("404 Not Found: operation %q is unknown, want one of "+
		"count value reset stats for a counter",
		part)
}

// tooDeep is the answer to a path of too many parts.
func tooDeep(path string) string {
	return fmt.Sprintf("404 Not Found: path %q has more than kind, name and operation, "+
		"want a slash in a name as %%2F", path)
}

// noMethod is the answer to a method that a path does not have.
func noMethod(method, allowed string) string {
	return fmt.Sprintf("405 Method Not Allowed: method is %q, want one of %s, OPTIONS", method, allowed)
}

// noEvent is the answer to a wait for an event that does not come.
func noEvent(maxWait int) string {
	return fmt.Sprintf("408 Request Timeout: event/never: wait not granted within maxwait=%d ms; "+
		"only another request can change that", maxWait)
}

// otherHost is the answer to a request of a host that the server does not know as a name of its own.
func otherHost(host string) string {
	return fmt.Sprintf("421 Misdirected Request: Host is %q, which is no name of this server; "+
		"start it with --hosts %s to allow it", host, host)
}

// get is a well-formed request of a path, which may hold any bytes.
func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n" }

func TestBadInput(t *testing.T) {
	t.Parallel()
	// A busy machine may need more than a second to read what was sent.
	patient, hasty := start(t), start(t, "--read-timeout", "1s", "--idle-timeout", "1s")
	spoken := slices.Concat(badParameters, badLimits, badPaths, badRequestLines, badHeaders, badBodies,
		badPipelines, badFraming())
	all := slices.Concat(spoken, badSilence)
	for i, input := range all {
		b, s := trial{input, fmt.Sprintf("k%03d", i)}, patient
		if i >= len(spoken) || slices.Contains(input.want, tooSlow) {
			s = hasty
		}
		t.Run(b.fact, func(t *testing.T) {
			t.Parallel()
			s.want(t, "/v1/counter/"+b.name+"/count?amount=41", "200 41")
			s.want(t, "/v1/semaphore/"+b.name+"/acquire?size=2&key=mine&expires=0", "200 mine")
			b.try(t, s)
			b.check(t, s)
		})
	}
	if rest := len(all) - len(badFraming()); rest < 80 || len(badFraming()) < 80 {
		t.Errorf("%d bad inputs and %d about framing, want at least 80 of each", rest, len(badFraming()))
	}
}

// try sends the bytes and reads what there is to read.
func (b *trial) try(t *testing.T, s *server) {
	t.Helper()
	c := s.dial(t)
	c.within(patience / 4)
	c.send(strings.ReplaceAll(b.raw, "kept", b.name))
	c.method, _, _ = strings.Cut(strings.TrimLeft(b.raw, "\r\n"), " ")
	for i, want := range b.want {
		want = strings.ReplaceAll(want, "kept", b.name)
		a, err := c.read()
		switch {
		case want == closed && err == nil:
			t.Errorf("answer %d to %.200q = %s, want the connection closed", i+1, b.raw, a)
			return
		case want == closed:
			return
		case err != nil:
			t.Errorf("answer %d to %.200q = %v, want %s", i+1, b.raw, err, want)
			return
		case a.String() != want:
			t.Errorf("answer %d to %.200q = %s, want %s", i+1, b.raw, a, want)
			return
		case a.last != (i+1 < len(b.want) && b.want[i+1] == closed):
			t.Errorf("answer %d to %.200q = %s says Connection: close: %t, which is not what it does",
				i+1, b.raw, a, a.last)
		}
		for _, fault := range a.faults(c.method) {
			t.Errorf("answer %d to %.200q = %s: %s", i+1, b.raw, a, fault)
		}
	}
	c.ask("/v1/counter/" + b.name + "/value") // the connection goes on
	if a := c.answer(); a.String() != valueIs {
		t.Errorf("the next request after %.200q = %s, want %s", b.raw, a, valueIs)
	}
}

// check looks whether the server serves, and all is as it was.
func (b *trial) check(t *testing.T, s *server) {
	t.Helper()
	s.want(t, "/v1/counter/"+b.name+"/value", "200 41")
	figures := s.stats(t, "semaphore/"+b.name)
	if got := fmt.Sprintf("%s of %s", figures["held"], figures["size"]); got != "1 of 2" {
		t.Errorf("after %.200q the semaphore has %s held, want 1 of 2", b.raw, got)
	}
	s.want(t, "/v1/semaphore/"+b.name+"/release?key=mine", "204")
}

// badParameters are refused, and touch neither the hold nor the counter.
var badParameters = []badInput{
	{"a negative size", get("/v1/semaphore/kept/acquire?size=-1"), []string{noNumber("size", "-1")}},
	{"a size beyond 64 bits", get("/v1/semaphore/kept/acquire?size=99999999999999999999999"),
		[]string{noNumber("size", "99999999999999999999999")}},
	{"a fraction", get("/v1/semaphore/kept/acquire?size=1.5"), []string{noNumber("size", "1.5")}},
	{"an exponent", get("/v1/semaphore/kept/acquire?size=1e3"), []string{noNumber("size", "1e3")}},
	{"a hexadecimal number", get("/v1/semaphore/kept/acquire?size=0x10"), []string{noNumber("size", "0x10")}},
	{"an infinite number", get("/v1/semaphore/kept/acquire?size=Inf"), []string{noNumber("size", "Inf")}},
	{"spaces around a number", get("/v1/semaphore/kept/acquire?size=+3+"), []string{noNumber("size", " 3 ")}},
	{"a null byte behind a number", get("/v1/semaphore/kept/acquire?size=3%00"),
		[]string{noNumber("size", "3\x00")}},
	{"a sign before a zero", get("/v1/semaphore/kept/acquire?size=-0&maxwait=0"),
		[]string{noNumber("size", "-0")}},
	{"a number of 10 KB", get("/v1/counter/kept/count?amount=" + strings.Repeat("1", 10_000)),
		[]string{tooLong, closed}},
	{"a number of 4 KB", get("/v1/counter/kept/count?amount=" + strings.Repeat("1", 4000)),
		[]string{strings.Replace(noNumber("amount", strings.Repeat("1", 80)), `1",`, `1"…,`, 1)}},
	{"an amount beyond 64 bits", get("/v1/counter/kept/count?amount=9223372036854775808"),
		[]string{noNumber("amount", "9223372036854775808")}},
	{"an amount that overflows the counter", get("/v1/counter/kept/count?amount=9223372036854775807"),
		[]string{
			"409 Conflict: counter/kept stands at 41, and 9223372036854775807 more would overflow 64 bits"}},
	{"an empty maxwait", get("/v1/semaphore/kept/acquire?maxwait="), []string{noNumber("maxwait", "")}},
	{"a maxwait below -1", get("/v1/semaphore/kept/acquire?maxwait=-2"), []string{noNumber("maxwait", "-2")}},
	{"a maxwait that overflows nanoseconds", get("/v1/semaphore/kept/acquire?maxwait=18446744073710"),
		[]string{noNumber("maxwait", "18446744073710")}},
	{"a negative expires", get("/v1/semaphore/kept/renew?key=mine&expires=-1"),
		[]string{noNumber("expires", "-1")}},
	{"an interval of 0", get("/v1/tokenbucket/b/acquire?interval=0"), []string{noNumber("interval", "0")}},
	{"a cost of 0", get("/v1/tokenbucket/b/acquire?cost=0"), []string{noNumber("cost", "0")}},
	{"a cost that can never fit", get("/v1/semaphore/kept/acquire?size=2&cost=3"), []string{
		"400 Bad Request: semaphore/kept: cost 3 can never fit a size of 2"}},
	{"the last of a repeated parameter is bad", get("/v1/counter/kept/count?amount=1&amount=x"),
		[]string{noNumber("amount", "x")}},
	{"an unknown parameter", get("/v1/counter/kept/count?step=1"), []string{unknown("step")}},
	{"an unknown one behind a good one", get("/v1/counter/kept/reset?value=1&step"),
		[]string{unknown("step")}},
	{"an unknown parameter with an encoded name", get("/v1/counter/kept/count?%73tep=1"),
		[]string{unknown("step")}},
	{"a wrong escape in a parameter's name", get("/v1/counter/kept/count?%6mount=1"), []string{
		`400 Bad Request: name of a parameter is "%6mount", want every % followed by two hexadecimal ` +
			"digits"}},
	{"a line end in a parameter's name", get("/v1/counter/kept/count?a%0D%0Ab=%zz"), []string{
		unknown("a\r\nb")}},
	{"a wrong escape in a list", get("/v1/counter?limit=%zz"), []string{
		`400 Bad Request: limit is "%zz", want every % followed by two hexadecimal digits`}},
	{"a parameter without a name", get("/v1/counter/kept/count?=1"), []string{unknown("")}},
	{"semicolons", get("/v1/counter/kept/count?amount=1;amount=2"),
		[]string{noNumber("amount", "1;amount=2")}},
	{"two question marks", get("/v1/counter/kept/count??amount=1"), []string{unknown("?amount")}},
	{"a wrong escape in a number", get("/v1/counter/kept/count?amount=%zz"), []string{
		`400 Bad Request: amount is "%zz", want every % followed by two hexadecimal digits`}},
	{"a wrong escape in a number that does not count", get("/v1/counter/kept/count?amount=%zz&amount=1"),
		[]string{`400 Bad Request: amount is "%zz", want every % followed by two hexadecimal digits`}},
	{"a wrong escape in a key", get("/v1/semaphore/kept/release?key=min%6"), []string{
		`400 Bad Request: key is "min%6", want every % followed by two hexadecimal digits`}},
	{"a key of 513 bytes", get("/v1/semaphore/kept/acquire?key=" + strings.Repeat("k", 513)), []string{
		"400 Bad Request: key has 513 bytes, want at most 512"}},
	{"no key", get("/v1/semaphore/kept/release"), []string{
		"400 Bad Request: key is missing, want the key that acquire answered with"}},
	{"another key", get("/v1/semaphore/kept/release?key=Mine"), []string{notHeld}},
	{"a key that is nearly the same", get("/v1/semaphore/kept/release?key=mine%00"), []string{notHeld}},
}

// badSilence is sent, and then nothing.
var badSilence = []badInput{
	{"nothing", "", []string{closed}},
	{"a line end", "\r\n", []string{closed}},
	{"a letter", "G", []string{tooSlow, closed}},
	{"half a request line", "GET /v1/counter/kept/cou", []string{tooSlow, closed}},
	{"no line end", "GET /v1/counter/kept/count HTTP/1.1", []string{tooSlow, closed}},
	{"half the headers", count, []string{tooSlow, closed}},
	{"half a header", count + "X-Long", []string{tooSlow, closed}},
	{"half a body", count + "Content-Length: 9\r\n\r\nabc", []string{tooSlow, closed}},
	{"half a chunk", count + "Transfer-Encoding: chunked\r\n\r\n9\r\nabc", []string{tooSlow, closed}},
	{"no last chunk", count + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", []string{tooSlow, closed}},
	{"a whole request and half another", value + "\r\nGET /v1", []string{valueIs, tooSlow, closed}},
	{"a wait, and half a request", get("/v1/event/never/wait?maxwait=50") + "GET /v1",
		[]string{noEvent(50), tooSlow, closed}},
	{"a TLS handshake", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + strings.Repeat("\x5a", 64),
		[]string{malformed, closed}},
}

// A request in single bytes, as slow as it may be, is a request all the same.
func TestSingleBytes(t *testing.T) {
	t.Parallel()
	s := start(t, "--read-timeout", "1h")
	c := s.dial(t)
	_ = c.SetNoDelay(true)
	other := s.dial(t)
	for _, b := range rawRequest("/v1/counter/" + fresh(t) + "/count?amount=3") {
		c.send(string(b))
		other.ask("/.well-known/ready")
		other.answer() // by now the byte is with the server
	}
	c.method = "GET"
	if a := c.answer(); !a.is("200 3") {
		t.Errorf("a request in single bytes = %s, want 200 3", a)
	}
}
