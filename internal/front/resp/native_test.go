package resp

import (
	"strings"
	"testing"
)

func TestNativeScript(t *testing.T) {
	for _, hello := range []string{"HELLO 2", "HELLO 3"} {
		t.Run(hello, func(t *testing.T) {
			d, clock := openStill(t)
			c := d.dial(t)
			c.ask(hello)
			for _, s := range script(t, "testdata/native.txt") {
				clock.passed.Store(int64(s.at))
				got := strings.TrimSpace(c.ask(s.command))
				got = strings.NewReplacer("{", "[", "}", "]").Replace(got) // a map, in RESP3
				if !matches(s.answer, got) {
					t.Errorf("line %d, at %s: %s = %s, want %s", s.line, s.at, s.command, got, s.answer)
				}
			}
		})
	}
}

// matches compares a text with a pattern in which … stands for anything.
func matches(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "…")
	text, ok := strings.CutPrefix(text, first)
	if !ok || !wild {
		return ok && text == ""
	}
	for i := 0; i <= len(text); i++ {
		if matches(rest, text[i:]) {
			return true
		}
	}
	return false
}
