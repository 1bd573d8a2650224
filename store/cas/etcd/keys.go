package etcd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// keys is what all keys begin with, and ends with a slash. Below it are
//
//	records/lock/a/b                            the record of the lock "a/b"
//	holds/lock/a%2Fb/00000000004294967296       its hold with that fencing token
//	claims/lock/a/b                             the claim of a server that lost conflicts for it
//
// A record's key ends with the name as it is, so that etcd's order is the order of names. In the key of a
// hold the name has no slash, so that no name's holds are among those of another; and a long one is a digest
// of it, as a change may write a thousand such keys.
type keys string

const (
	recordsPart = "records/"
	holdsPart   = "holds/"
	claimsPart  = "claims/"

	// maxPart is the longest name that is in the key of a hold.
	maxPart = 128
	// digestMark begins a digest. No name that is escaped begins so.
	digestMark = "%%"
)

// recordPrefix is what the keys of all records of a kind begin with.
func (k keys) recordPrefix(kind gatehouse.Kind) string {
	return string(k) + recordsPart + kind.String() + "/"
}

func (k keys) recordKey(key gatehouse.Key) string { return k.recordPrefix(key.Kind) + key.Name }

func (k keys) claimKey(key gatehouse.Key) string {
	return string(k) + claimsPart + key.Kind.String() + "/" + key.Name
}

// holdPrefix is what the keys of all holds under one name begin with.
func (k keys) holdPrefix(key gatehouse.Key) string {
	name := strings.ReplaceAll(strings.ReplaceAll(key.Name, "%", "%25"), "/", "%2F")
	// A digest has a fixed length, so a thousand of these keys stay small.
	if len(name) > maxPart {
		digest := sha256.Sum256([]byte(key.Name))
		name = digestMark + hex.EncodeToString(digest[:])
	}
	return string(k) + holdsPart + key.Kind.String() + "/" + name + "/"
}

// holdKey is the key of a hold. Fencing tokens have 20 digits, so that the oldest hold comes first.
func (k keys) holdKey(key gatehouse.Key, fence uint64) string {
	return k.holdPrefix(key) + fmt.Sprintf("%020d", fence)
}

// fenceOf is the fencing token of the hold that a key is of, 0 when it is of none.
func fenceOf(key []byte) uint64 {
	text := string(key)
	fence, err := strconv.ParseUint(text[strings.LastIndexByte(text, '/')+1:], 10, 64)
	if err != nil {
		return 0
	}
	return fence
}

// parseKey says which controller a key is of, and whether it is that of a hold. The controller is the zero
// one when it cannot be told. ok is false for a key that is none of ours.
func (k keys) parseKey(text string) (key gatehouse.Key, isHold, ok bool) {
	rest, isHold := strings.CutPrefix(text, string(k)+holdsPart)
	if !isHold {
		rest, ok = strings.CutPrefix(text, string(k)+recordsPart)
		if !ok {
			return key, false, false
		}
	}
	kind, name, _ := strings.Cut(rest, "/")
	key.Kind, ok = gatehouse.ParseKind(kind)
	if !ok {
		return key, isHold, false
	}
	if isHold {
		name, _, ok = strings.Cut(name, "/")
		// A digest does not tell the name: the caller wakes all names instead.
		if strings.HasPrefix(name, digestMark) {
			return gatehouse.Key{}, true, ok
		}
		// The escapes in the reverse of their order, so that %25 does not make new ones.
		name = strings.ReplaceAll(strings.ReplaceAll(name, "%2F", "/"), "%25", "%")
	}
	key.Name = name
	return key, isHold, ok && name != ""
}

// hasHolds reports whether controllers of this kind can be held.
func hasHolds(kind gatehouse.Kind) bool { return kind == gatehouse.Semaphore || kind == gatehouse.Lock }
