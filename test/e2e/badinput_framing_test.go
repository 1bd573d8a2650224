package e2e

import "slices"

// hidden is a request that somebody else may see where this server sees a part of another. It would move the
// counter.
const hidden = count + "\r\n"

// misframed is refused: the connection ends with the answer, and nothing behind it is read.
func misframed(fact, raw string) badInput {
	return badInput{fact, raw + hidden, []string{malformed, closed}}
}

// badFraming are requests whose beginning or end others may see elsewhere.
func badFraming() []badInput {
	return slices.Concat(badLineEnds, badNames, badLengths, badChunks, badTrailers, goodFraming)
}

const (
	line  = "GET /v1/counter/kept/value HTTP/1.1"
	chunk = value + inChunks + "\r\n"
	last  = "0\r\n\r\n"
)

var badLineEnds = []badInput{
	misframed("LF behind the request line", line+"\nHost: localhost\r\n\r\n"),
	misframed("LF behind a header", value+"A: b\nC: d\r\n\r\n"),
	misframed("LF behind the last header", value+"A: b\n\r\n"),
	misframed("LF for the empty line", value+"A: b\r\n\n"),
	misframed("LF LF in front of CR LF CR LF", value+"A: b\n\nGET / HTTP/1.1\r\n\r\n"),
	misframed("only LF", line+"\nHost: localhost\n\n"),
	misframed("LF in front of a request", "\n"+value+"\r\n"),
	misframed("CR LF LF in front of a request", "\r\n\n"+value+"\r\n"),
	misframed("CR in front of a request", "\r"+value+"\r\n"),
	misframed("CR behind the request line", line+"\rHost: localhost\r\n\r\n"),
	misframed("CR for the end of a header", value+"A: b\rC: d\r\n\r\n"),
	misframed("CR CR LF", value+"A: b\r\r\n\r\n"),
	misframed("CR in front of the empty line", value+"A: b\r\n\r\r\n"),
	misframed("CR behind a name", value+"A\r: b\r\n\r\n"),
	misframed("LF in a name", value+"A\n: b\r\n\r\n"),
	misframed("a vertical tab for a line end", value+"A: b\vC: d\r\n\r\n"),
	misframed("a form feed for a line end", value+"A: b\fC: d\r\n\r\n"),
	misframed("a null byte in a value", value+"A: b\x00\r\n\r\n"),
	misframed("a null byte in the method",
		"GE\x00T /v1/counter/kept/value HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	misframed("a null byte in the version",
		"GET /v1/counter/kept/value HTTP/1.1\x00\r\nHost: localhost\r\n\r\n"),
	misframed("a null byte for a line end", value+"A: b\x00C: d\r\n\r\n"),
	{"a null byte between requests", value + "\r\n\x00" + hidden, []string{valueIs, malformed, closed}},
	misframed("a folded header", value+"A: b\r\n c\r\n\r\n"),
	misframed("a header folded by a tab", value+"A: b\r\n\tc\r\n\r\n"),
	misframed("a header folded behind its colon", value+"A:\r\n b\r\n\r\n"),
	misframed("a folded header of spaces", value+"A: b\r\n \r\n\r\n"),
	misframed("a folded first header", line+"\r\n Host: localhost\r\n\r\n"),
	misframed("a folded Host", line+"\r\nHost:\r\n localhost\r\n\r\n"),
	misframed("a folded length", value+"Content-Length:\r\n 0\r\n\r\n"),
	misframed("a folded coding", value+"Transfer-Encoding:\r\n chunked\r\n\r\n"+last),
	misframed("a coding folded behind its word", value+"Transfer-Encoding: chunked\r\n ,gzip\r\n\r\n"+last),
}

