package redis

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// No two names share a key, each is found again in its key, and none moves to another place of a cluster
// than its whole key says.
func TestNames(t *testing.T) {
	t.Parallel()
	n := keyNames{"gatehouse:"}
	for name, want := range map[string]string{
		"a": "a", "a/b c": "a/b c", "{a}b": "%7Ba%7Db", "50%": "50%25", "%7B": "%257B",
		"a\nb\x00": "a%0Ab%00",
		"ä*?[x]":   "ä*?[x]", "": "", "\x7f": "%7F",
	} {
		key := string(n.appendKey(nil, gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}))
		if key != "gatehouse:semaphore/"+want {
			t.Errorf("key of %q = %q, want ...%q", name, key, want)
		}
	}
	for _, key := range []string{
		"semaphore/a", "gatehouse:a", "gatehouse:none/a", "gatehouse:semaphore/%", "gatehouse:semaphore/%2",
		"gatehouse:semaphore/%7b", "gatehouse:semaphore/%41", "gatehouse:semaphore/{",
		"gatehouse:semaphore/%G0",
	} {
		if of, ok := n.parseKey(key); ok {
			t.Errorf("parse(%q) = %v, want none: no name has that key", key, of)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		checkPair(t, n, rapid.String().Draw(t, "a"), rapid.StringMatching(`[%{}/a0B7\n]*`).Draw(t, "b"))
	})
}

func checkPair(t interface{ Fatalf(string, ...any) }, n keyNames, a, b string) {
	keyA := gatehouse.Key{Kind: gatehouse.Lock, Name: a}
	keyB := gatehouse.Key{Kind: gatehouse.Lock, Name: b}
	textA, textB := string(n.appendKey(nil, keyA)), string(n.appendKey(nil, keyB))
	if (textA == textB) != (a == b) {
		t.Fatalf("%q and %q have the keys %q and %q", a, b, textA, textB)
	}
	if back, ok := n.parseKey(textA); !ok || back != keyA {
		t.Fatalf("parse(%q) = %v, %v, want %v", textA, back, ok, keyA)
	}
	if strings.ContainsAny(textA, "{}\r\n\x00") || utf8.ValidString(a) != utf8.ValidString(textA) {
		t.Fatalf("the key of %q is %q, want no braces and no control characters", a, textA)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a", "b")
	f.Add("%7B", "{")
	f.Add("%", "%25")
	n := keyNames{"p:"}
	f.Fuzz(func(t *testing.T, a, b string) {
		checkPair(t, n, a, b)
		if of, ok := n.parseKey(a); ok && string(n.appendKey(nil, of)) != a {
			t.Fatalf("parse(%q) = %v, whose key is another", a, of)
		}
	})
}

// Of a hundred thousand names that differ little, no two of all their pairs have the same key.
func TestManyNames(t *testing.T) {
	t.Parallel()
	const letters = "%{}27B5Da/" // what could be mixed up, to the length of five
	n, seen := keyNames{"p:"}, make(map[string]bool, 111_111)
	key := gatehouse.Key{Kind: gatehouse.Event}
	var text []byte
	var add func(depth int)
	add = func(depth int) {
		key.Name = string(text)
		seen[string(n.appendKey(nil, key))] = true
		for i := 0; i < len(letters) && depth > 0; i++ {
			text = append(text, letters[i])
			add(depth - 1)
			text = text[:len(text)-1]
		}
	}
	add(5)
	if len(seen) != 111_111 {
		t.Errorf("%d keys of 111111 names, want as many", len(seen))
	}
}
