// Package digits writes and reads whole numbers where they are a part of what a request costs.
package digits

import (
	"math/bits"
	"slices"
	"strconv"
)

// digitPairs are the numbers from 00 to 99.
const digitPairs = "00010203040506070809101112131415161718192021222324" +
	"25262728293031323334353637383940414243444546474849" +
	"50515253545556575859606162636465666768697071727374" +
	"75767778798081828384858687888990919293949596979899"

// AppendInteger appends a whole number, as [strconv.AppendInt] does to the base of ten, in half of its time:
// an answer is mostly numbers, and they are a tenth of what a decision in memory costs.
func AppendInteger(dst []byte, n int64) []byte {
	if n >= 0 && n < 10 {
		return append(dst, byte('0'+n))
	}
	if n < 0 {
		return strconv.AppendInt(dst, n, 10)
	}
	rest := uint64(n)
	digits := decimalDigits(rest)
	at := len(dst) + digits
	dst = slices.Grow(dst, digits)[:at]
	// From the last digits to the first.
	for rest >= 10 {
		pair := rest % 100 * 2
		rest /= 100
		at -= 2
		dst[at], dst[at+1] = digitPairs[pair], digitPairs[pair+1]
	}
	if digits%2 != 0 {
		dst[at-1] = byte('0' + rest)
	}
	return dst
}

// decimalDigits returns how many digits a number above 0 has.
func decimalDigits(n uint64) int {
	// A bit is worth 0.301 digits. That is one too few unless the power of ten is beyond the number.
	digits := bits.Len64(n) * 1233 >> 12
	if n >= powersOfTen[digits] {
		digits++
	}
	return digits
}

// powersOfTen are all that fit 64 bits.
var powersOfTen = [...]uint64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
	1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
}

// shortNumber is how many digits are sure to fit 64 bits.
const shortNumber = 18

// ParseInteger reads a whole number, as [strconv.ParseInt] reads one to the base of ten.
func ParseInteger(text []byte) (n int64, ok bool) {
	short := len(text) > 0 && len(text) <= shortNumber
	for i := 0; short && i < len(text); i++ {
		digit := text[i] - '0'
		short = digit <= 9 // a sign is left to the library
		n = 10*n + int64(digit)
	}
	if short {
		return n, true
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}
