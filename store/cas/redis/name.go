package redis

import (
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// keyNames are the names of keys and channels. The record of semaphore "a" is at PREFIX + "semaphore/a".
type keyNames struct{ prefix string }

const hexDigits = "0123456789ABCDEF"

// needsEscape reports whether a byte of a name is written as %XX: it would be read otherwise by Redis or by
// people. What stands between { and } chooses the place of a key in a cluster.
func needsEscape(c byte) bool { return c < ' ' || c == 0x7f || c == '%' || c == '{' || c == '}' }

// appendKey appends the key of a record.
func (n keyNames) appendKey(key []byte, of gatehouse.Key) []byte {
	key = append(key, n.prefix...)
	key = append(key, of.Kind.String()...)
	key = append(key, '/')
	for i := range len(of.Name) {
		c := of.Name[i]
		if needsEscape(c) {
			key = append(key, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			key = append(key, c)
		}
	}
	return key
}

// parseKey is append backwards. It takes only what append makes.
func (n keyNames) parseKey(key string) (of gatehouse.Key, ok bool) {
	rest, ok := strings.CutPrefix(key, n.prefix)
	if !ok {
		return of, false
	}
	kind, name, ok := strings.Cut(rest, "/")
	if !ok {
		return of, false
	}
	of.Kind, ok = gatehouse.ParseKind(kind)
	if !ok {
		return of, false
	}
	of.Name, ok = unescapeName(name)
	if !ok {
		return gatehouse.Key{}, false
	}
	return of, true
}

func unescapeName(text string) (name string, ok bool) {
	if !strings.ContainsFunc(text, func(r rune) bool { return r < 0x80 && needsEscape(byte(r)) }) {
		return text, true
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) {
			high, low := strings.IndexByte(hexDigits, text[i+1]), strings.IndexByte(hexDigits, text[i+2])
			// Only what needsEscape is accepted as %XX, so each name has one key.
			c = byte(high<<4 | low) // looked at in the next line
			if high < 0 || low < 0 || !needsEscape(c) {
				return "", false
			}
			i += 2
		} else if needsEscape(c) {
			return "", false
		}
		plain = append(plain, c)
	}
	return string(plain), true
}

// kindPattern is what the keys of one kind match.
func (n keyNames) kindPattern(kind gatehouse.Kind) string { return n.prefix + kind.String() + "/*" }

// wakeChannel is where a server listens.
func (n keyNames) wakeChannel(server uint32) string {
	return n.prefix + "wake/" + strconv.FormatUint(uint64(server), 16)
}
