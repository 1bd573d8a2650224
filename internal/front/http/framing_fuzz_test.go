package http

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/valyala/fasthttp"
	"pgregory.net/rapid"
)

// A tape is a connection whose client has sent everything, and then reads.
type tape struct {
	in    io.Reader
	piece int // most bytes of one read
	out   bytes.Buffer
}

func (c *tape) Read(b []byte) (int, error)     { return c.in.Read(b[:min(len(b), c.piece)]) }
func (c *tape) Write(b []byte) (int, error)    { return c.out.Write(b) }
func (*tape) Close() error                     { return nil }
func (*tape) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (*tape) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (*tape) SetDeadline(time.Time) error      { return nil }
func (*tape) SetReadDeadline(time.Time) error  { return nil }
func (*tape) SetWriteDeadline(time.Time) error { return nil }

// A reader reads requests as the server does, and writes down what it sees.
type requestReader struct{ server *Server }

func newRequestReader(tb testing.TB) *requestReader {
	tb.Helper()
	server, err := New(Config{
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
	return &requestReader{server}
}

// seen are the requests in some bytes as this server reads them. last says that it ended the connection.
func (r *requestReader) seen(input []byte, piece int) (seen []string, last bool) {
	r.server.http.Handler = func(ctx *fasthttp.RequestCtx) {
		if ctx.Request.IsBodyStream() {
			body, ok := r.server.receiveBody(ctx, true)
			if !ok {
				return
			}
			defer body.release()
		}
		seen = append(seen,
			fmt.Sprintf("%s %s %q", ctx.Method(), ctx.Request.Header.RequestURI(), ctx.PostBody()))
	}
	conn := &tape{in: bytes.NewReader(input), piece: piece}
	_ = r.server.http.ServeConn(&pacedConn{Conn: conn, server: r.server}) // which is answered, or the end
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
