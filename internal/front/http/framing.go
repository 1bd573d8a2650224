package http

import "errors"

// A framing follows the bytes of one connection and knows where each request begins and ends. It accepts
// only what every HTTP/1.1 implementation reads in the same way. A proxy in front that takes a line feed
// for a line end, or joins a folded line, would otherwise see other requests than this server does (RFC
// 9112, section 11).
//
// The HTTP library is more lenient, and shows neither the line ends nor the trailers. So a framing looks at
// the bytes before the library does, and says where a request ends. Its zero value is at the start of one:
//
//	start ─► method ─► target ─► version ─► field ─► name ─► value ─┐
//	  ▲                                     ▲ │ empty line ◄────────┘
//	  ├──── end ◄── no body ────────────────┼─┤
//	  ├──────────── body ◄── length ────────┼─┤
//	  └─ field (of a trailer) ◄─ last chunk ┴─┴─► chunk size ─► chunk ─► chunk size …
type framing struct {
	at         framePart
	matched    uint8 // what was seen of a fixed text; its meaning depends on at
	digits     uint8 // how many of a length, or of the size of a chunk
	hasHost    bool
	http10     bool
	hasLength  bool // there is a Content-Length
	chunked    bool
	trailer    bool                // the fields are those behind the last chunk
	fields     uint8               // how many have begun, those of a trailer included
	nameLength uint8               // of the field, at most maxNameLength+1
	name       [maxNameLength]byte // of the field
	remaining  int64               // bytes of the body or chunk that follow; at first its length so far
	body       int64               // bytes of the body that have come
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
	atEnd       // behind the last byte of a request
	atMalformed // nothing more is accepted
)

const (
	maxNameLength = len("transfer-encoding") // of the fields that matter here

	// maxFields bounds what a request costs beyond its bytes: the HTTP library keeps 90 bytes for each field,
	// which may have two.
	maxFields = 128

	// maxLengthDigits and maxSizeDigits keep the length of a body and the size of a chunk below 2⁶³.
	// What is longer than a body may be is refused elsewhere (awaitBody).
	maxLengthDigits, maxSizeDigits = 18, 15

	// maxExtension bounds what a client can send with each chunk, and what is then thrown away.
	maxExtension = 250
)

// errMalformed is the error of a read behind bytes that are not framed as HTTP/1.1.
var errMalformed = errors.New("request is not framed as HTTP/1.1 requires")

// scanRequest follows the next bytes of the connection up to the end of a request. It returns how many of
// them belong to it and are well-formed. Then the framing is atEnd or atMalformed, or wants more bytes.
func (f *framing) scanRequest(b []byte) (n int) {
	if f.at == atEnd {
		*f = framing{}
	}
	for {
		// Each turn skips what needs no decision, and then takes one byte that does. Bytes may come in any
		// pieces, so both work from the state alone.
		n += f.skipRun(b[n:])
		if n == len(b) || f.at == atEnd {
			return n
		}
		f.at = f.nextPart(b[n])
		if f.at == atMalformed {
			return n
		}
		n++
		if f.at == atEnd {
			return n
		}
	}
}

// inHead reports whether the request line or the fields of a request have begun and not ended.
func (f *framing) inHead() bool { return f.at <= atHeadLF && !f.trailer }

// isEmpty reports whether nothing of a request has come but an empty line in front of it.
func (f *framing) isEmpty() bool { return f.at == atEnd || f.at <= atStartLF }

// skipRun follows a run of bytes that nextPart would take one after the other to the same end, and returns
// how many they are. It is there for speed.
func (f *framing) skipRun(b []byte) (n int) {
	switch f.at {
	case atStart:
		// The slash is looked at but left to atTarget, which wants one byte at least.
		if len(b) > 5 && string(b[:5]) == "GET /" {
			*f = framing{at: atTarget}
			return 4
		}
	case atTarget:
		n = countAbove(b, ' ')
		// In atTarget matched says that the target has a byte: an empty one is malformed.
		f.matched |= uint8(min(n, 1)) // 0 or 1
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
	case atHost:
		for n < len(b) && isHostByte(b[n]) && f.matched != behindHost {
			n++
		}
		if n > 0 {
			f.matched = withinHost
		}
		n += f.skipLineEnd(b[n:])
	case atValue:
		// A tab is left to nextInField.
		n = countAbove(b, ' '-1)
		n += f.skipLineEnd(b[n:])
	case atBody, atChunk:
		n = int(min(f.remaining, int64(len(b))))
		f.countBody(int64(n))
	}
	return n
}

// skipLineEnd ends a field if its line end comes next, in the same piece, which most do.
func (f *framing) skipLineEnd(b []byte) (n int) {
	if len(b) < 2 || b[0] != '\r' || b[1] != '\n' {
		return 0
	}
	f.at = atField
	return 2
}

// countBody counts n bytes of a body or a chunk as read.
func (f *framing) countBody(n int64) {
	f.remaining -= n
	f.body += n
	if f.remaining > 0 {
		return
	}
	// A line end stands behind a chunk, and the next request behind a body.
	if f.at == atChunk {
		f.at = atChunkCR
		return
	}
	f.at = atEnd
}

// nextPart returns the part that the byte behind c belongs to. The parts are in the order of their groups.
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

// expectByte returns then if c is the byte that must stand here, atMalformed otherwise.
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
		// RFC 9112, section 2.2, lets a client send an empty line before a request.
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
		// The HTTP library reads the target. Here it only has to end where every implementation ends it: at
		// one space, with no other control character in it.
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
		// Any minor version is read as RFC 9110, section 2.5, wants it: as HTTP/1.1. Only 1.0 differs here,
		// as it has no chunks and needs no Host.
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

// partAfterHead returns what follows the empty line behind the fields. There a request may turn out to be
// malformed as a whole.
func (f *framing) partAfterHead() framePart {
	switch {
	case f.trailer: // the request ends with it
		return atEnd
	case !f.hasHost && !f.http10:
		return atMalformed
	case f.chunked:
		f.remaining, f.digits = 0, 0
		return atSize
	case f.remaining > 0:
		return atBody
	}
	return atEnd
}

// expectToken returns then if c may stand in a name or a method, atMalformed otherwise.
func (f *framing) expectToken(c byte, then framePart) framePart {
	if !isTokenByte(c) {
		return atMalformed
	}
	return then
}

// nextInChunk reads the line before a chunk, and the line end behind one. The bytes of the chunk are skipped
// in skipRun. A chunk of size 0 is the last:
//
//	atSize -> atExtension -> atSizeLF -> atChunk -> atChunkCR -> atChunkLF -> atSize ...
//	                            |
//	                            `-> atField, of the trailer, if the size is 0
func (f *framing) nextInChunk(c byte) framePart {
	switch f.at {
	case atSize:
		// Leading zeros count as digits, so that the size line is bounded.
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
		// Extensions mean nothing to this server. They are skipped, and bounded: otherwise a client could
		// send bytes forever that count as no body.
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
		// remaining is 0 by now, so the next size begins from there.
		f.digits = 0
		return f.expectByte(c, '\n', atSize)
	}
	return atMalformed
}
