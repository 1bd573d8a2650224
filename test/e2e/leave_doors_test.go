package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// httpDoor acquires over HTTP.
type httpDoor struct{}

func (httpDoor) address(_ *testing.T, s *server) string { return s.address }

func (httpDoor) acquire(place string, a ask) string { return rawRequest(acquirePath(place, a)) }

func (httpDoor) read(from *bufio.Reader) (token uint64, granted bool, err error) {
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return 0, false, err
	}
	if err := resp.Body.Close(); err != nil {
		return 0, false, err
	}
	token, _ = strconv.ParseUint(resp.Header.Get("Gatehouse-Fence"), 10, 64)
	return token, resp.StatusCode < 300, nil
}

// respDoor acquires over RESP.
type respDoor struct{}

func (respDoor) address(t *testing.T, s *server) string {
	t.Helper()
	return s.redisAddress(t)
}

func (respDoor) acquire(place string, a ask) string {
	return redisCommand("GH.ACQUIRE " + place + " " + strings.Join(a.params(), " ") + " WITH DETAILS")
}

func (respDoor) read(from *bufio.Reader) (token uint64, granted bool, err error) {
	answer, err := (&redisConn{reader: from}).read()
	if err != nil {
		return 0, false, err
	}
	if _, behind, ok := strings.Cut(strings.TrimSuffix(answer, "]"), " fence "); ok {
		token, _ = strconv.ParseUint(strings.Fields(behind)[0], 10, 64)
	}
	return token, strings.Contains(answer, "granted 1 "), nil
}

// slotsOfACell is the size of the semaphore that the clients of a cell leave, each with a key of its own.
const slotsOfACell = 8

// slots counts what clients hold that have left: what was answered, and nothing else.
func (c *cell) slots(name string) {
	place := "semaphore/" + name
	var all sync.WaitGroup
	var answered atomic.Int64
	for i := range slotsOfACell {
		all.Go(func() {
			l := c.dial()
			if i%2 == 0 {
				l.cork()
			}
			a := ask{key: fmt.Sprint("k", i), size: slotsOfACell, expires: c.expires(behindIt), most: -1}
			l.request(place, a)
			l.leave()
			if l.token != 0 {
				answered.Add(1)
			}
		})
	}
	all.Wait()
	for i := range slotsOfACell - int(answered.Load()) {
		a := ask{key: fmt.Sprint("next", i), size: slotsOfACell, most: patience}
		c.want(acquirePath(place, a), "200 "+a.key)
	}
	c.refused(acquirePath(place, ask{key: "last", size: slotsOfACell}))
}

// tokensOfACell is how many of a limit's tokens the clients of a cell ask for.
const tokensOfACell = 20

// tokens counts what clients have taken of a limit. Who has been answered has taken one. Of those who have
// read all that came, nobody else has.
func (c *cell) tokens(name string) {
	place := "tokenbucket/" + name
	limit := "size=100&interval=86400000"
	c.want("/v1/"+place+"/acquire?"+limit, "204")
	var all sync.WaitGroup
	var answered atomic.Int64
	for i := range tokensOfACell {
		all.Go(func() {
			l := c.dial()
			if i%2 == 0 {
				l.cork()
			}
			raw := rawRequest("/v1/" + place + "/acquire?" + limit)
			if _, resp := c.door.(respDoor); resp {
				raw = redisCommand("GH.ACQUIRE " + place + " SIZE 100 INTERVAL 86400000 WITH DETAILS")
			}
			_, _ = l.Write([]byte(raw))
			_ = c.way.do(l.TCPConn)
			if c.way != halfClosed {
				return
			}
			_ = l.SetReadDeadline(time.Now().Add(patience))
			if _, granted, err := c.door.read(l.reader); granted && err == nil {
				answered.Add(1)
			}
		})
	}
	all.Wait()
	taken := func() int64 { return 99 - int64(c.s.stat(c.t, place, "available")) }
	if c.way != halfClosed {
		return // whatever they took, none of them has been told so
	}
	what := fmt.Sprintf("%d of 100 tokens are taken, as many as were answered", answered.Load())
	until(c.t, what, func() bool { return taken() == answered.Load() })
}
