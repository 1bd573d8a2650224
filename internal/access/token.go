package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// A tokenHash is the SHA-256 of a token. Tokens are random and long, so that no slow hash is needed.
type tokenHash [sha256.Size]byte

const (
	hashPrefix = "sha256:"
	// tokenPrefix lets people, and programs that look for secrets, see what a token is.
	tokenPrefix = "gatehouse_"
	tokenBytes  = 20
	// maxToken is the length, in bytes, beyond which no text is a token.
	maxToken = 256
)

// NewToken returns a random token of 160 bits, and what stands for it in a file.
func NewToken() (token, hash string) {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // it ends the program if there is no randomness
	encoding := base32.StdEncoding.WithPadding(base32.NoPadding)
	token = tokenPrefix + strings.ToLower(encoding.EncodeToString(random[:]))
	return token, hashToken([]byte(token)).String()
}

// hashToken returns the hash of a token.
func hashToken(token []byte) tokenHash { return sha256.Sum256(token) }

// String is what stands for a token in a file.
func (h tokenHash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// parseHash reads what String writes.
func parseHash(text string) (h tokenHash, ok bool) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	if !ok || len(digits) != 2*len(h) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(digits))
	return h, err == nil
}
