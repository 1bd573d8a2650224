package redis

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/store/cas"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, shown, prefix string }{
		{"redis://h", "redis://h:6379", "gatehouse:"},
		{"redis://h:1/7?prefix=a-b/", "redis://h:1/7", "a-b/"},
		{"redis://[::1]:5", "redis://[::1]:5", "gatehouse:"},
		{"redis://[::1]", "redis://[::1]:6379", "gatehouse:"},
		{"rediss://me:p%40ss%2Fword@h?addr=i:2&addr=j", "rediss://me@h:6379,i:2,j:6379", "gatehouse:"},
		{
			"redis://:secret@h?master_set=m&sentinel_password=hidden", "redis://h:26379 master m",
			"gatehouse:",
		},
	} {
		a, err := parseAddress(c.text)
		if err != nil {
			t.Errorf("parseAddress(%q): %v", c.text, err)
			continue
		}
		if a.text != c.shown || a.prefix != c.prefix {
			t.Errorf("parseAddress(%q) = %q with prefix %q, want %q, %q",
				c.text, a.text, a.prefix, c.shown, c.prefix)
		}
	}
	a, err := parseAddress("rediss://me:p%40ss%2Fword@h?addr=i:2&addr=[::2]:3")
	if err != nil || a.login != (login{"me", "p@ss/word"}) || a.tls == nil ||
		!slices.Equal(a.hosts, []string{"h:6379", "i:2", "[::2]:3"}) {
		t.Errorf("parseAddress = %+v, %v", a, err)
	}
}

// Each error names the part that is wrong, and none shows a password.
func TestBadAddress(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for text, want := range map[string]string{
		"":                      "scheme",
		"h:6379":                "",
		"http://h":              `scheme "http"`,
		"redis://":              "no host",
		"redis://:6379":         "host",
		"redis://h:0":           "port",
		"redis://h:65536":       "port",
		"redis://h/x":           `database "x"`,
		"redis://h/-1":          `database "-1"`,
		"redis://h/1/2":         "database",
		"redis://h/3?addr=i":    "database 3 of a cluster",
		"redis://h?addr=i:x":    "port",
		"redis://h?addr=i/1":    "host",
		"redis://h?prefix=":     "prefix",
		"redis://h?prefix=a{b}": "prefix",
		"redis://h?prefix=a*":   "prefix",
		"redis://h?prefix=" + strings.Repeat("a", 65): "prefix",
		"redis://h?prefix=a&prefix=b":                 "prefix",
		"redis://h?db=1":                              `parameter "db"`,
		"redis://h?ca=/x":                             "rediss",
		"rediss://h?ca=/does/not/exist":               "ca:",
		"rediss://h?cert=/x":                          "cert",
		"rediss://h?cert=/x&key=/y":                   "cert and key",
		"redis://me@h":                                "without a password",
		"redis://me:" + secret + "@h:x":               "URL",
		"redis://me:" + secret + "/@h":                "",
		"redis://me:12/" + secret + "@h":              "%2F",
		"redis://me:12?" + secret + "@h":              "%3F",
		"redis://h?sentinel_password=a@" + secret:     "%40",
		"redis://h?addr=me:" + secret + "%40i":        "addr",
		"redis://h?addr=:" + secret + "%40i:1":        "addr",
		"redis://me:" + secret + "%@h":                "URL",
		"redis://me:" + secret + "#@h":                "URL",
		"redis://me:" + secret + "@h?x=%zz":           "parameters",
		"redis://h?sentinel_username=me":              "sentinel_username",
		"redis://h?sentinel_password=" + secret:       "master_set",
	} {
		_, err := Open(text)
		if err == nil || !strings.HasPrefix(err.Error(), "redis address: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want an error with %q", text, err, want)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("Open(%q): %v, want no password", text, err)
		}
	}
}

// Whatever an address is, its password is not in the error, nor in how it is shown.
func FuzzAddress(f *testing.F) {
	f.Add("redis://user", "@h:1?prefix=a")
	f.Add("rediss://", "@h,i?addr=j&master_set=m")
	f.Fuzz(func(t *testing.T, before, behind string) {
		const password = "Pa55-word-0f-n0body"
		for _, secret := range []string{password, url.QueryEscape(password)} {
			a, err := parseAddress(before + ":" + secret + behind)
			text := fmt.Sprint(err)
			if err == nil {
				text = a.text
			}
			if strings.Contains(text, password) && a != nil && a.login.password == password {
				t.Errorf("%q shows the password", text)
			}
		}
	})
}

// What may have been done and what has not been is told apart.
func TestFault(t *testing.T) {
	t.Parallel()
	a := &address{passwords: []string{"hidden"}}
	for text, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'.": "OOM",
		"READONLY You can't write against a read only replica.":   "READONLY",
		"unknown command": "unknown",
	} {
		if got := firstWord(text); got != want {
			t.Errorf("word(%q) = %q, want %q", text, got, want)
		}
	}
	err := a.classifyError(&dialError{errors.New("refused with hidden")})
	if !errors.Is(err, cas.ErrNotSent) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("fault(dialError) = %v, want ErrNotSent and no password", err)
	}
	err = a.classifyError(fmt.Errorf("hidden: %w", io.EOF))
	if nothingChanged(err) || !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("fault(EOF) = %v, want it unknown, and no password", err)
	}
}
