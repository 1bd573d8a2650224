package sim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/front/resp"
)

// A way is how a client comes to a server, and one of the doors.
type way uint8

const (
	direct way = iota // it calls the gate
	viaHTTP
	viaRESP
	ways
)

func (w way) String() string { return [...]string{"", " by HTTP", " by RESP"}[w] }

// doors are the fronts of a server, on connections in memory.
type doors struct {
	http *httpfront.Server
	resp *resp.Server
	web  *loop // of http
	loop *loop // of resp
	work sync.WaitGroup

	mu    sync.Mutex
	conns map[*socket]struct{} // the clients' ends
	ended bool
}

// open opens the doors of a gate.
func (c *cluster) open(gate interface {
	httpfront.Gate
	resp.Gate
}) *doors {
	log := slog.New(slog.DiscardHandler)
	d := &doors{conns: make(map[*socket]struct{})}
	web, handleHTTP, err := httpfront.Embed(httpfront.Config{Gate: gate, Log: log})
	if err != nil {
		c.violated("answer", gatehouse.Key{}, "%v", err)
	}
	d.http, d.web = web, newLoop(handleHTTP)
	server, handler := resp.Embed(resp.Config{Gate: gate, Log: log})
	d.resp, d.loop = server, newLoop(handler)
	d.work.Go(d.web.run)
	d.work.Go(d.loop.run)
	return d
}

// cut resets all connections, as the end of a process does.
func (d *doors) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	for s := range d.conns {
		s.Reset()
	}
}

// stopping is what a server begins to end with.
func (d *doors) stopping() {
	d.http.Stopping()
	d.resp.Stopping()
}

// close closes the doors, once all who waited have been answered.
func (d *doors) close() {
	ctx, cancel := context.WithTimeout(context.Background(), slowest)
	defer cancel()
	_ = d.http.Shutdown(ctx)
	_ = d.resp.Shutdown(ctx)
	d.cut()
	d.web.close()
	d.loop.close()
	d.work.Wait()
}

// dial connects a client.
func (d *doors) dial(by way) (*socket, error) {
	d.mu.Lock()
	ended := d.ended
	d.mu.Unlock()
	if ended {
		return nil, io.EOF
	}
	loop := d.loop
	if by == viaHTTP {
		loop = d.web
	}
	client, server := connected()
	d.work.Go(func() { loop.serve(server) })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns[client] = struct{}{}; d.ended {
		client.Reset()
	}
	return client, nil
}

// leavings are the ways in which a client goes away.
var leavings = []func(*socket){
	func(s *socket) { _ = s.CloseWrite() }, // it reads on: what it is answered it has
	func(s *socket) { _ = s.Close() },
	(*socket).Reset,
}

// through gives a command to a server through a door. gone says that the client left before the answer.
func (s *server) through(r *request) (d gatehouse.Decision, gone bool, err error) {
	conn, err := s.doors.dial(r.by)
	if err != nil {
		return d, false, gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w", r.key, err)
	}
	defer s.doors.hangUp(conn)
	var left atomic.Bool
	if r.patience != gatehouse.Forever {
		timer := time.AfterFunc(r.patience, func() {
			left.Store(true)
			leavings[r.leaves](conn)
		})
		defer timer.Stop()
	}
	if r.by == viaHTTP {
		d, err = askHTTP(conn, r)
	} else {
		d, err = askRESP(conn, r)
	}
	var odd unexpected
	if err != nil && !errors.As(err, &odd) && gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
		err = gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w", r.key, err)
	}
	return d, left.Load(), err
}

func (d *doors) hangUp(s *socket) {
	_ = s.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, s)
}

// An unexpected answer is none that a door should give.
type unexpected string

func (u unexpected) Error() string { return string(u) }

