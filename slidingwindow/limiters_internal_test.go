package slidingwindow

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// When there are as many keys as may be, others find no place until some of those are forgotten.
func TestLimitersAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiters(time.Second, 10, func(string) (Window, StopFunc) { return NewLocalWindow() })
		var keys []string // of one part
		for i := 0; len(keys) <= keysPerShard; i++ {
			if key := fmt.Sprint(i); l.shardOf(key) == &l.shards[0] {
				keys = append(keys, key)
			}
		}
		last := keys[keysPerShard]
		for _, key := range keys[:keysPerShard] {
			if !l.Allow(key) {
				t.Fatalf("Allow(%q) = false with %d keys, want true", key, l.Len())
			}
		}
		if now := time.Now(); l.Allow(last) || l.AllowN(last, now, 1) || l.Take(last, now, 1).OK {
			t.Error("one key more is allowed, want it refused")
		}
		if !l.Allow(keys[0]) || l.Len() != keysPerShard {
			t.Errorf("%d keys, of which the first is refused, want %d and it is not", l.Len(), keysPerShard)
		}
		<-time.After(2*time.Second + time.Millisecond)
		if !l.Allow(last) || l.Len() != keysPerShard-1 {
			t.Errorf("%d keys, want the new one for two that were forgotten", l.Len())
		}
	})
}
