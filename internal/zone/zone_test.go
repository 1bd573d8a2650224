package zone

import (
	"strings"
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	for _, name := range []string{"", "UTC", "Europe/Berlin", "America/Argentina/ComodRivadavia"} {
		one, err := Load(name)
		if err != nil {
			t.Fatalf("Load(%q) = %v", name, err)
		}
		if other, _ := Load(name); other != one {
			t.Errorf("Load(%q) read it twice", name)
		}
		if want := name; name != "" && one.String() != want {
			t.Errorf("Load(%q) = %s", name, one)
		}
	}
	if utc, _ := Load(""); utc != time.UTC {
		t.Errorf(`Load("") = %s, want UTC`, utc)
	}
}

func TestLoadUnknown(t *testing.T) {
	for _, name := range []string{
		"Local", "Europe/Nowhere", "../etc/passwd", "/etc/passwd", "Europe/./Berlin", "Europe//Berlin",
		"Europe/Berlin/", "Europe", ".", "\x00", strings.Repeat("x", maxName+1),
	} {
		if zone, err := Load(name); err == nil || len(err.Error()) > 350 {
			t.Errorf("Load(%q) = %v, %v, want a short error", name, zone, err)
		}
	}
}
