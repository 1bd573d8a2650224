package resp

import (
	"bytes"
	"encoding/hex"
	"fmt"
)

// The limits of one command. What is beyond them ends the connection, as in Redis.
const (
	// maxArguments leaves room for a grant over as many names as it may have, each with all its parameters.
	maxArguments = 512
	// maxBulk is the length of one argument: four of the longest messages.
	maxBulk = 16 << 10
	// maxCommand is the length of a whole command, and so of what is kept of one that is not complete.
	maxCommand = 64 << 10
	// maxDigits is enough for every length that is allowed, and for the signs of those that are not.
	maxDigits = 10
)

// tlsHandshake is the first byte of a connection that speaks TLS.
const tlsHandshake = 0x16

// A protocolError is why bytes are no command. It is worded as Redis words it.
type protocolError string

// Error implements error.
func (f protocolError) Error() string { return "Protocol error: " + string(f) }

// A parser takes commands off what a connection has sent: arrays of bulk strings, or lines of words as
// people type them. It never looks beyond the first command, so what it makes of bytes does not depend
// on how they were cut into packets.
type parser struct {
	// args are the arguments of the last command, the first of which is its name. They lie in the
	// data, and mean something for as long as that does.
	args  [][]byte
	words []byte // of a line, without their quotes

	// last is the last command as it came, in the same data, nil if that was a line of words, and rest where
	// its third argument begins, or would. repeated says that the command before it had the same from there
	// on, as most have in a pipeline.
	last     []byte
	rest     int
	repeated bool
}

// beginData makes ready for data that the last command is no part of.
func (p *parser) beginData() { p.last, p.rest = nil, 0 }

// nextCommand takes the first command off data. n is its length, and 0 while it is not complete. A command
// without arguments is nothing to answer.
func (p *parser) nextCommand(data []byte) (n int, err error) {
	before, tail := len(p.args), p.last[p.rest:]
	p.args, p.last, p.rest, p.repeated = p.args[:0], nil, 0, false
	if len(data) == 0 {
		return 0, nil
	}
	switch data[0] {
	case '*':
		return p.readArray(data, tail, before)
	// A client that speaks TLS to this listener is told so, and not that its bytes are odd.
	case tlsHandshake:
		return 0, protocolError("TLS is not spoken here")
	}
	return p.readInline(data)
}

// readArray reads a command that is an array of bulk strings. tail is that of the command before, which had
// that many arguments.
func (p *parser) readArray(data, tail []byte, before int) (n int, err error) {
	count, at, ok := readLength(data, 1)
	if !ok || count > maxArguments {
		return 0, protocolError("invalid multibulk length")
	}
	// A next of 0 is a line that has not ended yet: the whole command is read again from its start when
	// more has come, so that the parser keeps nothing between packets.
	if at == 0 {
		return 0, nil
	}
	// *0 and *-1 have no arguments and are skipped, as in Redis.
	third := 0 // where the third argument begins
	for i := range count {
		if i == 2 {
			third = at
			// The arguments of the command before lie behind the first two still.
			p.repeated = count == before && len(tail) > 0 && at+len(tail) <= maxCommand &&
				bytes.HasPrefix(data[at:], tail)
			if p.repeated {
				p.args, at = p.args[:count], at+len(tail)
				break
			}
		}
		if at == len(data) {
			return 0, nil
		}
		if data[at] != '$' {
			return 0, protocolError(fmt.Sprintf("expected '$', got %q", data[at]))
		}
		// Most arguments have fewer than ten bytes, and their length is one digit.
		size, start, ok := readShortLength(data, at+1)
		if start == 0 {
			size, start, ok = readLength(data, at+1)
		}
		// $-1, a null, is for answers only. Lengths are checked before their bytes have come: a command that
		// will be refused must not be collected first.
		if !ok || size > maxBulk || size < 0 {
			return 0, protocolError("invalid bulk length")
		}
		if start == 0 {
			return 0, nil
		}
		end := start + size
		if end+2 > maxCommand {
			return 0, protocolError("too big a command")
		}
		if len(data) < end+2 {
			return 0, nil
		}
		if data[end] != '\r' || data[end+1] != '\n' {
			return 0, protocolError("expected the end of a line after a bulk string")
		}
		// The capacity ends with the argument: an append to it may not write into the next one.
		p.args = append(p.args, data[start:end:end])
		at = end + 2
	}
	if third == 0 {
		third = at
	}
	p.last, p.rest = data[:at], third
	return at, nil
}

// readShortLength is length for a number of one digit, which most are; next is 0 for all others.
func readShortLength(data []byte, at int) (n, next int, ok bool) {
	if at+2 < len(data) && data[at+1] == '\r' && data[at+2] == '\n' && data[at]-'0' <= 9 {
		return int(data[at] - '0'), at + 3, true
	}
	return 0, 0, false
}

