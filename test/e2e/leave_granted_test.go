package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// leaversOfAWire is how many clients of each wire leave in one round of TestCrowdThatLeavesAsItIsGranted.
const leaversOfAWire = 30

// crowdWires are the ways to ask for a slot, and how each of their grants begins.
var crowdWires = []struct {
	resp           bool
	request, grant string // of a name and a key
}{
	{false, "GET /v1/semaphore/%[1]s/acquire?key=%[2]s&expires=0", "HTTP/1.1 200 "},
	{
		false, `{"id":"%[1]s-%[2]s","expires":600000,` +
			`"want":[{"semaphore":"%[1]s"},{"gcra":"%[1]s","limits":"9999/1s"}]}`, "HTTP/1.1 200 ",
	},
	{true, "GH.ACQUIRE semaphore/%[1]s KEY %[2]s EXPIRES 0 MAXWAIT -1", "$"},
	{
		true, "GH.GRANT ID %[1]s-%[2]s EXPIRES 600000 MAXWAIT -1 " +
			"WANT semaphore/%[1]s WANT gcra/%[1]s LIMITS 9999/1s", "*",
	},
}

// TestCrowdThatLeavesAsItIsGranted: a crowd waits for one name over every wire, by itself and by grants, and
// leaves while all are granted at once. Clients that end only their sending half know exactly what they were
// answered: just as many slots are held, and no answer is without its slot.
func TestCrowdThatLeavesAsItIsGranted(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "disk"} { // in others a crowd is granted one by one
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := matrixStores[store](t)
			for range 3 {
				leaveAsGranted(t, s, fresh(t))
			}
		})
	}
}

func leaveAsGranted(t *testing.T, s *server, name string) {
	t.Helper()
	s.get(t, "/v1/semaphore/"+name+"/acquire?size=0&key=none&maxwait=0") // it stops until its size is raised
	var crowd sync.WaitGroup
	var granted atomic.Int64
	raised := make(chan struct{})
	for i := range leaversOfAWire * len(crowdWires) {
		wire := &crowdWires[i%len(crowdWires)]
		request, address := fmt.Sprintf(wire.request, name, "k"+strconv.Itoa(i)), s.address
		switch {
		case wire.resp:
			request, address = redisCommand(request), s.redisAddress(t)
		case request[0] == '{':
			request = rawRequest("POST /v1/grants", "Content-Length: "+strconv.Itoa(len(request))) + request
		default:
			request = rawRequest(request)
		}
		one, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(one, request)
		crowd.Go(func() {
			defer func() { _ = one.Close() }()
			<-raised
			// It leaves by a deadline of its reading, as no test sleeps.
			_ = one.SetReadDeadline(time.Now().Add(rand.N(60 * time.Millisecond)))
			first := make([]byte, 1)
			n, _ := one.Read(first)
			_ = one.(*net.TCPConn).CloseWrite()
			_ = one.SetReadDeadline(time.Now().Add(patience))
			rest, _ := io.ReadAll(one)
			if strings.HasPrefix(string(first[:n])+string(rest), wire.grant) {
				granted.Add(1)
			}
		})
	}
	s.inLine(t, "semaphore/"+name, leaversOfAWire*len(crowdWires))
	close(raised)
	s.want(t, "/v1/semaphore/"+name+"/acquire?size=1000&key=last", "200")
	crowd.Wait()
	held := int(granted.Load()) + 1
	until(t, fmt.Sprintf("%d slots are held, as many as clients were told of", held), func() bool {
		return s.stat(t, "semaphore/"+name, "held") == held
	})
	t.Logf("%d of %d were answered before they left", granted.Load(), leaversOfAWire*len(crowdWires))
}
