package redisstore_test

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/slidingwindow"
	"github.com/gatehousehq/gatehouse/slidingwindow/redisstore"
	"github.com/redis/rueidis"
)

// Two processes let 10 a second pass together, neither ever one too many.
func Example_strict() {
	server, err := redistest.Open() // use a server of your own
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
	store := redisstore.New(client, 2*size)
	window := func() (slidingwindow.Window, slidingwindow.StopFunc) {
		return slidingwindow.NewStrictWindow("api", store, 2)
	}
	here, stop := slidingwindow.NewLimiter(size, 10, window)
	defer stop()
	there, stop := slidingwindow.NewLimiter(size, 10, window)
	defer stop()

	now, passed := time.Now(), 0
	for range 20 {
		for _, process := range []*slidingwindow.Limiter{here, there} {
			if process.AllowN(now, 1) {
				passed++
			}
		}
	}
	fmt.Println(passed, "of 40 pass")
	// Output:
	// 10 of 40 pass
}
