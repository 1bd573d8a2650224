package etcd

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address string
		want    parsedAddress
	}{
		{"etcd://a:1/k", parsedAddress{hosts: []string{"a:1"}, key: "/k"}},
		{"etcd://h1:2379,h2:2380/path/of/key?ttl=10s", parsedAddress{
			hosts: []string{"h1:2379", "h2:2380"}, key: "/path/of/key", query: url.Values{"ttl": {"10s"}},
		}},
		{"etcd://h1,h2:7/k", parsedAddress{hosts: []string{"h1:2379", "h2:7"}, key: "/k"}},
		{"etcd://[::1]:7,[::2]/k/", parsedAddress{hosts: []string{"[::1]:7", "[::2]:2379"}, key: "/k/"}},
		{"etcd://eve:p%40s:s@h/k%20%3Fx", parsedAddress{
			hosts: []string{"h:2379"}, user: "eve", password: "p@s:s", key: "/k ?x",
		}},
		{"etcd://h/k?a=1&a=2&b", parsedAddress{
			hosts: []string{"h:2379"}, key: "/k", query: url.Values{"a": {"1", "2"}, "b": {""}},
		}},
	} {
		if c.want.query == nil {
			c.want.query = url.Values{}
		}
		got, err := parseAddress(c.address)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("parseAddress(%q) = %+v, %v, want %+v", c.address, got, err, c.want)
		}
	}
}

func TestParseSaysWhichPartIsWrong(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("h,", maxHosts)
	for _, c := range []struct{ address, want string }{
		{"", `scheme is "", want etcd://`},
		{"h:2379/k", `scheme is "", want etcd://`},
		{"etcds://h:2379/k", `scheme is "etcds://", want etcd://`},
		{"http://eve:secret@h/k", `scheme is "http://", want etcd://`},
		{"etcd://", "no host"},
		{"etcd:///k", "no host"},
		{"etcd://h1,,h2/k", `host ""`},
		{"etcd://h:/k", `port of host "h:" is "", want 1 to 65535`},
		{"etcd://:2379/k", `host ":2379", want host:port`},
		{"etcd://a:b:c/k", `host "a:b:c", want host:port`},
		{"etcd://h:0/k", `port of host "h:0" is "0", want 1 to 65535`},
		{"etcd://h:65536/k", `port of host "h:65536" is "65536"`},
		{"etcd://h:etcd/k", `port of host "h:etcd" is "etcd"`},
		{"etcd://h h/k", `host "h h"`},
		{"etcd://" + many + "h/k", "33 hosts, want at most 32"},
		{"etcd://eve@h/k", `user "eve" without password, want user:password@`},
		{"etcd://:secret@h/k", `user "" without password`},
		{"etcd://%zz:secret@h/k", `user "%zz"`},
		{"etcd://eve:%secret@h/k", `password of user "eve" is not well escaped`},
		{"etcd://eve:my/secret@h/k", "an @ behind the first / or ?, want it written as %40"},
		{"etcd://eve:secret?1@h/k", "an @ behind"},
		{"etcd://eve:12/secret@h/k", "an @ behind"},
		{"etcd://h/k?secret@", "an @ behind"},
		{"etcd://h", "no key, want a path behind the hosts"},
		{"etcd://h/", "no key"},
		{"etcd://h?ttl=1s", "no key"},
		{"etcd://h/%zz", `key "/%zz"`},
		{"etcd://h/a#b", `key "/a#b" has a #`},
		{"etcd://h/" + strings.Repeat("k", maxKey), "key of 513 bytes, want at most 512"},
		{"etcd://h/k?ttl=%zz", `query "ttl=%zz"`},
	} {
		_, err := parseAddress(c.address)
		if err == nil || !strings.HasPrefix(err.Error(), "etcd address: "+c.want) {
			t.Errorf("parseAddress(%q) = %v, want an error of %q", c.address, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("parseAddress(%q) = %v, want no password in it", c.address, err)
		}
	}
	longest := "etcd://" + many[:len(many)-1] + "/" + strings.Repeat("k", maxKey-1)
	if got, err := parseAddress(longest); err != nil {
		t.Errorf("parseAddress(%d hosts, key of %d bytes) = %v, want none", len(got.hosts), len(got.key), err)
	}
}

// Nobody listens there, and Open neither fails nor waits.
func TestOpenDoesNotNeedEtcd(t *testing.T) {
	t.Parallel()
	client, key, query, err := Open("etcd://127.0.0.1:1/k?ttl=1s")
	if err != nil {
		t.Fatal(err)
	}
	if key != "/k" || query.Get("ttl") != "1s" {
		t.Errorf("Open() = key %q, query %v, want /k and ttl=1s", key, query)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
