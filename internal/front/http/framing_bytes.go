package http

import "encoding/binary"

// byteClasses says of each byte of ASCII whether it may stand in a name or a method (bit 1), and in a host
// with its port (bit 2): RFC 9110, sections 5.6.2 and 7.2.
const byteClasses = "" +
	"00000000000000000000000000000000" +
	"03013333223323303333333333220200" +
	"03333333333333333333333333320213" +
	"13333333333333333333333333301030"

func isTokenByte(c byte) bool { return c < 0x80 && byteClasses[c]&1 != 0 }

func isHostByte(c byte) bool { return c < 0x80 && byteClasses[c]&2 != 0 }

// isFieldByte reports whether a byte may stand in the value of a field.
func isFieldByte(c byte) bool { return c >= ' ' && c != 0x7f || c == '\t' }

func hexDigit(c byte) (digit byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// countAbove is how many bytes in front are above least and no DEL: 8 at a time, for which a borrow out of
// a byte is looked for where the byte itself has no high bit.
func countAbove(b []byte, least byte) (n int) {
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
