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
	at         framePart
	matched    uint8 // bytes of a fixed text that were seen
	digits     uint8 // of a length or the size of a chunk
	hasHost    bool  // it has a Host
	http10     bool  // the request is of HTTP/1.0
	hasLength  bool  // it has a Content-Length
	chunked    bool
	trailer    bool // the fields are those behind the last chunk
	nameLength uint8
	name       [maxNameLength]byte // of the field
	remaining  int64               // bytes of the body or chunk that are to come; before that its length
}

// A framePart is what the next byte belongs to.
type framePart uint8

const (
	atStart framePart = iota // empty lines in front of a request are allowed
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
	atMalformed // nothing more is accepted
)

const (
	maxNameLength = len("transfer-encoding") // of the fields that matter here

	// maxLengthDigits keeps the length of a body and the size of a chunk below 2⁶³. That either is more than
	// a body may have is found elsewhere.
	maxLengthDigits, maxSizeDigits = 18, 15

	// maxExtension bounds what a client can send with a chunk and that nobody reads.
	maxExtension = 250
)

// errMalformed is what a connection reads after bytes that are not framed as HTTP/1.1.
var errMalformed = errors.New("request is not framed as HTTP/1.1 wants it")

// scanBytes looks at the next bytes. It returns how many of them are well-formed: all, or those before the
// first that is not.
func (f *framing) scanBytes(b []byte) (good int) {
	for {
		good += f.skipRun(b[good:])
		if good == len(b) {
			return good
		}
		f.at = f.nextPart(b[good])
		if f.at == atMalformed {
			return good
		}
		good++
	}
}

// skipRun looks at many bytes together where next would at one after the other, and returns how many.
func (f *framing) skipRun(b []byte) (n int) {
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
		for n < len(b) && isTokenByte(b[n]) {
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
		n = int(min(f.remaining, int64(len(b))))
		f.countBody(int64(n))
	}
	return n
}

// countBody counts bytes of a body or a chunk.
func (f *framing) countBody(n int64) {
	f.remaining -= n
	if f.remaining > 0 {
		return
	}
	if f.at == atChunk {
		f.at = atChunkCR
		return
	}
	*f = framing{}
}

// nextPart is what follows a byte.
func (f *framing) nextPart(c byte) framePart {
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
		return f.expectByte(c, '\n', f.partAfterHead())
	}
	return f.nextInChunk(c)
}

// expectByte is then when c is what is wanted.
func (f *framing) expectByte(c, want byte, then framePart) framePart {
	if c != want {
		return atMalformed
	}
	return then
}

// nextInLine reads the request line.
func (f *framing) nextInLine(c byte) framePart {
	switch f.at {
	case atStart:
		if c == '\r' {
			return atStartLF
		}
		*f = framing{}
		return f.expectToken(c, atMethod)
	case atStartLF:
		return f.expectByte(c, '\n', atStart)
	case atMethod:
		if c == ' ' {
			return atTarget
		}
		return f.expectToken(c, atMethod)
	case atTarget:
		switch {
		case c > ' ' && c != 0x7f:
			f.matched = 1
			return atTarget
		case c != ' ' || f.matched == 0:
			return atMalformed
		}
		f.matched = 0
		return atVersion
	case atVersion:
		const version = "HTTP/1."
		f.matched++
		switch {
		case c != version[f.matched-1]:
			return atMalformed
		case int(f.matched) == len(version):
			return atMinor
		}
		return atVersion
	case atMinor:
		f.http10 = c == '0'
		if c < '0' || c > '9' {
			return atMalformed
		}
		return atLineCR
	case atLineCR:
		return f.expectByte(c, '\r', atLineLF)
	}
	return f.expectByte(c, '\n', atField)
}

// nextInField reads the name of a field, and its value where that does not matter. A line that begins with a
// space goes on with the field before it for some, and is refused.
func (f *framing) nextInField(c byte) framePart {
	switch f.at {
	case atField:
		if c == '\r' {
			return atHeadLF
		}
		f.nameLength = 0
		return f.nextInName(c)
	case atName:
		if c == ':' {
			return f.partAfterName()
		}
		return f.nextInName(c)
	case atHost:
		return f.nextInHost(c)
	case atValue:
		if isFieldByte(c) {
			return atValue
		}
		return f.expectByte(c, '\r', atValueLF)
	}
	return f.expectByte(c, '\n', atField)
}

func (f *framing) nextInName(c byte) framePart {
	f.keepName([]byte{c})
	return f.expectToken(c, atName)
}

