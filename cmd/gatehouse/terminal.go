package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// printTo returns a writer to a file. If that is a terminal, it shows control characters in place of obeying
// them: names, messages and owners come from other people, who could send the terminal commands. Files and
// programs get all bytes as they are.
func printTo(f *os.File) io.Writer {
	if isTerminal(f) {
		return terminalWriter{f}
	}
	return f
}

// printNote prints a line about this program on the standard error.
func printNote(format string, args ...any) {
	_, _ = fmt.Fprintf(printTo(os.Stderr), "gatehouse: "+format+"\n", args...)
}

// A terminalWriter shows control characters.
type terminalWriter struct{ out io.Writer }

// Write implements io.Writer.
func (w terminalWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.out, showControls(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// showControls returns a text in which control characters and marks that turn the direction of a text are
// written as JSON has them, such as \u001b. Ends of lines and tabs stay.
func showControls(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, isControl) {
		return text
	}
	var shown strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			// A byte that is not UTF-8. Some terminals would take it for a control character.
			fmt.Fprintf(&shown, `\x%02x`, text[0])
		case isControl(r):
			fmt.Fprintf(&shown, `\u%04x`, r)
		default:
			shown.WriteString(text[:size])
		}
		text = text[size:]
	}
	return shown.String()
}

// isControl is whether a terminal could obey a character, or show what follows it in another order.
func isControl(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}
