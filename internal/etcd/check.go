package etcd

import "net/url"

// Check returns what Open would, but the client: the key of an address, its query, or what is wrong with
// the address. It asks nobody.
func Check(address string) (key string, query url.Values, err error) {
	t, err := parse(address)
	return t.key, t.query, err
}
