package http

import (
	"bytes"
	"fmt"

	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

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
		return nil, &rejection{
			status: fasthttp.StatusRequestEntityTooLarge,
			detail: fmt.Sprintf("form has %d bytes, want at most %d", len(body), maxFormBytes),
		}
	}
	return body, nil
}

// checkFormType rejects a body that is no form: a client that sends JSON expects it to be read.
func checkFormType(contentType []byte) *rejection {
	media, _, _ := bytes.Cut(contentType, []byte{';'})
	if bytes.EqualFold(bytes.TrimSpace(media), []byte(formType)) {
		return nil
	}
	return &rejection{
		status: fasthttp.StatusUnsupportedMediaType, accept: formType,
		detail: "Content-Type of the body is " + params.Quote(contentType) + ", want " + formType +
			" or no body",
	}
}
