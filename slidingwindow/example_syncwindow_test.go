package slidingwindow_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	sw "github.com/gatehousehq/gatehouse/slidingwindow"
	"github.com/redis/rueidis"
)

// A RedisDatastore is a Datastore as people wrote it for RussellLuo/slidingwindow, along its documented
// example: two methods, two round trips for an Add. It works as it is. Package redisstore has a better
// one.
type RedisDatastore struct {
	client rueidis.Client
	ttl    time.Duration
}

// NewRedisDatastore returns one that keeps counts for ttl.
func NewRedisDatastore(client rueidis.Client, ttl time.Duration) *RedisDatastore {
	return &RedisDatastore{client: client, ttl: ttl}
}

func (d *RedisDatastore) fullKey(key string, start int64) string {
	return fmt.Sprintf("%s@%d", key, start)
}

// Add adds value to a count.
func (d *RedisDatastore) Add(key string, start, value int64) (int64, error) {
	ctx, k := context.Background(), d.fullKey(key, start)
	c, err := d.client.Do(ctx, d.client.B().Incrby().Key(k).Increment(value).Build()).AsInt64()
	if err != nil {
		return 0, err
	}
	d.client.Do(ctx, d.client.B().Expire().Key(k).Seconds(int64(d.ttl/time.Second)).Build())
	return c, nil
}

// Get returns a count.
func (d *RedisDatastore) Get(key string, start int64) (int64, error) {
	get := d.client.B().Get().Key(d.fullKey(key, start)).Build()
	value, err := d.client.Do(context.Background(), get).ToString()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(value, 10, 64)
}

// The other documented example of RussellLuo/slidingwindow, with another import path and, for this test,
// with a Redis of its own.
func Example_syncWindow() {
	server, err := redistest.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Kill()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Address}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	size := time.Second
	store := NewRedisDatastore(client, 2*size) // twice the size is just enough

	lim, stop := sw.NewLimiter(size, 10, func() (sw.Window, sw.StopFunc) {
		return sw.NewSyncWindow("test", sw.NewBlockingSynchronizer(store, 500*time.Millisecond))
	})
	defer stop()

	ok := lim.Allow()
	fmt.Printf("ok: %v\n", ok)

	// Output:
	// ok: true
}
