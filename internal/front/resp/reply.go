package resp

import (
	"math"
	"strconv"
)

// A reply collects answers in either version of the protocol. The zero value is an empty one in RESP2.
type reply struct {
	out   []byte
	three bool // RESP3
}

const lineEnd = "\r\n"

func (r *reply) ok() { r.out = append(r.out, "+OK\r\n"...) }

// simple answers a text without line ends.
func (r *reply) simple(text string) { r.out = append(append(append(r.out, '+'), text...), lineEnd...) }

// fail answers an error: its code, such as ERR, and a sentence.
func (r *reply) fail(code, text string) {
	r.out = append(append(append(r.out, '-'), code...), ' ')
	r.sentence(text)
}

// failBare answers an error that has no code.
func (r *reply) failBare(text string) {
	r.out = append(r.out, '-')
	r.sentence(text)
}

// sentence ends an error. Line ends are taken from it.
func (r *reply) sentence(text string) {
	from := len(r.out)
	r.out = append(r.out, text...)
	for i, c := range r.out[from:] {
		if c == '\r' || c == '\n' {
			r.out[from+i] = ' '
		}
	}
	r.out = append(r.out, lineEnd...)
}

// head is a line of a type and a number.
func (r *reply) head(kind byte, n int64) {
	if n >= 0 && n < 10 {
		r.out = append(r.out, kind, byte('0'+n), '\r', '\n')
		return
	}
	r.out = append(strconv.AppendInt(append(r.out, kind), n, 10), lineEnd...)
}

func (r *reply) integer(n int64) { r.head(':', n) }

// array begins an answer of n parts.
func (r *reply) array(n int) { r.head('*', int64(n)) }

// mapping begins an answer of n pairs: a map in RESP3, in RESP2 an array of names and values.
func (r *reply) mapping(n int) {
	if r.three {
		r.head('%', int64(n))
		return
	}
	r.array(2 * n)
}

func (r *reply) bulk(value []byte) {
	r.head('$', int64(len(value)))
	r.out = append(append(r.out, value...), lineEnd...)
}

func (r *reply) text(value string) {
	r.head('$', int64(len(value)))
	r.out = append(append(r.out, value...), lineEnd...)
}

// texts answers an array of texts.
func (r *reply) texts(values []string) {
	r.array(len(values))
	for _, value := range values {
		r.text(value)
	}
}

// plain answers a text for people to read: in RESP3 it is marked as such.
func (r *reply) plain(value string) {
	if !r.three {
		r.text(value)
		return
	}
	r.head('=', int64(len("txt:")+len(value)))
	r.out = append(append(append(r.out, "txt:"...), value...), lineEnd...)
}

func (r *reply) null() {
	if r.three {
		r.out = append(r.out, "_\r\n"...)
		return
	}
	r.out = append(r.out, "$-1\r\n"...)
}

// double answers a number that need not be whole; in RESP2 it is a text.
func (r *reply) double(f float64) {
	var scratch [32]byte
	format := byte('g')
	if math.Abs(f) < 1e17 { // as Redis, which has no exponents where digits will do
		format = 'f'
	}
	text := strconv.AppendFloat(scratch[:0], f, format, -1, 64)
	if !r.three {
		r.bulk(text)
		return
	}
	r.out = append(append(append(r.out, ','), text...), lineEnd...)
}
