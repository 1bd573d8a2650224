package params

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// parentsOf reads parents of gcra/me.
func parentsOf(text string) ([]gatehouse.Member, error) {
	var f Values
	f.TrySet([]byte("Parents"), []byte(text))
	return f.Parents(gatehouse.Key{Kind: gatehouse.GCRA, Name: "me"})
}

// What parents say, one after the other.
func TestParents(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"gcra/org-7:2000/1m":      "gcra/org-7 2000/1m",
		"GCRA/Org:1/1s":           "gcra/Org 1/1s",
		"pace/a/b:c:1/1s":         "pace/a/b:c 1/1s",
		"gcra/a%3a%3B%2C%25:0/1h": "gcra/a:;,% 0/1h",
		"tokenbucket/a%2fb:1/1s,5/1m;fixedwindow/me:5/day": "tokenbucket/a/b 1/1s,5/1m fixedwindow/me 5/day",
	} {
		all, err := parentsOf(text)
		var got []string
		for _, m := range all {
			got = append(got, m.Key.String(), m.Limits.String())
			if m.Cost != 0 || m.Clip || m.Size != 1 || m.Interval != time.Second {
				t.Errorf("%s is read as %+v, want limits alone", text, m)
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s = %v, %v, want %s", text, got, err, want)
		}
	}
}

// A parent means what an acquire of its name with these limits means.
func TestParentIsAnAcquire(t *testing.T) {
	for kind := gatehouse.TokenBucket; kind.Limiter(); kind++ {
		all, err := parentsOf(kind.String() + "/x:10/1s,200/1m")
		cmd := mustRead(t, kind, gatehouse.OpAcquire, "limits=10/1s,200/1m")
		if err != nil || all[0].Rule != cmd.Rule {
			t.Errorf("%s: %+v, %v, want %+v", kind, all, err, cmd.Rule)
		}
	}
}

func TestBadParents(t *testing.T) {
	for text, want := range map[string]string{
		"gcra/a":                       `parents has "gcra/a", want KIND/NAME:LIMITS such as`,
		";":                            `parents has "", want KIND/NAME:LIMITS`,
		"gcra/a:1/1s;":                 `parents has "", want KIND/NAME:LIMITS`,
		"a:1/1s":                       "want the name of a limiter",
		"lock/a:1/1s":                  "want the name of a limiter",
		"grant/a:1/1s":                 "want the name of a limiter",
		"bucket/a:1/1s":                "want the name of a limiter",
		"gcra/:1/1s":                   "parents has a gcra whose name has 0 bytes",
		"gcra/%00:1/1s":                "control character",
		"gcra/%:1/1s":                  "want every % followed by two hexadecimal digits",
		"gcra/%2g:1/1s":                "want every % followed by two hexadecimal digits",
		"gcra/a:":                      "parents: gcra/a: limits has",
		"gcra/a:5":                     "want limits such as 10/1s",
		"gcra/me:1/1s":                 "parents has gcra/me, want other names than that of the request",
		"gcra/%6de:1/1s":               "parents has gcra/me, want other names than that of the request",
		"gcra/a:1/1s;gcra/a:2/1s":      "parents has gcra/a twice, want each once",
		strings.Repeat("gcra/a:1;", 8): "parents are 9, want at most 8",
	} {
		_, err := parentsOf(text)
		if gatehouse.CodeOf(err) != gatehouse.CodeInvalid || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s = %v, want %s", text, err, want)
		}
	}
}

// Parents that nothing would be charged of are refused, and not ignored.
func TestUselessParents(t *testing.T) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		for op := gatehouse.OpAcquire; op < gatehouse.OpUndo; op++ {
			if !kind.Has(op) || kind == gatehouse.Grant || op == gatehouse.OpEvict || op == gatehouse.OpBump {
				continue
			}
			_, err := read(kind, op, "key=k&status=200&parents=gcra/a:1/1s")
			charged := kind.Limiter() &&
				(op == gatehouse.OpAcquire || op == gatehouse.OpPeek || op == gatehouse.OpDelay)
			if charged != !strings.Contains(fmt.Sprint(err), "parents is for acquire, peek and delay") {
				t.Errorf("%s of a %s with parents: %v", op, kind, err)
			}
		}
	}
}

// What headers call a level is what parents call it.
func TestParentTextIsRead(t *testing.T) {
	for _, name := range []string{"a", "a/b", `x:y;z,%"\`, "ä b", strings.Repeat("€", 170)} {
		key := gatehouse.Key{Kind: gatehouse.Pace, Name: name}
		text := ParentText(key)
		all, err := parentsOf(text + ":1/1s")
		ascii := !strings.ContainsFunc(text, func(r rune) bool { return r > '~' })
		if err != nil || all[0].Key != key || !ascii {
			t.Errorf("%s is written %s, and read as %+v, %v", key, text, all, err)
		}
	}
}
