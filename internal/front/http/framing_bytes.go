package http

import "encoding/binary"

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
