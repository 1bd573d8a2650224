package http

import (
	"os"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
	"golang.org/x/sys/unix"
)

// A client for which there is no file descriptor left waits for one, also if it was accepted by the last.
func TestLastDescriptor(t *testing.T) {
	r := newRig(t, Config{})
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 200, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	defer func() {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
		for _, file := range files {
			_ = file.Close()
		}
	}()
	for {
		file, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, file)
	}
	for range 2 { // for the client, and to accept it
		_ = files[0].Close()
		files = files[1:]
	}
	c := r.dial(t)
	await.True(t, "the connection is accepted", func() bool { return r.open.Load() == 1 })
	c.send("/counter/c/count")
	_ = files[0].Close()
	files = files[1:]
	c.want(200, "1")
}
