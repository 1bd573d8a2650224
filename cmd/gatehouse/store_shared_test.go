package main

import (
	"strings"
	"testing"
)

// Wherever in an address a password is, it is not shown.
func TestWithoutPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis://h:1/2":                            "redis://h:1/2",
		"redis://me:secret@h:1/2?prefix=a":         "redis://…@h:1/2",
		"redis://me:se@cret@h":                     "redis://…@h",
		"etcd://me:secret@h,i/prefix":              "etcd://…@h,i/prefix",
		"redis://h?sentinel_password=secret":       "redis://h",
		"redis://h?sentinel_password=a@secret":     "redis://…",
		"reds://me:secret?secret@h":                "reds://…",
		"redis://me:x@h?sentinel_password=@secret": "redis://…",
		"me:secret@h":                              "…@h",
		"memory":                                   "memory",
	} {
		if got := withoutPassword(address); got != want || strings.Contains(got, "secret") {
			t.Errorf("withoutPassword(%q) = %q, want %q", address, got, want)
		}
	}
}
