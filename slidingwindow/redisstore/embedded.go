package redisstore

import (
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"
	"encoding/hex"
)

// addText adds to a count.
//
//go:embed add.lua
var addText string

// pushText adds to a count what is new in the sum of one source.
//
//go:embed push.lua
var pushText string

// A script is a change that Redis makes atomically. Redis knows it by its hash once it was sent the text.
type script struct{ text, hash string }

func newScript(text string) script {
	hash := sha1.Sum([]byte(text)) //nolint:gosec // it is how Redis names scripts
	return script{text, hex.EncodeToString(hash[:])}
}