var badNames = []badInput{
	misframed("a space before the colon", value+"A : b\r\n\r\n"),
	misframed("a tab before the colon", value+"A\t: b\r\n\r\n"),
	misframed("a space within a name", value+"A B: c\r\n\r\n"),
	misframed("a space behind the name of a length", value+"Content-Length : 0\r\n\r\n"),
	misframed("a space behind the name of a coding", value+"Transfer-Encoding : chunked\r\n\r\n"+last),
	misframed("a tab behind the name of a coding", value+"Transfer-Encoding\t: chunked\r\n\r\n"+last),
	misframed("a space behind Host", line+"\r\nHost : localhost\r\n\r\n"),
	misframed("no name", value+": b\r\n\r\n"),
	misframed("no colon", value+"A\r\n\r\n"),
	misframed("a name in quotes", value+"\"A\": b\r\n\r\n"),
	misframed("a name in Latin 1", value+"\xc4: b\r\n\r\n"),
	misframed("a name with a slash", value+"A/B: c\r\n\r\n"),
	misframed("two Hosts", value+"Host: localhost\r\n\r\n"),
	misframed("two Hosts in other letters", value+"hOST: localhost\r\n\r\n"),
	misframed("no Host", line+"\r\n\r\n"),
	misframed("an empty Host", line+"\r\nHost:\r\n\r\n"),
	misframed("two hosts in one", line+"\r\nHost: localhost other\r\n\r\n"),
	misframed("a Host with a path", line+"\r\nHost: localhost/a\r\n\r\n"),
	misframed("a Host with markup", line+"\r\nHost: \"><script>\r\n\r\n"),
	misframed("HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
	misframed("HTTP/0.9", "GET /v1/counter/kept/value\r\n"),
	misframed("HTTP/1", "GET /v1/counter/kept/value HTTP/1\r\nHost: localhost\r\n\r\n"),
	misframed("HTTP/1.10", line+"0\r\nHost: localhost\r\n\r\n"),
	misframed("a space behind the version", line+" \r\nHost: localhost\r\n\r\n"),
	misframed("two spaces in front of the version",
		"GET /v1/counter/kept/value  HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	misframed("tabs in the request line", "GET\t/v1/counter/kept/value\tHTTP/1.1\r\nHost: localhost\r\n\r\n"),
	misframed("a method with a colon", "GET: /v1/counter/kept/value HTTP/1.1\r\nHost: localhost\r\n\r\n"),
}

var badLengths = []badInput{
	misframed("two equal lengths", value+"Content-Length: 0\r\nContent-Length: 0\r\n\r\n"),
	misframed("two lengths", value+"Content-Length: 0\r\nContent-Length: 50\r\n\r\n"),
	misframed("a list of lengths", value+"Content-Length: 0, 0\r\n\r\n"),
	misframed("a length with a plus sign", value+"Content-Length: +0\r\n\r\n"),
	misframed("a length of minus zero", value+"Content-Length: -0\r\n\r\n"),
	misframed("a fraction as a length", value+"Content-Length: 0.0\r\n\r\n"),
	misframed("a hexadecimal length", value+"Content-Length: 0x0\r\n\r\n"),
	misframed("a length with a separator", value+"Content-Length: 0_0\r\n\r\n"),
	misframed("a length in parts", value+"Content-Length: 0 0\r\n\r\n"),
	misframed("a length of 2^63", value+"Content-Length: 9223372036854775808\r\n\r\n"),
	misframed("a length of 2^64", value+"Content-Length: 18446744073709551616\r\n\r\n"),
	misframed("a length and a coding", value+"Content-Length: 5\r\n"+inChunks+"\r\n"+last),
	misframed("a coding and a length", value+inChunks+"Content-Length: 5\r\n\r\n"+last),
	misframed("two codings", value+inChunks+inChunks+"\r\n"+last),
	misframed("a list of codings", value+"Transfer-Encoding: gzip, chunked\r\n\r\n"+last),
	misframed("chunked in front of another", value+"Transfer-Encoding: chunked, identity\r\n\r\n"+last),
	misframed("identity", value+"Transfer-Encoding: identity\r\n\r\n"),
	misframed("an empty coding", value+"Transfer-Encoding:\r\n\r\n"),
	misframed("an unknown coding", value+"Transfer-Encoding: xchunked\r\n\r\n"+last),
	misframed("a coding in quotes", value+"Transfer-Encoding: \"chunked\"\r\n\r\n"+last),
	misframed("a coding with a parameter", value+"Transfer-Encoding: chunked;q=1\r\n\r\n"+last),
	misframed("a vertical tab in front of the coding", value+"Transfer-Encoding: \vchunked\r\n\r\n"+last),
	misframed("chunks in HTTP/1.0", "GET /v1/counter/kept/value HTTP/1.0\r\n"+inChunks+"\r\n"+last),
}

var badChunks = []badInput{
	misframed("letters behind a size", chunk+"3zz\r\nabc\r\n"+last),
	misframed("a word behind a size", chunk+"3 x\r\nabc\r\n"+last),
	misframed("a space behind a size", chunk+"3 \r\nabc\r\n"+last),
	misframed("a tab behind a size", chunk+"3\t\r\nabc\r\n"+last),
	misframed("a space in front of an extension", chunk+"3 ;x\r\nabc\r\n"+last),
	misframed("a null byte behind a size", chunk+"3\x00\r\nabc\r\n"+last),
	misframed("a colon behind a size", chunk+"3:\r\nabc\r\n"+last),
	misframed("a high byte behind a size", chunk+"3\x80\r\nabc\r\n"+last),
	misframed("LF behind a size", chunk+"3\nabc\r\n"+last),
	misframed("CR behind a size", chunk+"3\rabc\r\n"+last),
	misframed("LF in an extension", chunk+"3;x\nabc\r\n"+last),
	misframed("CR in an extension", chunk+"3;x\rabc\r\n"+last),
	misframed("a null byte in an extension", chunk+"3;x\x00\r\nabc\r\n"+last),
	misframed("a space in front of a size", chunk+" 3\r\nabc\r\n"+last),
	misframed("a sign in front of a size", chunk+"+3\r\nabc\r\n"+last),
	misframed("0x in front of a size", chunk+"0x3\r\nabc\r\n"+last),
	misframed("no size", chunk+"\r\nabc\r\n"+last),
	misframed("an extension without a size", chunk+";x\r\nabc\r\n"+last),
	misframed("a size of 16 digits", chunk+"0000000000000003\r\nabc\r\n"+last),
	misframed("a size beyond 64 bits", chunk+"10000000000000003\r\nabc\r\n"+last),
	misframed("LF behind a chunk", chunk+"3\r\nabc\n"+last),
	misframed("nothing behind a chunk", chunk+"3\r\nabc"+last),
	misframed("a chunk that is longer than its size", chunk+"3\r\nabcd\r\n"+last),
	misframed("junk in the last chunk's line", chunk+"0junk\r\n\r\n"),
	misframed("LF behind the last chunk", chunk+"0\n\r\n"),
	misframed("LF for the last empty line", chunk+"0\r\n\n"),
	misframed("CR for the last empty line", chunk+"0\r\n\r"),
}

var badTrailers = []badInput{
	misframed("LF in a trailer", chunk+"0\r\nA: b\n\r\n"),
	misframed("CR in a trailer", chunk+"0\r\nA: b\rC: d\r\n\r\n"),
	misframed("a null byte in a trailer", chunk+"0\r\nA: \x00\r\n\r\n"),
	misframed("a folded trailer", chunk+"0\r\nA: b\r\n c\r\n\r\n"),
	misframed("a space before a trailer's colon", chunk+"0\r\nA : b\r\n\r\n"),
	misframed("a trailer without a colon", chunk+"0\r\nA\r\n\r\n"),
	misframed("a length in a trailer", chunk+"0\r\nContent-Length: 5\r\n\r\n"),
	misframed("a coding in a trailer", chunk+"0\r\n"+inChunks+"\r\n"),
	misframed("a Host in a trailer", chunk+"0\r\nHost: localhost\r\n\r\n"),
}

// goodFraming looks odd and is read in one way. What is in a body is no request.
var goodFraming = []badInput{
	{"a body of CR LF CR LF", value + "Content-Length: 4\r\n\r\n\r\n\r\n" + value + "\r\n",
		[]string{valueIs, valueIs}},
	{"a body of null bytes", value + "Content-Length: 3\r\n\r\n\x00\n\r" + value + "\r\n",
		[]string{valueIs, valueIs}},
	{"a length with zeros in front", value + "Content-Length: 0003\r\n\r\nabc" + value + "\r\n",
		[]string{valueIs, valueIs}},
	{"no space behind a colon", value + "Content-Length:3\r\n\r\nabc" + value + "\r\n",
		[]string{valueIs, valueIs}},
	{"spaces around a value", value + "Content-Length: \t 3 \t\r\n\r\nabc" + value + "\r\n",
		[]string{valueIs, valueIs}},
	{"a coding in other letters", value + "transfer-ENCODING: Chunked\r\n\r\n" + last + value + "\r\n",
		[]string{valueIs, valueIs}},
	{"an extension", chunk + "3;a=\"b c\"\r\nabc\r\n" + last + value + "\r\n", []string{valueIs, valueIs}},
	{"a trailer", chunk + "0\r\nTag: b\r\n\r\n" + value + "\r\n", []string{valueIs, valueIs}},
	{"a length with DELETE",
		"DELETE /v1/counter/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc" +
			value + "\r\n", []string{"404 Not Found: counter/none does not exist", valueIs}},
	{"a good one in front of a bad one", value + "\r\n" + value + "A : b\r\n\r\n" + hidden,
		[]string{valueIs, malformed, closed}},
	{"one that waits in front of a bad one", get("/v1/event/never/wait?maxwait=60") + "\n" + hidden,
		[]string{noEvent(60), malformed, closed}},
	{"one that waits in front of half a bad one", get("/v1/event/never/wait?maxwait=60") +
		value + "A: b\n" + hidden, []string{noEvent(60), malformed, closed}},
}
