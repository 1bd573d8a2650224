package http

import (
	"encoding/binary"
	"strings"
)

// nextInField reads the name of a field, and its value where that does not matter. Some implementations take
// a line that begins with a space for more of the field before it. Here it is malformed.
func (f *framing) nextInField(c byte) framePart {
	switch f.at {
	case atField:
		if c == '\r' {
			return atHeadLF
		}
		if f.fields == maxFields {
			return atMalformed
		}
		f.fields++
		// A space is no token, so nextInName refuses a folded line.
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

// nextInName reads one byte of a name. There is no space before the colon: a proxy may read such a name
// differently.
func (f *framing) nextInName(c byte) framePart {
	f.keepName([]byte{c})
	return f.expectToken(c, atName)
}

// keepName keeps more of a name, up to the length of the longest name that matters.
func (f *framing) keepName(more []byte) {
	// A longer name ends as maxNameLength+1, which is the length of no name that isNamed is asked for.
	copy(f.name[min(int(f.nameLength), maxNameLength):], more)
	f.nameLength = uint8(min(int(f.nameLength)+len(more), maxNameLength+1)) // below 2⁸
}

// isNamed reports whether the field has this name, in any letter case.
func (f *framing) isNamed(name string) bool {
	return int(f.nameLength) == len(name) && strings.EqualFold(string(f.name[:len(name)]), name)
}

// The values of matched in a Host, which is 0 before the word.
const withinHost, behindHost = 1, 2

// nextInHost reads what is around the word of a Host, which skipRun has read. An empty Host is well-formed.
func (f *framing) nextInHost(c byte) framePart {
	switch {
	case (c == ' ' || c == '\t') && f.matched == withinHost:
		f.matched = behindHost
	case c == ' ' || c == '\t':
	default:
		return f.expectByte(c, '\r', atValueLF)
	}
	return atHost
}

// partAfterName returns what follows the colon. A request may say once, and in one way, where its body ends.
func (f *framing) partAfterName() framePart {
	// Of two lengths, or a length and chunks, a proxy may believe the other one than this server does: that
	// is how requests are smuggled. In a trailer the body has ended already.
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

// nextInLength reads a Content-Length: decimal digits with spaces around them. Signs and lists of equal
// lengths, which some implementations accept, are malformed.
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

// nextInCoding reads a Transfer-Encoding. The only one known is chunked, in any letter case.
func (f *framing) nextInCoding(c byte) framePart {
	const coding = "chunked"
	space := c == ' ' || c == '\t'
	switch {
	case space && f.at == atCoding:
		return atCoding
	case int(f.matched) < len(coding):
		// Setting this bit makes a letter lower-case, and no other byte a letter of coding.
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

// byteClasses says for each byte of ASCII whether it may stand in a name or a method (1 is added), and in a
// host with its port (2 is added): RFC 9110, sections 5.6.2 and 7.2. A line has 32 bytes, in the order of
// ASCII.
const byteClasses = "" +
	"00000000000000000000000000000000" +
	"03013333223323303333333333220200" +
	"03333333333333333333333333320213" +
	"13333333333333333333333333301030"

// isTokenByte reports whether a byte may stand in a name or a method.
func isTokenByte(c byte) bool { return c < 0x80 && byteClasses[c]&1 != 0 }

// isHostByte reports whether a byte may stand in a host with its port.
func isHostByte(c byte) bool { return c < 0x80 && byteClasses[c]&2 != 0 }

// isFieldByte reports whether a byte may stand in the value of a field.
func isFieldByte(c byte) bool { return c >= ' ' && c != 0x7f || c == '\t' }

// hexDigit returns the value of a hexadecimal digit in either letter case.
func hexDigit(c byte) (digit byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// countAbove returns how many bytes at the front of b are greater than least and not DEL.
func countAbove(b []byte, least byte) (n int) {
	// Eight bytes at a time: subtracting least+1 from each borrows into the high bit of a byte that is not
	// greater. A byte whose high bit was set before is above least anyway, and masked out. DEL is found in
	// the same way, as the zero byte of word XOR DEL. A borrow from the byte below can only report too much:
	// then the loop at the end counts exactly.
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(b)-n >= 8; n += 8 {
		word := binary.LittleEndian.Uint64(b[n:])
		del := word ^ 0x7f*ones
		if (word-uint64(least+1)*ones)&^word&highs|(del-ones)&^del&highs != 0 {
			break
		}
	}
	for n < len(b) && b[n] > least && b[n] != 0x7f {
		n++
	}
	return n
}
