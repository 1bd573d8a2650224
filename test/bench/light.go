//go:build !peers

package main

// heavy are the contestants that bring much else along: none without the build tag peers.
func heavy() []contestant { return nil }
