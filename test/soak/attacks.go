//go:build linux

package main

import (
	"fmt"
	"strings"
	"time"
)

// An attack is one way to harm a server with few bytes. It runs until its field ends.
type attack struct {
	name, about string
	run         func(f *attackField)
}

// attacks are made all at once.
var attacks = []attack{
	{"asset-readers", "ask for a large asset and do not read it", func(f *attackField) {
		f.occupyConns(f.server.http, 200, requestText("GET", "/docs/api/"), 4*time.Second)
	}},
	{"list-readers", "ask for lists of the longest names and do not read them", attackLists},
	{"page-readers", "ask for status pages and metrics and do not read them", func(f *attackField) {
		f.occupyConns(f.server.http, 50,
			requestText("GET", "/metrics")+requestText("GET", "/capacity?limit=1000"),
			4*time.Second)
	}},
	{"grpc-headers", "open gRPC streams and send nothing on them", func(f *attackField) {
		f.occupyConns(f.server.grpc, 10, http2Preface()+openStreams(1000), 6*time.Second)
	}},
	{"grpc-halves", "announce large gRPC messages and send a part", func(f *attackField) {
		f.occupyConns(f.server.grpc, 4, http2Preface()+halfMessages(100), 6*time.Second)
	}},
	{"bodies-announced", "announce bodies and send none", func(f *attackField) {
		f.occupyConns(f.server.http, 400, "POST /anything HTTP/1.1\r\nHost: localhost\r\n"+
			"Expect: 100-continue\r\nContent-Length: 65536\r\n\r\n", 5*time.Second)
	}},
	{"bodies-halved", "send a half of a body that a route reads", func(f *attackField) {
		f.occupyConns(f.server.http, 200, "POST /v1/capacity/get HTTP/1.1\r\nHost: localhost\r\n"+
			"Content-Length: 65536\r\n\r\n"+strings.Repeat("x", 32<<10), 5*time.Second)
	}},
	{"slow-senders", "send a request a byte a second", func(f *attackField) {
		f.dripBytes(f.server.http, 100,
			"GET /v1/counter/soak-slow/value HTTP/1.1\r\nHost: localhost\r\nX: ", "x")
	}},
	{"pipelined-unread", "send requests without reading the answers", func(f *attackField) {
		f.occupyConns(f.server.http, 20,
			strings.Repeat(requestText("GET", "/v1/counter/soak-unread/value"), 1000),
			4*time.Second)
	}},
	{"resp-client-list", "have connections listed over and over", func(f *attackField) {
		go f.occupyConns(f.server.resp, 500, "", 30*time.Second)
		f.pourBatches(f.server.resp, time.Second, func(int) string {
			return strings.Repeat("CLIENT LIST\r\n", f.scaleNumber(1000))
		})
	}},
	{"resp-client-id", "look a connection up over and over", func(f *attackField) {
		f.pourBatches(f.server.resp, time.Second, func(int) string {
			return strings.Repeat("CLIENT LIST ID 1\r\n", f.scaleNumber(5000))
		})
	}},
	{"resp-docs-unread", "have commands described without reading", func(f *attackField) {
		f.occupyConns(f.server.resp, 50, strings.Repeat("COMMAND DOCS\r\n", 300), 4*time.Second)
	}},
	{"resp-half", "send half a command", func(f *attackField) {
		f.occupyConns(f.server.resp, 200, "*3\r\n$10\r\nGH.ACQUIRE\r\n$16384\r\n"+strings.Repeat("x", 16000),
			5*time.Second)
	}},
	{"name-flood", "use a new name for each request", func(f *attackField) {
		f.pourBatches(f.server.resp, 50*time.Millisecond, func(round int) string {
			return commandsForNames(round, 500, "CL.THROTTLE flood%d 10 10 1000000\r\n")
		})
	}},
	{"heavy-names", "use new names with the largest states", func(f *attackField) {
		f.pourBatches(f.server.resp, 50*time.Millisecond, func(round int) string {
			return commandsForNames(round, 50, "GH.ACQUIRE slidingwindow/heavy%d MODE fine MAXWAIT 0 LIMITS "+
				"9/1s,99/2s,999/3s,9999/4s,9999/5s,9999/6s,9999/7s,9999/8s\r\n")
		})
	}},
	{"holders", "hold semaphores for ever under long keys", func(f *attackField) {
		key := strings.Repeat("k", 480)
		f.pourBatches(f.server.resp, 50*time.Millisecond, func(round int) string {
			return commandsForNames(round, 50,
				"GH.ACQUIRE semaphore/many SIZE 1000000 EXPIRES 0 MAXWAIT 0 KEY "+key+"%d\r\n")
		})
	}},
	{"messages", "send events with long messages", func(f *attackField) {
		message := strings.Repeat("m", 4000)
		f.pourBatches(f.server.resp, 50*time.Millisecond, func(round int) string {
			return commandsForNames(round, 50, "GH.SEND event/message%d MESSAGE "+message+"\r\n")
		})
	}},
	{"leases", "lease many resources", attackLeases},
	{"long-logs", "look at logs that have a long past", func(f *attackField) {
		const path = "/v1/slidinglog/soak-long/%s?maxwait=0&limits=16384/61m,16384/62m,16384/63m,16384/64m"
		f.pourBatches(f.server.http, 10*time.Millisecond, func(int) string {
			return strings.Repeat(requestText("GET", fmt.Sprintf(path, "acquire")), 20) +
				requestText("GET", fmt.Sprintf(path, "peek"))
		})
	}},
	{"costly-requests", "ask for what costs most", func(f *attackField) {
		f.pourBatches(f.server.http, 20*time.Millisecond, func(int) string {
			return requestText("GET", "/v1/gcra?limit=1") + requestText("GET", "/docs/api/") +
				requestText("GET", "/metrics") + requestText("GET", "/capacity?limit=1000") +
				requestText("GET", "/v1/fixedwindow/soak-zone/acquire?interval=day&zone=Europe/Nowhere")
		})
	}},
	{"waiters", "wait in line and leave", func(f *attackField) {
		f.occupyConns(f.server.http, 300, requestText("GET", "/v1/lock/soak-0/acquire?maxwait=60000"),
			2*time.Second)
	}},
	{"jarl-connects", "take places of a schedule", func(f *attackField) {
		for !f.hasEnded() {
			conn, err := f.dialNarrow(f.server.jarl)
			if err == nil {
				_ = conn.Close()
			}
			f.tally.recordStep(err)
			f.pauseFor(2 * time.Millisecond)
		}
	}},
	{"rebinding", "ask in the name of another host, as a browser would that was led here",
		func(f *attackField) {
			const head = " HTTP/1.1\r\nHost: evil.example\r\nUser-Agent: Mozilla/5.0\r\n\r\n"
			f.pourBatches(f.server.http, 20*time.Millisecond, func(int) string {
				return "DELETE /v1/counter/soak" + head + "GET /v1/counter/soak/count" + head +
					"GET /v1/lock/soak-1/release?key=honest" + head
			})
		}},
	{"odd-framing", "send what others may read as two requests", attackFraming},
}

