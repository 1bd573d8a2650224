package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// wire writes a command as clients do.
func wire(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// many is a command of so many arguments.
func many(n int) string { return fmt.Sprintf("*%d\r\n", n) + strings.Repeat("$1\r\na\r\n", n) }

// long is a command of so many bytes, and its arguments.
func long(total int) (command string, args []string) {
	x := strings.Repeat("x", 13_000)
	args = []string{x, x, x, x, ""}
	args[4] = strings.Repeat("y", total-len(wire(args...))-len("1234"))
	return wire(args...), args
}

// commands are what bytes are: the arguments joined by |, a fault, or "…" when there is more to come.
var commands = []struct{ fact, data, want string }{
	{"nothing", "", "…"},
	{"an array", wire("PING"), "PING"},
	{"of several", wire("ECHO", "a b"), "ECHO|a b"},
	{"of nothing", "*0\r\n", ""},
	{"of less than nothing", "*-1\r\n", ""},
	{"with an empty argument", wire("ECHO", ""), "ECHO|"},
	{"with line ends in it", wire("ECHO", "a\r\nb"), "ECHO|a\r\nb"},
	{"half", "*2\r\n$4\r\nECHO\r\n$1\r\n", "…"},
	{"without its last byte", "*1\r\n$4\r\nPING\r", "…"},
	{"no number", "*a\r\n", "invalid multibulk length"},
	{"an empty number", "*\r\n", "invalid multibulk length"},
	{"minus nothing", "*-0\r\n", "invalid multibulk length"},
	{"a number with a plus", "*+1\r\n", "invalid multibulk length"},
	{"a number that ends wrong", "*1\rx", "invalid multibulk length"},
	{"a number of eleven digits", "*00000000001\r\n", "invalid multibulk length"},
	{"no bulk", "*1\r\n:1\r\n", "expected '$', got ':'"},
	{"a bulk of less than nothing", "*1\r\n$-1\r\n", "invalid bulk length"},
	{"a bulk without a length", "*1\r\n$\r\n", "invalid bulk length"},
	{"a bulk that is longer than it says", "*1\r\n$4\r\nPINGS\r\n",
		"expected the end of a line after a bulk string"},

	{"as many arguments as there may be", many(maxArguments), strings.Repeat("a|", maxArguments-1) + "a"},
	{"one more", many(maxArguments + 1), "invalid multibulk length"},
	{"as long an argument as there may be", wire(strings.Repeat("x", maxBulk)), strings.Repeat("x", maxBulk)},
	{"one longer", wire(strings.Repeat("x", maxBulk+1)), "invalid bulk length"},

	{"a line", "PING\r\n", "PING"},
	{"as nc sends it", "PING\n", "PING"},
	{"with blanks", "  ECHO \t x \n", "ECHO|x"},
	{"of nothing but blanks", " \r\n", ""},
	{"not ended", "PING", "…"},
	{"double quotes", `ECHO "a b"` + "\n", "ECHO|a b"},
	{"with escapes", `ECHO "\r\n\t\b\a\x41\"\\\q\x4g"` + "\n", "ECHO|\r\n\t\b\aA\"\\qx4g"},
	{"single quotes", `ECHO 'it\'s \n'` + "\n", `ECHO|it's \n`},
	{"empty quotes", `ECHO "" ''` + "\n", "ECHO||"},
	{"quotes in a word", `EC"HO"` + "\n", "ECHO"},
	{"quotes that do not end", `ECHO "a` + "\n", "unbalanced quotes in request"},
	{"a backslash at the end", `ECHO "a\` + "\n", "unbalanced quotes in request"},
	{"quotes that end in a word", `ECHO "a"b` + "\n", "unbalanced quotes in request"},
	{"as many words as there may be", strings.Repeat("a ", maxArguments) + "\n",
		strings.Repeat("a|", maxArguments-1) + "a"},
	{"one word more", strings.Repeat("a ", maxArguments+1) + "\n", "too many words in a line"},
	{"as long a line as there may be", strings.Repeat("x", maxCommand-1) + "\n",
		strings.Repeat("x", maxCommand-1)},
	{"a line that is one longer", strings.Repeat("x", maxCommand) + "\n", "too big inline request"},
}

func TestCommands(t *testing.T) {
	for _, c := range commands {
		var p parser
		n, err := p.nextCommand([]byte(c.data))
		got := string(bytes.Join(p.args, []byte("|")))
		var wrong protocolError
		switch {
		case errors.As(err, &wrong):
			got = string(wrong)
		case n == 0:
			got = "…"
		case n != len(c.data):
			t.Errorf("%s: next(%s) took %d bytes, want %d", c.fact, brief(c.data), n, len(c.data))
		}
		if got != c.want {
			t.Errorf("%s: next(%s) = %s, want %s", c.fact, brief(c.data), brief(got), brief(c.want))
		}
	}
}

func TestCommandLength(t *testing.T) {
	var p parser
	data, args := long(maxCommand)
	if n, err := p.nextCommand([]byte(data)); n != maxCommand || err != nil || len(p.args) != len(args) {
		t.Errorf("next of %d bytes = %d, %v, want all of them", len(data), n, err)
	}
	data, _ = long(maxCommand + 1)
	if n, err := p.nextCommand([]byte(data)); !errors.Is(err, protocolError("too big a command")) {
		t.Errorf("next of %d bytes = %d, %v, want too big a command", len(data), n, err)
	}
}

func brief(text string) string {
	if len(text) > 100 {
		return strconv.Quote(text[:50]) + "…" + strconv.Quote(text[len(text)-50:])
	}
	return strconv.Quote(text)
}

// parsed is all commands in data when it arrives in pieces of so many bytes, with what a session does
// between them: what is left over comes first the next time.
func parsed(data []byte, piece int) (commands []string, left int, err error) {
	var p parser
	var kept []byte
	for len(data) > 0 {
		p.beginData()
		n := min(piece, len(data))
		kept = append(kept, data[:n]...)
		data = data[n:]
		for {
			n, err := p.nextCommand(kept)
			if err != nil {
				return commands, 0, err
			}
			if n == 0 {
				break
			}
			commands = append(commands, fmt.Sprintf("%d %q", n, p.args))
			kept = kept[n:]
		}
		if len(kept) > maxCommand {
			return commands, len(kept), errors.New("more is kept than a command may have")
		}
	}
	return commands, len(kept), nil
}

// Whatever is sent, it does not stop the parser, is taken for the same however it is cut into packets,
// and never keeps more than a command may have.
func FuzzCommands(f *testing.F) {
	for _, c := range commands {
		if len(c.data) < 1000 {
			f.Add([]byte(c.data), 1)
			f.Add([]byte(c.data+wire("PING")+"ECHO 'a b'\r\n"), 3)
		}
	}
	// Commands that end alike, and some that nearly do.
	alike := wire("A", "k", "1", "22") + wire("A", "l", "1", "22") + wire("B", "", "1", "22")
	f.Add([]byte(alike+wire("B", "", "1")+wire("A", "k", "1", "22", "3")+alike+"a b\r\n"+alike), 1)
	f.Add([]byte(alike+"*4\r\n$1\r\nA\r\n$1\r\nk\r\n$1\r\n1\r\n$2\r\n22\n\n"), 5)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		before := bytes.Clone(data)
		want, left, wrong := parsed(data, len(data))
		piece = max(1, piece%64)
		got, rest, err := parsed(data, piece)
		if fmt.Sprint(got, err) != fmt.Sprint(want, wrong) || err == nil && rest != left {
			t.Errorf("in pieces of %d: %q, %d bytes left, %v; want %q, %d, %v",
				piece, got, rest, err, want, left, wrong)
		}
		if !bytes.Equal(data, before) {
			t.Error("the parser changed what it read")
		}
	})
}
