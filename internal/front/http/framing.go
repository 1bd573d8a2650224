package http

import (
	"errors"
	"strings"
)

// A framing follows the bytes of one connection and knows where each request begins and ends. It accepts
// only what every HTTP/1.1 implementation reads in the same way. A proxy in front that takes a line feed
// for a line end, or joins a folded line, would otherwise see other requests than this server does (RFC
// 9112, section 11).
//
// The HTTP library is more lenient, and shows neither the line ends nor the trailers. So this looks at what
// the connection delivers, before the library does:
//
//	start ─► method ─► target ─► version ─► field ─► name ─► value ─┐
//	  ▲                                     ▲ │ empty line ◄────────┘
//	  ├──────────── no body ────────────────┼─┤
//	  ├──────────── body ◄── length ────────┼─┤
//	  └─ field (of a trailer) ◄─ last chunk ┴─┴─► chunk size ─► chunk ─► chunk size …
type framing struct {
	at      part
	matched uint8 // bytes of a fixed text that were seen
	digits  uint8 // of a length or the size of a chunk
	hosted  bool  // it has a Host
	old     bool  // the request is of HTTP/1.0
	sized   bool  // it has a Content-Length
	chunked bool
	trailer bool // the fields are those behind the last chunk
	named   uint8
	name    [longestName]byte // of the field
	left    int64             // bytes of the body or chunk that are to come; before that its length
}

// A part is what the next byte belongs to.
type part uint8

const (
	atStart part = iota // empty lines in front of a request are allowed
	atStartLF
	atMethod
	atTarget
	atVersion
	atMinor
	atLineCR
	atLineLF
	atField // a new field, or the empty line behind the last
	atName
	atHost
	atValue
	atValueLF
	atLength    // spaces before a Content-Length
	atDigits    // its digits
	atDigitsEnd // spaces behind it
	atCoding    // spaces before a Transfer-Encoding
	atChunked   // the word chunked
	atCodingEnd // spaces behind it
	atHeadLF    // the end of the empty line
	atBody
	atSize
	atExtension // of a chunk
	atSizeLF
	atChunk
	atChunkCR
	atChunkLF
	atFault // nothing more is accepted
)

const (
	longestName = len("transfer-encoding") // of the fields that matter here

	// longestNumber keeps the length of a body and the size of a chunk below 2⁶³. That either is more than a
	// body may have is found elsewhere.
	longestNumber, longestHex = 18, 15

	// longestExtension bounds what a client can send with a chunk and that nobody reads.
	longestExtension = 250
)

// errMalformed is what a connection reads after bytes that are not framed as HTTP/1.1.
var errMalformed = errors.New("request is not framed as HTTP/1.1 wants it")

// scan looks at the next bytes. It returns how many of them are well-formed: all, or those before the first
// that is not.
func (f *framing) scan(b []byte) (good int) {
	for {
		good += f.pass(b[good:])
		if good == len(b) {
			return good
		}
		f.at = f.next(b[good])
		if f.at == atFault {
			return good
		}
		good++
	}
}

// pass looks at many bytes together where next would at one after the other, and returns how many.
func (f *framing) pass(b []byte) (n int) {
	switch f.at {
	case atStart:
		if len(b) > 5 && string(b[:5]) == "GET /" {
			*f = framing{at: atTarget}
			return 4
		}
	case atTarget:
		n = countAbove(b, ' ')
		f.matched |= uint8(min(n, 1)) // #nosec G115 -- 0 or 1
	case atVersion:
		const usual = "HTTP/1.1\r\n"
		if f.matched == 0 && len(b) >= len(usual) && string(b[:len(usual)]) == usual {
			f.at, n = atField, len(usual)
		}
	case atName:
		for n < len(b) && isToken(b[n]) {
			n++
		}
		f.keepName(b[:n])
	case atValue:
		n = countAbove(b, ' '-1)
		if len(b) >= n+2 && b[n] == '\r' && b[n+1] == '\n' {
			f.at = atField
			n += 2
		}
	case atBody, atChunk:
		n = int(min(f.left, int64(len(b))))
		f.take(int64(n))
	}
	return n
}

// take counts bytes of a body or a chunk.
func (f *framing) take(n int64) {
	f.left -= n
	if f.left > 0 {
		return
	}
	if f.at == atChunk {
		f.at = atChunkCR
		return
	}
	*f = framing{}
}

// next is what follows a byte.
func (f *framing) next(c byte) part {
	switch {
	case f.at <= atLineLF:
		return f.nextInLine(c)
	case f.at <= atValueLF:
		return f.nextInField(c)
	case f.at <= atDigitsEnd:
		return f.nextInLength(c)
	case f.at <= atCodingEnd:
		return f.nextInCoding(c)
	case f.at == atHeadLF:
		return f.expect(c, '\n', f.body())
	}
	return f.nextInChunk(c)
}

// expect is then when c is what is wanted.
func (f *framing) expect(c, want byte, then part) part {
	if c != want {
		return atFault
	}
	return then
}

