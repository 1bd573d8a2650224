package resp

import (
	"math"
	"strconv"

	"github.com/gatehousehq/gatehouse/internal/digits"
)

// A replyWriter collects answers in either version of the protocol. The zero value is an empty one in RESP2.
type replyWriter struct {
	out   []byte
	three bool // RESP3
}

const lineEnd = "\r\n"

func (r *replyWriter) writeOK() { r.out = append(r.out, "+OK\r\n"...) }

// writeSimple answers a text without line ends.
func (r *replyWriter) writeSimple(text string) {
	r.out = append(append(append(r.out, '+'), text...), lineEnd...)
}

// writeError answers an error: its code, such as ERR, and a sentence.
func (r *replyWriter) writeError(code, text string) {
	r.out = append(append(append(r.out, '-'), code...), ' ')
	r.writeErrorText(text)
}

// writeBareError answers an error that has no code.
func (r *replyWriter) writeBareError(text string) {
	r.out = append(r.out, '-')
	r.writeErrorText(text)
}

// writeErrorText ends an error. Line ends are taken from it.
func (r *replyWriter) writeErrorText(text string) {
	from := len(r.out)
	r.out = append(r.out, text...)
	// The text may quote what the client sent. A line end in it would begin an answer of its own.
	for i, c := range r.out[from:] {
		if c == '\r' || c == '\n' {
			r.out[from+i] = ' '
		}
	}
	r.out = append(r.out, lineEnd...)
}

// writeHeader is a line of a type and a number.
func (r *replyWriter) writeHeader(kind byte, n int64) { r.out = appendLine(r.out, kind, n) }

// appendLine appends a line of a type and a number.
func appendLine(out []byte, kind byte, n int64) []byte {
	if n >= 0 && n < 10 {
		return append(out, kind, byte('0'+n), '\r', '\n')
	}
	if n == -1 { // a time that is not known
		return append(out, kind, '-', '1', '\r', '\n')
	}
	return append(digits.AppendInteger(append(out, kind), n), '\r', '\n')
}

func (r *replyWriter) writeInteger(n int64) { r.writeHeader(':', n) }

func (r *replyWriter) writeIntegers(numbers ...int64) {
	out := r.out
	for _, n := range numbers {
		out = appendLine(out, ':', n)
	}
	r.out = out
}

// writeArray begins an answer of n parts.
func (r *replyWriter) writeArray(n int) { r.writeHeader('*', int64(n)) }

// writeMap begins an answer of n pairs: a map in RESP3, in RESP2 an array of names and values.
func (r *replyWriter) writeMap(n int) {
	if r.three {
		r.writeHeader('%', int64(n))
		return
	}
	r.writeArray(2 * n)
}

func (r *replyWriter) writeBulk(value []byte) {
	r.writeHeader('$', int64(len(value)))
	r.out = append(append(r.out, value...), lineEnd...)
}

func (r *replyWriter) writeText(value string) {
	r.writeHeader('$', int64(len(value)))
	r.out = append(append(r.out, value...), lineEnd...)
}

// writeTexts answers texts, such as the names and values of a map.
func (r *replyWriter) writeTexts(values ...string) {
	for _, value := range values {
		r.writeText(value)
	}
}

// writeVerbatim answers a text for people to read: in RESP3 it is marked as such.
func (r *replyWriter) writeVerbatim(value string) {
	if !r.three {
		r.writeText(value)
		return
	}
	r.writeHeader('=', int64(len("txt:")+len(value)))
	r.out = append(append(append(r.out, "txt:"...), value...), lineEnd...)
}

func (r *replyWriter) writeNull() {
	if r.three {
		r.out = append(r.out, "_\r\n"...)
		return
	}
	r.out = append(r.out, "$-1\r\n"...)
}

// writeDouble answers a number that need not be whole; in RESP2 it is a text.
func (r *replyWriter) writeDouble(f float64) {
	var scratch [32]byte
	format := byte('g')
	if math.Abs(f) < 1e17 { // as Redis, which has no exponents where digits will do
		format = 'f'
	}
	text := strconv.AppendFloat(scratch[:0], f, format, -1, 64)
	if !r.three {
		r.writeBulk(text)
		return
	}
	r.out = append(append(append(r.out, ','), text...), lineEnd...)
}