// keepName keeps more of a name, as long as the name can be one that matters.
func (f *framing) keepName(more []byte) {
	copy(f.name[min(int(f.nameLength), maxNameLength):], more)
	f.nameLength = uint8(min(int(f.nameLength)+len(more), maxNameLength+1)) // #nosec G115 -- below 2⁸
}

// isNamed reports whether the name of the field is this one, in any letter case.
func (f *framing) isNamed(name string) bool {
	return int(f.nameLength) == len(name) && strings.EqualFold(string(f.name[:len(name)]), name)
}

// nextInHost reads the value of a Host, which is one word.
func (f *framing) nextInHost(c byte) framePart {
	const within, behind = 1, 2
	switch {
	case (c == ' ' || c == '\t') && f.matched == within:
		f.matched = behind
	case c == ' ' || c == '\t':
	case isHostByte(c) && f.matched != behind:
		f.matched = within
	default:
		return f.expectByte(c, '\r', atValueLF)
	}
	return atHost
}

// partAfterName is what follows the colon. Where a body ends may be said once and in one way.
func (f *framing) partAfterName() framePart {
	f.matched = 0
	switch {
	case f.isNamed("host"):
		if f.trailer || f.hasHost {
			return atMalformed
		}
		f.hasHost = true
		return atHost
	case f.isNamed("content-length"):
		if f.trailer || f.hasLength || f.chunked {
			return atMalformed
		}
		f.hasLength = true
		return atLength
	case f.isNamed("transfer-encoding"):
		if f.trailer || f.hasLength || f.chunked || f.http10 {
			return atMalformed
		}
		f.chunked = true
		return atCoding
	}
	return atValue
}

// nextInLength reads a Content-Length: decimal digits.
func (f *framing) nextInLength(c byte) framePart {
	switch {
	case (c == ' ' || c == '\t') && f.at == atLength:
		return atLength
	case c >= '0' && c <= '9' && f.at != atDigitsEnd && f.digits < maxLengthDigits:
		f.remaining = 10*f.remaining + int64(c-'0')
		f.digits++
		return atDigits
	case f.at == atLength:
		return atMalformed
	case c == ' ' || c == '\t':
		return atDigitsEnd
	}
	return f.expectByte(c, '\r', atValueLF)
}

// nextInCoding reads a Transfer-Encoding, of which there is one.
func (f *framing) nextInCoding(c byte) framePart {
	const coding = "chunked"
	space := c == ' ' || c == '\t'
	switch {
	case space && f.at == atCoding:
		return atCoding
	case int(f.matched) < len(coding):
		if c|0x20 != coding[f.matched] {
			return atMalformed
		}
		f.matched++
		return atChunked
	case space:
		return atCodingEnd
	}
	return f.expectByte(c, '\r', atValueLF)
}

// partAfterHead is what follows the empty line.
func (f *framing) partAfterHead() framePart {
	switch {
	case f.trailer:
		return atStart
	case !f.hasHost && !f.http10:
		return atMalformed
	case f.chunked:
		f.remaining, f.digits = 0, 0
		return atSize
	case f.remaining > 0:
		return atBody
	}
	return atStart
}

// nextInChunk reads the line before a chunk, and the end of a chunk.
func (f *framing) nextInChunk(c byte) framePart {
	switch f.at {
	case atSize:
		digit, hex := hexDigit(c)
		switch {
		case hex && f.digits < maxSizeDigits:
			f.remaining = f.remaining<<4 | int64(digit)
			f.digits++
			return atSize
		case f.digits == 0:
			return atMalformed
		case c == ';':
			f.matched = 0
			return atExtension
		}
		return f.expectByte(c, '\r', atSizeLF)
	case atExtension:
		if isFieldByte(c) && f.matched < maxExtension {
			f.matched++
			return atExtension
		}
		return f.expectByte(c, '\r', atSizeLF)
	case atSizeLF:
		f.trailer = f.remaining == 0
		if f.trailer {
			return f.expectByte(c, '\n', atField)
		}
		return f.expectByte(c, '\n', atChunk)
	case atChunkCR:
		return f.expectByte(c, '\r', atChunkLF)
	case atChunkLF:
		f.digits = 0
		return f.expectByte(c, '\n', atSize)
	}
	return atMalformed
}

// expectToken is then when c may stand in a name or a method.
func (f *framing) expectToken(c byte, then framePart) framePart {
	if !isTokenByte(c) {
		return atMalformed
	}
	return then
}
