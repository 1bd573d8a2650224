package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// blocked measures the memory of connections that wait in a RESP command.
func blocked(ctx context.Context, b *bench) (text string, rows []row, err error) {
	count, err := b.waiterCount()
	if err != nil {
		return "", nil, err
	}
	all, err := b.race(
		// A server is started again for each figure: memory that a process has had once it seldom gives
		// back.
		func() (float64, error) { return b.blockedBytes(ctx, b.role("gnet"), count) },
		func() (float64, error) { return b.blockedBytes(ctx, b.gatehouseRESP, count) },
	)
	if err != nil {
		return "", nil, err
	}
	most := budget{most: 1.4 * (1 << 10), absolute: true}
	rows = []row{{"resident memory, each", all[0], all[1], bytes, most, ""}}
	text = fmt.Sprintf("%d connections wait in `GH.ACQUIRE semaphore/bench` for a slot that another holds. The\n"+
		"floor is the bare server on gnet, which has as many connections and nobody waiting. The memory\n"+
		"that the kernel has for each socket is in neither figure.", count)
	return text, rows, nil
}

// blockedBytes is how much the server's memory grows for each of count connections.
func (b *bench) blockedBytes(ctx context.Context, command func(string) []string, count int) (float64, error) {
	s, err := b.start(ctx, command)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	// The first takes the one slot, so that every later connection has to wait.
	asked := respServer{server: s}
	if _, err := asked.once(ctx, question{acquireWords("first"), ""}); err != nil {
		return 0, err
	}
	before, err := s.resident()
	if err != nil {
		return 0, err
	}
	c, err := b.startClients(ctx, "blocked", s.address, count)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	// The clients are ready once they have written; the server may still have to read.
	if err := asked.wait(ctx, count); err != nil {
		return 0, err
	}
	after, err := s.resident()
	return (after - before) / float64(count), err
}

// acquireWords ask for the one slot there is, with a key, and wait for it.
func acquireWords(key string) []string {
	return []string{
		"GH.ACQUIRE", "semaphore/bench", "SIZE", "1", "EXPIRES", "0", "MAXWAIT", "-1", "KEY", key,
	}
}

// wait returns when count connections wait at the server, or at once when the server has no line.
func (s respServer) wait(ctx context.Context, count int) error {
	const patience = 20 // seconds
	stats := question{[]string{"GH.STATS", "semaphore/bench"}, ""}
	for range patience * 10 {
		answer, err := s.once(ctx, stats)
		if err != nil {
			return err
		}
		// The floor on gnet answers every command with 1 and has no line to wait for.
		if waiting := group([]byte(answer), `waiting\r\n:(\d+)`); answer == ":1\r\n" ||
			waiting == strconv.Itoa(count) {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("fewer than %d wait after %d s", count, patience)
}

// blockAsClients opens connections that wait for the slot, says so, and keeps them.
func blockAsClients(address string, count int) error {
	for i := range count {
		if _, err := request(address, inRESP(acquireWords("key-"+strconv.Itoa(i)))); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		if i%100 == 0 {
			time.Sleep(10 * time.Millisecond) // the server's backlog is finite
		}
	}
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}
