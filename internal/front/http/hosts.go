package http

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"unicode"
	"unique"

	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A web page can make its own host name resolve to the address of this server (DNS rebinding). The browser
// takes both for one site then: it lets the page send any request and read any answer, and marks none of
// them. Only the Host header shows it. So a request must name the server by something that no page can have:
// an IP address, localhost, or a name from the configuration (docs/decisions/0030).

// hostNames are the names of this server.
type hostNames struct {
	all   bool
	names map[string]bool // in lower case
}

func newHosts(names []string) *hostNames {
	h := &hostNames{names: make(map[string]bool, len(names))}
	for _, name := range names {
		h.all = h.all || name == "*"
		h.names[strings.ToLower(strings.TrimSuffix(name, "."))] = true
	}
	return h
}

// hasHost reports whether a Host, with or without a port, is a name of this server.
func (h *hostNames) hasHost(host []byte) bool {
	if h.all {
		return true
	}
	// Ports are not compared, so that forwarded ones work. A name may end in the dot of the DNS root.
	// Browsers resolve everything below localhost to the loopback address themselves.
	name := strings.ToLower(strings.TrimSuffix(hostWithoutPort(host), "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || h.names[name] {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// hostWithoutPort returns a host without its port, and without the brackets of an IPv6 address.
func hostWithoutPort(host []byte) string {
	if len(host) > 0 && host[0] == '[' {
		address, _, _ := bytes.Cut(host[1:], []byte{']'})
		return string(address)
	}
	name, _, _ := bytes.Cut(host, []byte{':'})
	return string(name)
}

// maxHostLength is the length of the longest name in the DNS, in bytes. A longer one is not kept with a
// connection, as a client chooses it.
const maxHostLength = 253

// checkHost rejects a request that names another server, and reports whether the request may go on. On a
// loopback address it looks at all requests except those about health. Elsewhere programs reach the server by
// whatever name their network has for it, so it looks only at requests that may come from a browser.
func (s *Server) checkHost(ctx *fasthttp.RequestCtx, path []byte, from *sender) bool {
	c := connectionOf(ctx)
	loopback := c.origin.loopback
	if !loopback && !from.mayBeBrowser() {
		return true
	}
	host := from.host
	if named := urlAuthority(ctx.Request.Header.RequestURI()); named != nil {
		host = named // RFC 9112, section 3.2.2
	}
	// All requests of a connection nearly always have the same Host, so one comparison does.
	if c.knownHost != (unique.Handle[string]{}) && string(host) == c.knownHost.Value() {
		return true
	}
	switch {
	case len(host) == 0 && !ctx.Request.Header.IsHTTP11(): // no browser sends such a request
		return true
	case s.hosts.hasHost(host):
		if len(host) <= maxHostLength {
			c.knownHost = unique.Make(string(host))
		}
		return true
	case isHealthPath(path), !loopback && s.isPageRequest(ctx, path):
		return true
	}
	s.rejectRequest(ctx, from, wrongHost(host))
	return false
}

func wrongHost(host []byte) *rejection {
	name := hostWithoutPort(host)
	// The sentence suggests a command line. A client must not be able to put anything into it that a shell
	// would take for more than a name.
	odd := func(r rune) bool { return r > unicode.MaxASCII || !isHostByte(byte(r)) } // ASCII
	if name == "" || len(name) > maxHostLength || strings.ContainsFunc(name, odd) {
		name = "NAME"
	}
	return reject(fasthttp.StatusMisdirectedRequest,
		"Host is %s, which is no name of this server; start it with --hosts %s to allow it",
		params.Quote(host), name)
}

// mayBeBrowser reports whether a request bears the marks of a browser. Over plain HTTP, to other names than
// localhost, a browser may send neither Origin nor Sec-Fetch-Site.
func (from *sender) mayBeBrowser() bool {
	return len(from.origin) > 0 || from.hasSecFetch || from.browserAgent && from.acceptsPages()
}

// acceptsPages reports whether the sender accepts HTML or images, as browsers do in all their requests.
func (from *sender) acceptsPages() bool {
	return bytes.Contains(from.accept, []byte("text/html")) ||
		bytes.Contains(from.accept, []byte("image/")) || bytes.Contains(from.accept, []byte("*/*"))
}

// isHealthPath reports whether a path is for health checks. An orchestrator asks for it by the name of a pod
// or by any other.
func isHealthPath(path []byte) bool {
	switch string(path) {
	case "/healthz", "/readyz", "/.well-known/ready":
		return true
	}
	return false
}

// isPageRequest reports whether a request is for a page to look at, and so has no effects.
func (s *Server) isPageRequest(ctx *fasthttp.RequestCtx, path []byte) bool {
	if !ctx.IsGet() && !ctx.IsHead() {
		return false
	}
	if fixedPages[string(path)] || bytes.HasPrefix(path, []byte(docsPath)) {
		return true
	}
	route, _, _ := s.findRoute(path)
	return route != nil && !strings.HasPrefix(route.path, "/v1/")
}

// urlAuthority returns the host of a request target or of a page's URL, with its port; nil if that is only a
// path.
func urlAuthority(target []byte) []byte {
	if len(target) == 0 || target[0] == '/' {
		return nil
	}
	_, rest, whole := bytes.Cut(target, []byte("://"))
	if !whole {
		return nil
	}
	// Everything in front of an @ is a user name, as in http://localhost@evil.example/.
	if end := bytes.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest[bytes.LastIndexByte(rest, '@')+1:]
}

// isLoopback reports whether an address is one that only this machine reaches.
func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
