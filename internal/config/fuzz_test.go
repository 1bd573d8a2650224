package config

import (
	"regexp"
	"strings"
	"testing"
)

// Whatever the file is, it is read or refused, and every fault has a place.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "http: localhost:5505\n", "http: [a, 'b', \"c\"]\n", "http: &a 1\nresp: *a\n",
		"cors: !!int 1", "<<: {}\n---\n...\n", "? |\n a\n: b\n",
		"jarl:\n  - {listen: ':1', name: a, requests: 1, period: 1s}\n",
		"rules:\n  - {match: 'gcra/[a-c]\\?*', on-unreachable: local-share, lazy: 5ms}\nservers: 3\n",
	} {
		f.Add(text)
	}
	place := regexp.MustCompile(`^f:[1-9]\d*:[1-9]\d*: .`)
	f.Fuzz(func(t *testing.T, text string) {
		known := Known{Settings: []string{"http", "resp"}, Addresses: []string{"http"}}
		file := &File{Path: "f", known: known}
		file.parse([]byte(text))
		err := file.Err()
		if err == nil {
			return
		}
		told := err.Error()
		if strings.HasPrefix(told, "f has ") {
			_, told, _ = strings.Cut(told, "\n")
		}
		if !place.MatchString(told) {
			t.Errorf("%q is refused with %q, want the place of the first fault", text, err)
		}
	})
}
