package doors

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// An httpDoor asks over HTTP, on one connection.
type httpDoor struct {
	t      *testing.T
	base   string
	client http.Client
}

func newHTTPDoor(t *testing.T, address string) *httpDoor {
	t.Helper()
	transport := &http.Transport{MaxConnsPerHost: 1, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &httpDoor{t: t, base: "http://" + address, client: http.Client{Transport: transport}}
}

func (h *httpDoor) name() string { return "HTTP" }

// A response is an answer with its whole body.
type response struct {
	status int
	header http.Header
	body   string
}

func (h *httpDoor) get(method, path string) (response, error) {
	request, err := http.NewRequestWithContext(h.t.Context(), method, h.base+path, http.NoBody)
	if err != nil {
		return response{}, err
	}
	r, err := h.client.Do(request)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	return response{r.StatusCode, r.Header, string(body)}, err
}

func (h *httpDoor) ask(op *operation) (answer, error) {
	method, path := http.MethodGet, "/v1"
	if op.brief {
		path = ""
	}
	path += "/" + op.key.Kind.String() + "/" + url.PathEscape(op.key.Name)
	if op.cmd.Op == gatehouse.OpDelete {
		method = http.MethodDelete
	} else {
		path += "/" + op.cmd.Op.String()
	}
	query := url.Values{}
	for _, p := range op.words() {
		query.Set(p.name, p.value)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	r, err := h.get(method, path)
	if err != nil {
		return answer{}, err
	}
	return readHTTP(op, r)
}

// httpOutcomes are what statuses mean.
var httpOutcomes = map[int]string{
	http.StatusOK: "granted", http.StatusNoContent: "granted", http.StatusRequestTimeout: "refused",
	http.StatusConflict: "conflict", http.StatusNotFound: "missing", http.StatusBadRequest: "invalid",
	http.StatusServiceUnavailable: "exhausted",
}

// readHTTP reads what a response tells.
func readHTTP(op *operation, r response) (answer, error) {
	a := answer{figures: map[string]string{}}
	var known bool
	if a.outcome, known = httpOutcomes[r.status]; !known {
		return a, fmt.Errorf("status %d: %s", r.status, r.body)
	}
	a.readLimits(op, r.header)
	switch a.outcome {
	case "refused":
		a.set("retry_s", -1)
		if after := r.header.Get("Retry-After"); after != "" {
			a.set("retry_s", after)
		}
		return a, nil
	case "granted":
		if fence := r.header.Get("Gatehouse-Fence"); fence != "" {
			a.set("fence", fence)
			a.set("expires_ms", cmp.Or(r.header.Get("Gatehouse-Expires"), "-1"))
		}
		return a, a.readGrant(op, r)
	}
	a.set("text", r.body)
	return a, nil
}

// readGrant reads what a grant brings.
func (a answer) readGrant(op *operation, r response) error {
	switch op.cmd.Op {
	case gatehouse.OpAcquire:
		if op.holds() {
			a.set("key", r.body)
			return nil
		}
	case gatehouse.OpWait:
		if op.key.Kind == gatehouse.Event {
			return a.readMessage(op, r)
		}
	case gatehouse.OpCount, gatehouse.OpValue:
		a.set("value", r.body)
		return nil
	case gatehouse.OpDelay, gatehouse.OpReserve:
		a.set("delay_ms", r.body)
		return nil
	case gatehouse.OpStats:
		var stats map[string]any
		decoder := json.NewDecoder(strings.NewReader(r.body))
		decoder.UseNumber()
		if err := decoder.Decode(&stats); err != nil {
			return err
		}
		for name, value := range stats {
			if value == nil {
				value = ""
			}
			a.set("stat "+name, value)
		}
		return nil
	}
	if r.status != http.StatusNoContent || r.body != "" {
		return fmt.Errorf("status %d with %q, want 204 and nothing", r.status, r.body)
	}
	return nil
}

// readMessage reads the message of an event: in a header where the path has /v1, else in the body.
func (a answer) readMessage(op *operation, r response) error {
	if op.brief {
		a.set("message", r.body)
		return nil
	}
	message, err := url.PathUnescape(r.header.Get("X-Bouncer-Message"))
	a.set("message", message)
	return err
}

// readLimits reads RateLimit-Policy and RateLimit, as they are written here: lists of quoted names with
// parameters behind. One of several limits is named by its text.
func (a answer) readLimits(op *operation, header http.Header) {
	names := map[string]string{"q": "limit", "r": "remaining", "t": "reset_s"}
	if a.outcome == "refused" {
		names["t"] = "retry_s"
	}
	fields := header.Get("RateLimit-Policy") + ", " + header.Get("RateLimit")
	for item := range strings.SplitSeq(fields, ", ") {
		parts := strings.Split(item, ";")
		of := " " + strings.Trim(parts[0], `"`)
		if of == " "+op.key.Kind.String() {
			of = ""
		}
		for _, part := range parts[1:] {
			parameter, value, _ := strings.Cut(part, "=")
			if figure := names[parameter]; figure != "" {
				a.set(figure+of, value)
			}
		}
	}
}

func (h *httpDoor) list(kind gatehouse.Kind) ([]string, error) {
	r, err := h.get(http.MethodGet, "/v1/"+kind.String()+"?limit=1000")
	if err != nil {
		return nil, err
	}
	if r.status != http.StatusOK {
		return nil, fmt.Errorf("list of %s: status %d, %s", kind, r.status, r.body)
	}
	var page struct{ Names []string }
	err = json.Unmarshal([]byte(r.body), &page)
	return page.Names, err
}
