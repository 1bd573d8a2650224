package http

import (
	"errors"
	"io"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/valyala/fasthttp"
)

// prefetchedBytes is how much of a body the HTTP library reads by itself, into a buffer of that size. The
// rest is read here: the library would allocate what Content-Length announces before any of it has come.
const prefetchedBytes = 1

// firstBufferBytes is how much is allocated for a body that a route reads. It doubles as the body arrives.
const firstBufferBytes = 2 << 10

// longBodyHeader is a header that marks a request whose body is longer than any may be. No client can send
// it: a header with a space in its name is refused.
const longBodyHeader = "Long Body"

// markLongBody is called before the HTTP library reads the body. It would wait for the first byte of it.
func markLongBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if h.ContentLength() > maxBody {
		h.SetContentLength(0)
		h.Set(longBodyHeader, "1")
	}
	return fasthttp.RequestConfig{}
}

// errBufferedTooMuch says that the budget of the server is used up.
var errBufferedTooMuch = errors.New("server buffers as many bytes as it allows; try again soon")

// A requestBody is that of one request, as far as it has arrived.
type requestBody struct {
	budget  *budget.Budget
	bytes   []byte
	charged int // of the budget
}

// receiveBody reads the body of a request to its end before anything else is done with the request: what is
// left of it would be taken for the next request by a connection that is parked. A body that nobody reads is
// thrown away as it comes. ok is false if the request has been answered instead. The body must be released.
func (s *Server) receiveBody(ctx *fasthttp.RequestCtx, wanted bool) (b requestBody, ok bool) {
	b.budget = s.config.Budget
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return b, true
	}
	err := fasthttp.ErrBodyTooLarge
	switch {
	case len(ctx.Request.Header.Peek(longBodyHeader)) > 0:
	case wanted:
		err = b.readAll(stream)
	default:
		err = discardBody(stream)
	}
	if c := pacedConnOf(ctx.Conn()); err == nil && c != nil && c.sawEOF {
		// The HTTP library takes the end of the connection between two chunks for the end of the body. A
		// whole body is read without coming to that.
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		b.releaseBudget()
		s.answerMalformed(ctx, err)
		ctx.SetConnectionClose()
		return b, false
	}
	ctx.Request.SetBodyRaw(b.bytes)
	return b, true
}

// readAll keeps what arrives.
func (b *requestBody) readAll(stream io.Reader) error {
	for {
		if len(b.bytes) == cap(b.bytes) && !b.growBuffer() {
			return errBufferedTooMuch
		}
		n, err := stream.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case len(b.bytes) > maxBody:
			return fasthttp.ErrBodyTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// growBuffer makes room for more.
func (b *requestBody) growBuffer() bool {
	size := max(firstBufferBytes, 2*cap(b.bytes))
	if !b.budget.Take(size - b.charged) {
		return false
	}
	b.charged = size
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	return true
}

// releaseBudget gives back what was taken of the budget.
func (b *requestBody) releaseBudget() {
	b.budget.Release(b.charged)
	b.charged, b.bytes = 0, nil
}

// discardBody reads a body without keeping it.
func discardBody(stream io.Reader) error {
	var scratch [512]byte
	for total := 0; total <= maxBody; {
		n, err := stream.Read(scratch[:])
		total += n
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fasthttp.ErrBodyTooLarge
}

// wantsBody reports whether the body of a request is read: by a route, or as a form with the parameters of an
// operation.
func (s *Server) wantsBody(ctx *fasthttp.RequestCtx, path []byte) bool {
	if !ctx.IsPost() {
		return false
	}
	if t, p := readTarget(path); p == nil {
		return t.page == ""
	}
	r, _, odd := s.findRoute(path)
	return r != nil && !odd && r.methods[fasthttp.MethodPost] != nil
}