// readLength reads a whole number and the end of its line. next is what follows, 0 while that is not
// complete.
func readLength(data []byte, at int) (n, next int, ok bool) {
	first, negative := at, at < len(data) && data[at] == '-'
	if negative {
		at++
		first = at
	}
	for at < len(data) {
		digit := data[at] - '0'
		if digit > 9 {
			break
		}
		// An overflow could turn a huge length into an allowed one.
		if at-first == maxDigits {
			return 0, 0, false
		}
		n = 10*n + int(digit)
		at++
	}
	switch {
	// The line may go on with the next packet, which is no error.
	case at == len(data):
		return 0, 0, true
	// No digits at all, something other than digits, or -0, which Redis refuses as well.
	case at == first || data[at] != '\r' || negative && n == 0:
		return 0, 0, false
	// The packet was cut between the two bytes of the line end.
	case at+1 == len(data):
		return 0, 0, true
	case data[at+1] != '\n':
		return 0, 0, false
	case negative:
		n = -n
	}
	return n, at + 2, true
}

// readInline reads a command that is a line of words.
func (p *parser) readInline(data []byte) (n int, err error) {
	end := bytes.IndexByte(data[:min(len(data), maxCommand)], '\n')
	// A line that is not complete within maxCommand never will be, and is not collected any further.
	switch {
	case end >= 0:
	case len(data) < maxCommand:
		return 0, nil
	default:
		return 0, protocolError("too big inline request")
	}
	p.words = p.words[:0]
	// The \r before the line end is optional: people type into telnet or nc.
	for rest := bytes.TrimSuffix(data[:end], []byte{'\r'}); ; {
		rest = bytes.TrimLeft(rest, " \t\v\f\r")
		if len(rest) == 0 {
			return end + 1, p.refuseHTTP()
		}
		// A word is a part of p.words. When append moves that, earlier words keep the old array, which is
		// written no more.
		from := len(p.words)
		rest, err = p.readWord(rest)
		if err != nil {
			return 0, err
		}
		if len(p.args) == maxArguments {
			return 0, protocolError("too many words in a line")
		}
		p.args = append(p.args, p.words[from:len(p.words):len(p.words)])
	}
}

// refuseHTTP refuses the first line of a request of HTTP. A browser may be tricked into sending one here,
// with commands of another client in what follows.
func (p *parser) refuseHTTP() error {
	const version = "HTTP/"
	if len(p.args) == 0 {
		return nil
	}
	// In either case: a client that was tricked need not be a browser.
	last := p.args[len(p.args)-1]
	if len(last) >= len(version) && bytes.EqualFold(last[:len(version)], []byte(version)) {
		return protocolError("HTTP is not spoken here")
	}
	return nil
}

// readWord reads the first word of a line and returns the rest. It may have quotes in it, as in Redis:
// "\r\n\x41" with escapes, or 'it\'s' with that one.
func (p *parser) readWord(line []byte) (rest []byte, err error) {
	for len(line) > 0 && !isBlank(line[0]) {
		quote := line[0]
		line = line[1:]
		// A quote may begin in the middle of a word: key"a b" is one word.
		if quote != '"' && quote != '\'' {
			p.words = append(p.words, quote)
			continue
		}
		for {
			if len(line) == 0 {
				return nil, protocolError("unbalanced quotes in request")
			}
			if line[0] == quote {
				line = line[1:]
				break
			}
			line = p.readQuoted(line, quote)
		}
		// A word ends with its quote, as in Redis: "a"b is refused, not joined.
		if len(line) > 0 && !isBlank(line[0]) {
			return nil, protocolError("unbalanced quotes in request")
		}
	}
	return line, nil
}

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// readQuoted reads one character between quotes and returns the rest.
func (p *parser) readQuoted(line []byte, quote byte) (rest []byte) {
	c, used := line[0], 1
	// \x without two hexadecimal digits is no error in Redis but an x; it is left to the cases below.
	if quote == '"' && len(line) > 3 && c == '\\' && line[1] == 'x' {
		if words, err := hex.AppendDecode(p.words, line[2:4]); err == nil {
			p.words = words
			return line[4:]
		}
	}
	switch {
	// A backslash that is the last byte stands for itself. The missing quote is the caller's error.
	case c != '\\' || len(line) == 1:
	// Single quotes know one escape; in all others the backslash stays.
	case quote == '\'':
		if line[1] == '\'' {
			c, used = '\'', 2
		}
	default:
		c, used = line[1], 2
		if i := bytes.IndexByte([]byte("nrtba"), c); i >= 0 {
			c = "\n\r\t\b\a"[i]
		}
	}
	p.words = append(p.words, c)
	return line[used:]
}
