package freeport

import (
	"net"
	"testing"
)

// Each is another one, can be listened at, and is none that a connection could be given meanwhile.
func TestNext(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 100 {
		address, err := Next()
		if err != nil {
			t.Fatal(err)
		}
		if seen[address] {
			t.Errorf("Next() = %s once more, want another", address)
		}
		seen[address] = true
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("Next() = %s, at which %v", address, err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		if port := listener.Addr().(*net.TCPAddr).Port; port < lowest || port >= highest {
			t.Errorf("the port is %d, want %d to %d", port, lowest, highest)
		}
	}
}
