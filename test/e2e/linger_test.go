package e2e

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// In Redis a limit that was given outlives rest by ten minutes at least. Its end is moved when less would be
// left, so that it is up to a minute later.
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
		s.want(t, path+c.then, "204")
		const least, slack = 10 * time.Minute, 30 * time.Second
		left := time.Duration(redis.Int(t, "PTTL", "gatehouse:"+c.key)) * time.Millisecond
		if left < least-slack || left > least+time.Minute+slack {
			t.Errorf("%s at rest stays for %s, want ten minutes", c.key, left)
		}
	}
}
