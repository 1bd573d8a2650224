package redis

import (
	"net/url"
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

// recordKey is the key of a record.
func (n keyNames) recordKey(of gatehouse.Key) string {
	var room [96]byte // nearly all keys are shorter
	return string(n.appendKey(room[:0], of))
}

// parseKey is recordKey backwards.
func (n keyNames) parseKey(key string) (of gatehouse.Key, ok bool) {
	kind, name, _ := strings.Cut(strings.TrimPrefix(key, n.prefix), "/")
	of.Kind, ok = gatehouse.ParseKind(kind)
	if !ok {
		return of, false
	}
	var err error
	of.Name, err = url.PathUnescape(name)
	// Nothing but what recordKey makes is taken, so that each name has one key.
	if err != nil || n.recordKey(of) != key {
		return gatehouse.Key{}, false
	}
	return of, true
}

// kindPattern is what the keys of one kind match.
func (n keyNames) kindPattern(kind gatehouse.Kind) string { return n.prefix + kind.String() + "/*" }

// wakeChannel is where a server listens.
func (n keyNames) wakeChannel(server uint32) string {
	return n.prefix + "wake/" + strconv.FormatUint(uint64(server), 16)
}
