package http

import (
	"bytes"
	"errors"

	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// firstBufferBytes is how much may wait on each connection that does not count to the budget.
const firstBufferBytes = 2 << 10

// errBufferedTooMuch is the error when the budget of the server is used up.
var errBufferedTooMuch = errors.New("server buffers as many bytes as it allows; try again soon")

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
