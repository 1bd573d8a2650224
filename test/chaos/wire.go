//go:build linux || darwin

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// dialTimeout is how long a connection may take. On one machine it takes no time, or is refused.
const dialTimeout = time.Second

// A clientConn is one connection to a server. It never sends a request twice, as clients of other libraries
// may: a count that was sent twice would be counted twice.
type clientConn struct {
	conn   net.Conn
	reader *bufio.Reader
	opened time.Duration
	send   func(w *clientConn, c *recordedCall) error // HTTP or RESP
}

// dialServer connects to a server.
func dialServer(address string, ask func(*clientConn, *recordedCall) error) (*clientConn, error) {
	conn, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		return nil, err
	}
	return &clientConn{conn: conn, reader: bufio.NewReader(conn), send: ask}, nil
}

// sendHTTP puts the call as a GET.
func sendHTTP(w *clientConn, c *recordedCall) error {
	query := url.Values{}
	list := c.parameterList()
	for i := 0; i < len(list); i += 2 {
		query.Set(list[i], list[i+1])
	}
	target := "/v1/" + c.key + "/" + c.op + "?" + query.Encode()
	// Written by hand: http.Client would send a GET again when its connection breaks.
	if _, err := fmt.Fprintf(w.conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target); err != nil {
		return err
	}
	response, err := http.ReadResponse(w.reader, nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	// To the end, as the next answer follows on the same connection.
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	c.fence, _ = strconv.ParseUint(response.Header.Get("Gatehouse-Fence"), 10, 64)
	c.readHTTP(response, string(body))
	// The answer counts, but the next call needs another connection.
	if response.Close {
		return errConnectionEnds
	}
	return nil
}

// errConnectionEnds says that an answer was the last on its connection.
var errConnectionEnds = errors.New("the connection ends")

// readHTTP fills in what was answered.
func (c *recordedCall) readHTTP(response *http.Response, body string) {
	switch response.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		c.outcome = granted
		c.value, _ = strconv.ParseInt(body, 10, 64)
		c.text, _ = url.PathUnescape(response.Header.Get("X-Bouncer-Message"))
		return
	case http.StatusRequestTimeout:
		c.outcome = refused
		return
	case http.StatusConflict:
		c.outcome = conflict
	case http.StatusServiceUnavailable:
		c.outcome = unavailable
	default:
		c.outcome = faulty
	}
	c.text = fmt.Sprint(response.StatusCode, " ", body)
}

// sendRESP puts the call as a command of the GH family.
func sendRESP(w *clientConn, c *recordedCall) error {
	words := append([]string{"GH." + strings.ToUpper(c.op), c.key}, c.parameterList()...)
	// With details each answer is a map that has the fence and the value in it.
	words = append(words, "WITH", "DETAILS")
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(w.conn, b.String()); err != nil {
		return err
	}
	reply, err := readRESP(w.reader)
	if err != nil {
		return err
	}
	if text, ok := reply.(respError); ok {
		c.failRESP(string(text))
		return nil
	}
	fields, ok := reply.([]any)
	if !ok {
		c.outcome, c.text = faulty, fmt.Sprintf("%v, want a map", reply)
		return nil
	}
	// A flat list of names and values in turn. Without "granted" it is a refusal.
	c.outcome = refused
	for i := 0; i+1 < len(fields); i += 2 {
		number, _ := fields[i+1].(int64)
		switch fields[i] {
		case "granted":
			if number == 1 {
				c.outcome = granted
			}
		case "fence":
			c.fence = uint64(number)
		case "value":
			c.value = number
		case "message":
			c.text, _ = fields[i+1].(string)
		}
	}
	return nil
}

// failRESP fills in an answer that is an error.
func (c *recordedCall) failRESP(text string) {
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "CONFLICT":
		c.outcome = conflict
	case "UNAVAILABLE", "TIMEOUT":
		c.outcome = unavailable
	default:
		c.outcome = faulty
	}
	c.text = text
}

// A respError is a reply that is an error.
type respError string

// readRESP reads one reply of version 2.
func readRESP(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line, want a reply")
	}
	// The first byte is the type. A length of -1 stands for null, which is returned as nil.
	rest := line[1:]
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return respError(rest), nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		// The 2 bytes are the end of the line.
		text := make([]byte, n+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		list := make([]any, n)
		for i := range list {
			list[i], err = readRESP(r)
			if err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("%q, want a reply", line)
}
