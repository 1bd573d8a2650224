package e2e

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// In Redis a limit that was given outlives rest by ten minutes, from its last use on.
func TestLimitsOutliveRestInRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := start(t, "--store", "redis://"+redis.Address)
	for _, c := range []struct{ key, first, want, then string }{
		{"gcra/a", "acquire?size=7&interval=1000", "204", "acquire"},
		{"semaphore/a", "acquire?size=7&key=k", "200 k", "release?key=k"},
	} {
		path := "/v1/" + c.key + "/"
		s.want(t, path+c.first, c.want)
		// A minute is left, as after nine of rest, so that what is left later comes from the next use.
		redis.CLI(t, "PEXPIRE", "gatehouse:"+c.key, "60000")
		s.want(t, path+c.then, "204")
		const least, slack = 10 * time.Minute, 30 * time.Second
		left := time.Duration(redis.Int(t, "PTTL", "gatehouse:"+c.key)) * time.Millisecond
		if left < least-slack || left > least+time.Minute+slack {
			t.Errorf("%s at rest stays for %s, want ten minutes", c.key, left)
		}
	}
}