// requestText is a request that a connection goes on after.
func requestText(method, path string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
}

// commandsForNames makes commands for names that were not used before.
func commandsForNames(round, n int, command string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, command, round*n+i)
	}
	return text.String()
}

// attackLists makes a thousand names that are as long as names may be, and has them listed.
func attackLists(f *attackField) {
	name := strings.Repeat("<", 500)
	conn, err := f.dialNarrow(f.server.resp)
	if err != nil {
		f.tally.recordStep(err)
		return
	}
	// The answers are not read: only the names matter here.
	for i := range f.scaleNumber(1000) {
		_, err = fmt.Fprintf(conn, "GH.SEND event/%s%04d\r\n", name, i)
	}
	f.tally.recordStep(err)
	_ = conn.Close()
	f.occupyConns(f.server.http, 100, requestText("GET", "/v1/event?limit=1000"), 4*time.Second)
}

// attackFraming sends requests whose end is not clear.
func attackFraming(f *attackField) {
	const head = "POST /v1/capacity/get HTTP/1.1\r\nHost: localhost\r\n"
	// What follows the odd part would count or release something if the server took it for a second request.
	odd := []string{
		head + "Transfer-Encoding: chunked\r\n\r\n1fzz\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\n0junk\r\n\r\n" +
			requestText("GET", "/v1/counter/soak/count"),
		head + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
			requestText("GET", "/v1/counter/soak/count"),
		"GET / HTTP/1.1\nHost: localhost\n\n" + requestText("DELETE", "/v1/counter/soak"),
		"GET /v1/lock/soak-1/release?key=honest HTTP/1.1\r\nHost : localhost\r\n\r\n",
	}
	// A connection for each, as the server closes it after most of these.
	for i := 0; !f.hasEnded(); i++ {
		conn, err := f.dialNarrow(f.server.http)
		if err == nil {
			_, err = conn.Write([]byte(odd[i%len(odd)]))
			f.pauseFor(20 * time.Millisecond)
			_ = conn.Close()
		}
		f.tally.recordStep(err)
	}
}