// nextInLine reads the request line.
func (f *framing) nextInLine(c byte) part {
	switch f.at {
	case atStart:
		if c == '\r' {
			return atStartLF
		}
		*f = framing{}
		return f.ifToken(c, atMethod)
	case atStartLF:
		return f.expect(c, '\n', atStart)
	case atMethod:
		if c == ' ' {
			return atTarget
		}
		return f.ifToken(c, atMethod)
	case atTarget:
		switch {
		case c > ' ' && c != 0x7f:
			f.matched = 1
			return atTarget
		case c != ' ' || f.matched == 0:
			return atFault
		}
		f.matched = 0
		return atVersion
	case atVersion:
		const version = "HTTP/1."
		f.matched++
		switch {
		case c != version[f.matched-1]:
			return atFault
		case int(f.matched) == len(version):
			return atMinor
		}
		return atVersion
	case atMinor:
		f.old = c == '0'
		if c < '0' || c > '9' {
			return atFault
		}
		return atLineCR
	case atLineCR:
		return f.expect(c, '\r', atLineLF)
	}
	return f.expect(c, '\n', atField)
}

// nextInField reads the name of a field, and its value where that does not matter. A line that begins with a
// space goes on with the field before it for some, and is refused.
func (f *framing) nextInField(c byte) part {
	switch f.at {
	case atField:
		if c == '\r' {
			return atHeadLF
		}
		f.named = 0
		return f.nextInName(c)
	case atName:
		if c == ':' {
			return f.field()
		}
		return f.nextInName(c)
	case atHost:
		return f.nextInHost(c)
	case atValue:
		if isText(c) {
			return atValue
		}
		return f.expect(c, '\r', atValueLF)
	}
	return f.expect(c, '\n', atField)
}

func (f *framing) nextInName(c byte) part {
	f.keepName([]byte{c})
	return f.ifToken(c, atName)
}

// keepName keeps more of a name, as long as the name can be one that matters.
func (f *framing) keepName(more []byte) {
	copy(f.name[min(int(f.named), longestName):], more)
	f.named = uint8(min(int(f.named)+len(more), longestName+1)) // #nosec G115 -- below 2⁸
}

// isNamed reports whether the name of the field is this one, in any letter case.
func (f *framing) isNamed(name string) bool {
	return int(f.named) == len(name) && strings.EqualFold(string(f.name[:len(name)]), name)
}

// nextInHost reads the value of a Host, which is one word.
func (f *framing) nextInHost(c byte) part {
	const within, behind = 1, 2
	switch {
	case (c == ' ' || c == '\t') && f.matched == within:
		f.matched = behind
	case c == ' ' || c == '\t':
	case isHost(c) && f.matched != behind:
		f.matched = within
	default:
		return f.expect(c, '\r', atValueLF)
	}
	return atHost
}

// field is what follows the colon. Where a body ends may be said once and in one way.
func (f *framing) field() part {
	f.matched = 0
	switch {
	case f.isNamed("host"):
		if f.trailer || f.hosted {
			return atFault
		}
		f.hosted = true
		return atHost
	case f.isNamed("content-length"):
		if f.trailer || f.sized || f.chunked {
			return atFault
		}
		f.sized = true
		return atLength
	case f.isNamed("transfer-encoding"):
		if f.trailer || f.sized || f.chunked || f.old {
			return atFault
		}
		f.chunked = true
		return atCoding
	}
	return atValue
}

// nextInLength reads a Content-Length: decimal digits.
func (f *framing) nextInLength(c byte) part {
	switch {
	case (c == ' ' || c == '\t') && f.at == atLength:
		return atLength
	case c >= '0' && c <= '9' && f.at != atDigitsEnd && f.digits < longestNumber:
		f.left = 10*f.left + int64(c-'0')
		f.digits++
		return atDigits
	case f.at == atLength:
		return atFault
	case c == ' ' || c == '\t':
		return atDigitsEnd
	}
	return f.expect(c, '\r', atValueLF)
}

// nextInCoding reads a Transfer-Encoding, of which there is one.
func (f *framing) nextInCoding(c byte) part {
	const coding = "chunked"
	space := c == ' ' || c == '\t'
	switch {
	case space && f.at == atCoding:
		return atCoding
	case int(f.matched) < len(coding):
		if c|0x20 != coding[f.matched] {
			return atFault
		}
		f.matched++
		return atChunked
	case space:
		return atCodingEnd
	}
	return f.expect(c, '\r', atValueLF)
}

// body is what follows the empty line.
func (f *framing) body() part {
	switch {
	case f.trailer:
		return atStart
	case !f.hosted && !f.old:
		return atFault
	case f.chunked:
		f.left, f.digits = 0, 0
		return atSize
	case f.left > 0:
		return atBody
	}
	return atStart
}

// nextInChunk reads the line before a chunk, and the end of a chunk.
func (f *framing) nextInChunk(c byte) part {
	switch f.at {
	case atSize:
		digit, hex := hexDigit(c)
		switch {
		case hex && f.digits < longestHex:
			f.left = f.left<<4 | int64(digit)
			f.digits++
			return atSize
		case f.digits == 0:
			return atFault
		case c == ';':
			f.matched = 0
			return atExtension
		}
		return f.expect(c, '\r', atSizeLF)
	case atExtension:
		if isText(c) && f.matched < longestExtension {
			f.matched++
			return atExtension
		}
		return f.expect(c, '\r', atSizeLF)
	case atSizeLF:
		f.trailer = f.left == 0
		if f.trailer {
			return f.expect(c, '\n', atField)
		}
		return f.expect(c, '\n', atChunk)
	case atChunkCR:
		return f.expect(c, '\r', atChunkLF)
	case atChunkLF:
		f.digits = 0
		return f.expect(c, '\n', atSize)
	}
	return atFault
}

// ifToken is then when c may stand in a name or a method.
func (f *framing) ifToken(c byte, then part) part {
	if !isToken(c) {
		return atFault
	}
	return then
}
