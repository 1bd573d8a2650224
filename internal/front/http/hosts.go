package http

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"unicode"

	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A web page can give its own name the address of this server (DNS rebinding). To the browser both are one
// site then: it lets the page send any request and read any answer, and says nothing of it. Only the Host
// header shows the name. So a request has to name the server by a name that nobody else can have: an IP
// address, localhost, or one that the configuration knows.

// hosts are the names of this server.
type hosts struct {
	all   bool
	names map[string]bool // in lower case
}

func newHosts(names []string) *hosts {
	h := &hosts{names: make(map[string]bool, len(names))}
	for _, name := range names {
		h.all = h.all || name == "*"
		h.names[strings.ToLower(strings.TrimSuffix(name, "."))] = true
	}
	return h
}

// has reports whether a Host, with or without a port, is a name of this server.
func (h *hosts) has(host []byte) bool {
	if h.all {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(bareHost(host), "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") || h.names[name] {
		return true
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// bareHost is a host without its port and brackets.
func bareHost(host []byte) string {
	if len(host) > 0 && host[0] == '[' {
		address, _, _ := bytes.Cut(host[1:], []byte{']'})
		return string(address)
	}
	name, _, _ := bytes.Cut(host, []byte{':'})
	return string(name)
}

// longestHost is the length of the longest name in the DNS. A longer one is not kept with a connection.
const longestHost = 253

// rightHost refuses a request that names another server. On a loopback address that goes for all requests
// but those about health. Elsewhere programs reach the server by whatever name their network has for it, so
// that only what may be a browser's is looked at.
func (s *Server) rightHost(ctx *fasthttp.RequestCtx, path []byte, from *sender) bool {
	c := paced(ctx.Conn())
	loopback := c != nil && c.loopback
	if !loopback && !from.mayBeBrowser() {
		return true
	}
	host := from.host
	if named := authority(ctx.Request.Header.RequestURI()); named != nil {
		host = named // RFC 9112, section 3.2.2
	}
	if c != nil && len(host) > 0 && string(host) == c.host {
		return true
	}
	switch {
	case len(host) == 0 && !ctx.Request.Header.IsHTTP11(): // nothing that a browser sends
		return true
	case s.hosts.has(host):
		if c != nil && len(host) <= longestHost {
			c.host = string(host) // most connections have one
		}
		return true
	case isHealth(path), !loopback && s.isPage(ctx, path):
		return true
	}
	s.refuse(ctx, from, wrongHost(host))
	return false
}

func wrongHost(host []byte) *problem {
	name := bareHost(host)
	odd := func(r rune) bool { return r > unicode.MaxASCII || !isHost(byte(r)) } // #nosec G115 -- ASCII
	if name == "" || len(name) > longestHost || strings.ContainsFunc(name, odd) {
		name = "NAME"
	}
	return &problem{
		status: fasthttp.StatusMisdirectedRequest,
		detail: "Host is " + params.Quote(host) + ", which is no name of this server; start it with " +
			"--hosts " + name + " to allow it",
	}
}

// mayBeBrowser reports whether a request bears the marks of a browser. Over plain HTTP, to other names than
// localhost, a browser may send neither Origin nor Sec-Fetch-Site.
func (from *sender) mayBeBrowser() bool {
	return len(from.origin) > 0 || from.fetch || from.mozilla && from.takesPages()
}

// takesPages reports whether the sender accepts HTML or images, as browsers do with all they ask.
func (from *sender) takesPages() bool {
	return bytes.Contains(from.accept, []byte("text/html")) ||
		bytes.Contains(from.accept, []byte("image/")) || bytes.Contains(from.accept, []byte("*/*"))
}

// isHealth reports whether a path is asked by those who look whether the server is well, by any name.
func isHealth(path []byte) bool {
	switch string(path) {
	case "/healthz", "/readyz", "/.well-known/ready":
		return true
	}
	return false
}

// isPage reports whether a request is for a page to look at, which has no effects.
func (s *Server) isPage(ctx *fasthttp.RequestCtx, path []byte) bool {
	if !ctx.IsGet() && !ctx.IsHead() {
		return false
	}
	if pages[string(path)] || bytes.HasPrefix(path, []byte(docsPath)) {
		return true
	}
	route, _, _ := s.findRoute(path)
	return route != nil && !strings.HasPrefix(route.path, "/v1/")
}

// authority is the host that a request target names, nil when it is a path.
func authority(target []byte) []byte {
	_, rest, whole := bytes.Cut(target, []byte("://"))
	if len(target) == 0 || target[0] == '/' || !whole {
		return nil
	}
	if end := bytes.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest[bytes.LastIndexByte(rest, '@')+1:]
}

// onLoopback reports whether an address is one that only this machine reaches.
func onLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
