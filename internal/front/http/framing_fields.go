package http

import "strings"

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

// nextInHost reads the value of a Host, which is one word with spaces around it.
func (f *framing) nextInHost(c byte) framePart {
	// These are the values of matched: 0 before the word. An empty Host is well-formed.
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
