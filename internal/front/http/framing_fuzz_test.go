package http

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/panjf2000/gnet/v2"
	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"
)

// A tape is a connection whose client has sent everything, and then reads.
type tape struct {
	gnet.Conn
	about any
	data  []byte // that has arrived
	out   bytes.Buffer
	ended bool
}

func (c *tape) Context() any                { return c.about }
func (c *tape) SetContext(about any)        { c.about = about }
func (c *tape) EventLoop() gnet.EventLoop   { return tapeLoop{} }
func (c *tape) InboundBuffered() int        { return len(c.data) }
func (c *tape) Peek(n int) ([]byte, error)  { return c.data[:n], nil }
func (c *tape) Write(b []byte) (int, error) { return c.out.Write(b) }
func (*tape) Fd() int                       { return -1 }
func (*tape) Gone() bool                    { return false }
func (*tape) LocalAddr() net.Addr           { return new(net.TCPAddr) }
func (*tape) RemoteAddr() net.Addr          { return new(net.TCPAddr) }
func (*tape) Wake(gnet.AsyncCallback) error { return nil }

// Discard implements gnet.Reader.
func (c *tape) Discard(n int) (int, error) {
	c.data = c.data[n:]
	return n, nil
}

// Close implements gnet.Conn.
func (c *tape) Close() error {
	c.ended = true
	return nil
}

// A tapeLoop is the event loop of a tape.
type tapeLoop struct{ gnet.EventLoop }

// Execute implements gnet.EventLoop.
func (tapeLoop) Execute(ctx context.Context, runnable gnet.Runnable) error { return runnable.Run(ctx) }

// A reader reads requests as the server does, and writes down what it sees.
type requestReader struct {
	server  *Server
	handler gnet.EventHandler
}

func newRequestReader(tb testing.TB) *requestReader {
	tb.Helper()
	server, handler, err := Embed(Config{
		Gate: gate.New(memory.New(memory.Config{}), gate.Config{}), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Shutdown(tb.Context()); err != nil {
			tb.Error(err)
		}
	})
	return &requestReader{server, handler}
}

// seen are the requests in some bytes as this server reads them. last says that it ended the connection.
func (r *requestReader) seen(input []byte, piece int) (seen []string, last bool) {
	r.server.handle = func(ctx *fasthttp.RequestCtx, _ bool) bool {
		seen = append(seen,
			fmt.Sprintf("%s %s %q", ctx.Method(), ctx.Request.Header.RequestURI(), ctx.Request.Body()))
		return true
	}
	conn := new(tape)
	_, _ = r.handler.OnOpen(conn)
	for part := range slices.Chunk(input, piece) {
		conn.data = part
		if r.handler.OnTraffic(conn) == gnet.Close || conn.ended {
			break
		}
	}
	_ = r.handler.OnClose(conn, nil)
	return seen, bytes.Contains(conn.out.Bytes(), []byte("\r\nConnection: close\r\n"))
}

// seenByNetHTTP are the requests as net/http reads them. whole says that nothing but the end of the bytes, or
// the content of a well-framed request, ended it.
func seenByNetHTTP(input []byte) (seen []string, whole bool) {
	in := bufio.NewReader(bytes.NewReader(input))
	for {
		for { // it takes no empty lines in front of a request, which RFC 9112 wants ignored
			if b, _ := in.Peek(2); string(b) != "\r\n" {
				break
			}
			_, _ = in.Discard(2)
		}
		req, err := http.ReadRequest(in)
		if err != nil {
			var target *url.Error
			return seen, errors.As(err, &target)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return seen, false
		}
		seen = append(seen, fmt.Sprintf("%s %s %q", req.Method, req.RequestURI, body))
		if req.Close {
			return seen, true
		}
	}
}

// compare fails when the server sees another request than net/http does. It may refuse more.
func (r *requestReader) compare(t interface{ Fatalf(string, ...any) }, input []byte) {
	theirs, whole := seenByNetHTTP(input)
	for _, piece := range []int{len(input) + 1, 1} {
		ours, last := r.seen(input, piece)
		switch common := min(len(ours), len(theirs)); {
		case !slices.Equal(ours[:common], theirs[:common]):
			t.Fatalf("%q in pieces of %d: read as\n%q, by net/http as\n%q", input, piece, ours, theirs)
		case len(ours) > len(theirs) && !whole:
			t.Fatalf("%q in pieces of %d: read as\n%q, refused by net/http after\n%q", input, piece, ours,
				theirs)
		case len(ours) < len(theirs) && !last:
			t.Fatalf("%q in pieces of %d: read as\n%q without a refusal, by net/http as\n%q",
				input, piece, ours, theirs)
		}
	}
}

// FuzzFraming holds the framing of requests against that of net/http.
func FuzzFraming(f *testing.F) {
	for _, request := range wellFramed {
		f.Add([]byte(request))
	}
	f.Add([]byte("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0 \r\n\r\n" +
		"GET /b HTTP/1.1\r\nHost: h\r\n\r\n"))
	// Here the connection ends between two chunks.
	f.Add([]byte("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"))
	reader := newRequestReader(f)
	f.Fuzz(func(t *testing.T, input []byte) { reader.compare(t, input) })
}

// pieces of requests, of which random ones are put together.
var pieces = []string{
	"GET ", "POST ", "HEAD ", "/a", "/b?c=d", "http://h/e", "*", " HTTP/1.1\r\n", " HTTP/1.0\r\n",
	" HTTP/1.2\r\n",
	"GET /f HTTP/1.1\r\nHost: h\r\n", "POST /g HTTP/1.1\r\nHost: h\r\n", "GET /h HTTP/1.0\r\n",
	"Host: h\r\n", "Host:i\r\n", "host : h\r\n", "Host: \r\n", "\r\n", "\n", "\r", "\x00", " ", "\t", ":",
	";", ",",
	"Content-Length: 3\r\n", "Content-Length: 0\r\n", "content-length:\t3 \r\n", "Content-Length: 3, 3\r\n",
	"Content-Length: +3\r\n", "Content-Length: 3\n", "Content-Length : 3\r\n", "Content-Length\r\n : 3\r\n",
	"Transfer-Encoding: chunked\r\n", "Transfer-Encoding:\r\n chunked\r\n", "Transfer-Encoding: identity\r\n",
	"Transfer-Encoding: gzip, chunked\r\n", "transfer-encoding:CHUNKED\n", "Transfer-Encoding: xchunked\r\n",
	"Connection: close\r\n", "Connection: keep-alive\r\n", "Expect: 100-continue\r\n", "Trailer: A\r\n",
	"A: b\r\n", "A: b\n", "A : b\r\n", "A\r\n", ": b\r\n", " c\r\n", "\tc\r\n", "abc", "abc\r\n",
	"3\r\nabc\r\n",
	"3\r\n", "3 \r\n", "3;x\r\nabc\r\n", "3;\n", "3\nabc\n", "03\r\nabc\r\n", "3zz\r\n", "0\r\n\r\n",
	"0\r\n", "0junk\r\n",
	"0\r\nA: b\r\n\r\n", "0\r\nA: b\n\n", "0\r\nContent-Length: 3\r\n\r\n", "-1\r\n", "ffffffffffffffff\r\n",
}

func TestFramingAgainstNetHTTP(t *testing.T) {
	reader := newRequestReader(t)
	rapid.Check(t, func(t *rapid.T) {
		input := ""
		for _, piece := range rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 24).Draw(t, "pieces") {
			input += piece
		}
		reader.compare(t, []byte(input))
	})
}
