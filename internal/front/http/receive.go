package http

import (
	"bytes"
	"errors"
	"io"
	"net"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/valyala/fasthttp"
)

// prefetchedBytes is how much of a body the HTTP library reads by itself, into a buffer of that size. The
// rest is read here: the library would allocate what Content-Length announces before any of it has come
// (docs/decisions/0027).
const prefetchedBytes = 1

// firstBufferBytes is the first buffer for a body, which doubles as the body arrives, and the one that
// readBuffered borrows.
const firstBufferBytes = 2 << 10

// longBodyHeader marks a request whose body is longer than any may be. No client can send this header: one
// with a space in its name is malformed.
const longBodyHeader = "Long Body"

// markLongBody is called before the HTTP library reads the body. It keeps the library from waiting for the
// first byte of a body that is refused anyway.
func markLongBody(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	// Nearly all are shorter than any limit.
	if n := h.ContentLength(); n > maxBody && n > bodyLimit(h.RequestURI()) {
		h.SetContentLength(0)
		h.Set(longBodyHeader, "1")
	}
	return fasthttp.RequestConfig{}
}

// errBufferedTooMuch is the error when the budget of the server is used up.
var errBufferedTooMuch = errors.New("server buffers as many bytes as it allows; try again soon")

// A requestBody is the body of one request, as far as it has arrived.
type requestBody struct {
	server  *Server
	first   *[firstBufferBytes]byte // which most bodies fit in; nil before any of it is read
	bytes   []byte
	charged int // of the budget
	most    int // bytes
}

// receiveBody reads the body of a request to its end. A body that is not wanted is thrown away as it arrives.
// If ok is false, the request has been answered. Otherwise the body must be released.
func (s *Server) receiveBody(ctx *fasthttp.RequestCtx, wanted bool) (b requestBody, ok bool) {
	b.server, b.most = s, bodyLimit(ctx.Request.Header.RequestURI())
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return b, true
	}
	// This comes before anything else is done with the request: if its connection is parked, the rest of the
	// body would be taken for the next request.
	err := fasthttp.ErrBodyTooLarge
	switch {
	case len(ctx.Request.Header.Peek(longBodyHeader)) > 0:
	case wanted:
		err = b.readAll(stream)
	default:
		err = discardBody(stream)
	}
	// The HTTP library takes the end of the connection between two chunks for the end of the body. A whole
	// body is read without reaching the end of the connection, so this one was cut off.
	if c := pacedConnOf(ctx.Conn()); err == nil && c != nil && c.sawEOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		b.release()
		s.answerMalformed(ctx, err)
		ctx.SetConnectionClose()
		return b, false
	}
	ctx.Request.SetBodyRaw(b.bytes)
	return b, true
}

// readAll reads the stream into bytes.
func (b *requestBody) readAll(stream io.Reader) error {
	for {
		if len(b.bytes) == cap(b.bytes) && !b.growBuffer() {
			return errBufferedTooMuch
		}
		// A stream may return bytes together with its end or an error.
		n, err := stream.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case len(b.bytes) > b.most:
			return fasthttp.ErrBodyTooLarge
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// growBuffer doubles the buffer. It reports false if the budget has no room.
func (b *requestBody) growBuffer() bool {
	size := max(firstBufferBytes, 2*cap(b.bytes))
	// A small form is never refused for what others have in memory.
	if size > budget.Tiny {
		if !b.server.config.Budget.Take(size - b.charged) {
			return false
		}
		b.charged = size
	}
	if b.first == nil {
		b.first = b.server.bodyPool.Get().(*[firstBufferBytes]byte)
		b.bytes = b.first[:0]
		return true
	}
	b.bytes = append(make([]byte, 0, size), b.bytes...)
	return true
}

// release gives the buffer back. Nothing may be read from the body any more.
func (b *requestBody) release() {
	b.server.config.Budget.Release(b.charged)
	if b.first != nil {
		b.server.bodyPool.Put(b.first)
	}
	*b = requestBody{}
}

// discardBody reads a body without keeping it, up to the length that a body may have.
func discardBody(stream io.Reader) error {
	// A body that is too long ends the connection with 413. Reading on would let a client keep it busy for as
	// long as it likes.
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

// dropBody throws the body of a request away that is answered already. Without its end the connection ends.
func dropBody(ctx *fasthttp.RequestCtx) {
	stream := ctx.RequestBodyStream()
	if stream == nil {
		return
	}
	if len(ctx.Request.Header.Peek(longBodyHeader)) > 0 || discardBody(stream) != nil {
		ctx.SetConnectionClose()
	}
}

// wantsBody reports whether the body of a request is read: by a route, or as a form with the parameters of an
// operation.
func (s *Server) wantsBody(ctx *fasthttp.RequestCtx, path []byte) bool {
	// The body of any other method has no meaning here.
	if !ctx.IsPost() {
		return false
	}
	if t, ok := readSeveral(path); ok {
		return !t.odd && t.op != gatehouse.OpPeek
	}
	if t, p := readTarget(path); p == nil {
		return t.page == ""
	}
	r, _, odd := s.findRoute(path)
	return r != nil && !odd && r.methods[fasthttp.MethodPost] != nil
}

// maxFormBytes is the longest form in a body. One with a message of 4096 bytes, each of them escaped, fits
// in.
const maxFormBytes = 16 << 10

// formType is the only type of a body that holds parameters.
const formType = "application/x-www-form-urlencoded"

// readForm returns the parameters in the body of a POST, still encoded. The body of a GET has no meaning and
// is ignored.
func readForm(ctx *fasthttp.RequestCtx) (encoded []byte, p *rejection) {
	if !ctx.IsPost() {
		return nil, nil
	}
	// A POST without a body needs no Content-Type: its parameters are in the query.
	body := ctx.Request.Body()
	if len(body) == 0 {
		return nil, nil
	}
	if p := checkFormType(ctx.Request.Header.ContentType()); p != nil {
		return nil, p
	}
	if len(body) > maxFormBytes {
		return nil, reject(fasthttp.StatusRequestEntityTooLarge, "form has %d bytes, want at most %d",
			len(body), maxFormBytes)
	}
	return body, nil
}

// checkFormType rejects a body that is no form: a client that sends JSON expects it to be read.
func checkFormType(contentType []byte) *rejection {
	media, _, _ := bytes.Cut(contentType, []byte{';'})
	if bytes.EqualFold(bytes.TrimSpace(media), []byte(formType)) {
		return nil
	}
	p := reject(fasthttp.StatusUnsupportedMediaType, "Content-Type of the body is %s, want %s or no body",
		params.Quote(contentType), formType)
	p.accept = formType
	return p
}

// clientGone reports whether the client is known to be gone at this instant.
func clientGone(conn net.Conn) bool {
	c := pacedConnOf(conn)
	return c != nil && peer.HungUp(c.Conn)
}
