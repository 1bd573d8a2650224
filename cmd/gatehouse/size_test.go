package main

import "testing"

func TestSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want size
		show string
	}{
		{"0", 0, "0"}, {"1", 1, "1"}, {"1000", 1000, "1000"},
		{"64KiB", 64 << 10, "64KiB"}, {"1024", 1024, "1KiB"},
		{"128MiB", 128 << 20, "128MiB"}, {"2GiB", 2 << 30, "2GiB"}, {"1536MiB", 1536 << 20, "1536MiB"},
		{"12B", 12, "12"}, {"8589934591GiB", 8589934591 << 30, "8589934591GiB"},
	} {
		var got size
		if err := got.Set(c.text); err != nil || got != c.want || got.String() != c.show {
			t.Errorf("size %s = %d, %v, shown as %s, want %d, %s", c.text, got, err, &got, c.want, c.show)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "1MB", "1 MiB", "8589934592GiB", "0x10"} {
		got := size(7)
		if err := got.Set(text); err == nil || got != 7 {
			t.Errorf("size %q = %d, %v, want an error and no change", text, got, err)
		}
	}
}
