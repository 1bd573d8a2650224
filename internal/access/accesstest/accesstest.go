// Package accesstest makes users for tests.
package accesstest

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/access"
)

// Policy returns a policy with one user, ci, whose token is "secret". line is the rest of its entry, such as
// "may: [{on: '*', do: use}]".
func Policy(tb testing.TB, line string) *access.Policy {
	tb.Helper()
	sum := sha256.Sum256([]byte("secret"))
	text := "users: [{name: ci, tokens: ['sha256:" + hex.EncodeToString(sum[:]) + "'], " + line + "}]\n"
	policy, err := access.ParsePolicy("users.yaml", []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return policy
}