// parameters are those of a command, as names and values in turn.
func parameters(cmd *gatehouse.Command) (list []string) {
	number := func(name string, n int64) { list = append(list, name, strconv.FormatInt(n, 10)) }
	switch cmd.Op {
	case gatehouse.OpAcquire:
		number("size", cmd.Size)
		number("cost", cmd.Cost)
		number("expires", cmd.Expires.Milliseconds())
	case gatehouse.OpCount:
		number("amount", cmd.Amount)
	case gatehouse.OpWait:
		if cmd.Size > 0 { // of a barrier
			number("size", cmd.Size)
		}
	case gatehouse.OpSend:
		list = append(list, "message", cmd.Message)
	case gatehouse.OpRenew:
		if cmd.Expires != gatehouse.AsAcquired {
			number("expires", cmd.Expires.Milliseconds())
		}
	}
	if cmd.Op.Waits() {
		wait := int64(-1)
		if cmd.MaxWait != gatehouse.Forever {
			wait = cmd.MaxWait.Milliseconds()
		}
		number("maxwait", wait)
	}
	if cmd.Holder != "" {
		list = append(list, "key", cmd.Holder)
	}
	if cmd.Fence != 0 {
		list = append(list, "fence", strconv.FormatUint(cmd.Fence, 10))
	}
	return list
}

// askHTTP puts a command to the HTTP front.
func askHTTP(conn *socket, r *request) (d gatehouse.Decision, err error) {
	query := url.Values{}
	for list := parameters(&r.cmd); len(list) > 0; list = list[2:] {
		query.Set(list[0], list[1])
	}
	target := fmt.Sprintf("/v1/%s/%s/%s?%s", r.key.Kind, url.PathEscape(r.key.Name), r.cmd.Op, query.Encode())
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: sim\r\n\r\n", target); err != nil {
		return d, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return d, err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return d, err
	}
	d.At = time.Now()
	d.Fence, _ = strconv.ParseUint(response.Header.Get("Gatehouse-Fence"), 10, 64)
	d.Value, _ = strconv.ParseInt(string(body), 10, 64)
	d.Message, _ = url.PathUnescape(response.Header.Get("X-Bouncer-Message"))
	switch response.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		d.Outcome = gatehouse.Granted
	case http.StatusRequestTimeout:
		d.Outcome = gatehouse.Refused
	case http.StatusConflict:
		d.Outcome = gatehouse.Conflict
	case http.StatusServiceUnavailable:
		return d, gatehouse.Errorf(gatehouse.CodeUnavailable, "%s", body)
	default:
		return d, unexpected(fmt.Sprint(response.Status, " ", string(body)))
	}
	return d, nil
}

// askRESP puts a command to the RESP front.
func askRESP(conn *socket, r *request) (d gatehouse.Decision, err error) {
	words := []string{"GH." + strings.ToUpper(r.cmd.Op.String()), r.key.String()}
	words = append(append(words, parameters(&r.cmd)...), "WITH", "DETAILS")
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return d, err
	}
	fields, err := readFields(bufio.NewReader(conn))
	if err != nil {
		return d, err
	}
	d.At = time.Now()
	for i := 0; i+1 < len(fields); i += 2 {
		switch value := fields[i+1]; fields[i] {
		case "granted":
			if value == "1" {
				d.Outcome = gatehouse.Granted
			}
		case "fence":
			d.Fence, err = strconv.ParseUint(value, 10, 64)
		case "value":
			d.Value, err = strconv.ParseInt(value, 10, 64)
		case "message":
			d.Message = value
		case "CONFLICT", "DELETED":
			d.Outcome = gatehouse.Conflict
		}
	}
	return d, err
}

// readFields reads a reply: a list of texts and numbers, or the code and the text of what went wrong.
func readFields(r *bufio.Reader) (fields []string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case ':', '+':
		return []string{line[1:]}, nil
	case '-':
		code, text, _ := strings.Cut(line[1:], " ")
		switch code {
		case "CONFLICT", "DELETED":
			return []string{code, text}, nil
		case "UNAVAILABLE", "TIMEOUT":
			return nil, gatehouse.Errorf(gatehouse.CodeUnavailable, "%s", text)
		}
		return nil, unexpected(line)
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil || n < 0:
		return nil, err
	case line[0] == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(r, text)
		return []string{string(text[:n])}, err
	}
	for range n {
		one, err := readFields(r)
		if err != nil {
			return nil, err
		}
		fields = append(fields, strings.Join(one, " "))
	}
	return fields, nil
}
