package http

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
