package http

import (
	"bytes"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// The answerOptions say how a request wants to be answered. They do not change what is done.
type answerOptions struct {
	refusalStatus int  // the status of a refusal; 0 means the server's default
	details       bool // every decision is answered with 200 and a JSON object
}

// optionNames are the parameters of answerOptions.
var optionNames = []string{"refusal", "details"}

// setOption sets an option by its name, in any letter case. known is false for every other parameter.
func (w *answerOptions) setOption(name, value []byte) (known bool, err error) {
	switch {
	case bytes.EqualFold(name, []byte("refusal")):
		w.refusalStatus, err = parseRefusal(value)
		return true, err
	case bytes.EqualFold(name, []byte("details")):
		w.details = string(value) == "true"
		if !w.details && string(value) != "false" {
			err = gatehouse.Errorf(gatehouse.CodeInvalid, "details is %s, want true or false",
				params.Quote(value))
		}
		return true, err
	}
	return false, nil
}

func parseRefusal(value []byte) (status int, err error) {
	switch string(value) {
	case "408":
		return fasthttp.StatusRequestTimeout, nil
	case "429":
		return fasthttp.StatusTooManyRequests, nil
	}
	return 0, gatehouse.Errorf(gatehouse.CodeInvalid, "refusal is %s, want 408 or 429", params.Quote(value))
}

// wantsDetails reports whether there is details=true among parameters of which one is wrong. The sentence
// about that one then comes in the form that the client reads.
func wantsDetails(query, body []byte) bool {
	// Errors are ignored: readParams has found the first one, and is about to answer with it.
	var w answerOptions
	for _, text := range [...][]byte{query, body} {
		_ = eachParam(text, func(name, value []byte) error {
			_, _ = w.setOption(name, value)
			return nil
		})
	}
	return w.details
}
