//go:build linux || darwin

package etcd

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// What calls cost, on three members that do not wait for their disks. One caller says how long a call takes,
// many say how many there can be.
func BenchmarkStore(b *testing.B) {
	cluster := etcdtest.Start(b, 3)
	s := serve(b, cluster.URL(""))
	pair := func(expires time.Duration) func(gatehouse.Key) {
		cmd := acquire("h")
		cmd.Expires = expires
		return func(key gatehouse.Key) {
			s.do(b, key, cmd, gatehouse.Granted)
			s.do(b, key, release("h"), gatehouse.Granted)
		}
	}
	cases := []struct {
		name string
		kind gatehouse.Kind
		call func(key gatehouse.Key)
	}{
		{"lock and unlock with an end", gatehouse.Lock, pair(time.Minute)},
		{"lock and unlock without one", gatehouse.Lock, pair(0)},
		{"count", gatehouse.Counter, func(key gatehouse.Key) {
			s.do(b, key, gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}, gatehouse.Granted)
		}},
		{"value", gatehouse.Counter, func(key gatehouse.Key) {
			s.do(b, key, gatehouse.Command{Op: gatehouse.OpValue}, gatehouse.Granted)
		}},
	}
	for _, c := range cases {
		b.Run(c.name+"/one caller", func(b *testing.B) {
			for b.Loop() {
				c.call(named(c.kind, "one"))
			}
		})
		b.Run(c.name+"/64 callers, a name each", func(b *testing.B) {
			var callers atomic.Int64
			b.SetParallelism(32) // for each of two processors
			b.RunParallel(func(loop *testing.PB) {
				key := named(c.kind, strconv.FormatInt(callers.Add(1), 10))
				for loop.Next() {
					c.call(key)
				}
			})
		})
	}
	b.Run("count/64 callers, one name", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(loop *testing.PB) {
			for loop.Next() {
				s.do(b, named(gatehouse.Counter, "hot"),
					gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}, gatehouse.Granted)
			}
		})
	})
}
