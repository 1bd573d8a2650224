package http

import (
	"slices"
	"strings"
	"testing"
)

// wellFramed are requests that are read, with all their bytes.
var wellFramed = []string{
	"GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
	"\r\n\r\nGET /a HTTP/1.1\r\nhOST:h:80 \t\r\nA:\r\nB: \x80 c\t\r\n\r\n",
	"GET /a HTTP/1.0\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 10\r\n\r\nGET / HTTP",
	"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length:\t007 \r\nTransfer-Encodings: cow\r\n\r\n\n\x00\r\n \r\n",
	"DELETE /a HTTP/1.1\r\ncontent-length: 0\r\nHost: h\r\n\r\n",
	"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked \r\n\r\n" +
		"3;a=\"b\"\r\n\r\n\n\r\n0a\r\n0123456789\r\n000\r\nTag: t\r\n\r\n",
}

// scanAll follows bytes of several requests, and returns how many of them are well-formed.
func (f *framing) scanAll(b []byte) (good int) {
	for good < len(b) && f.at != atMalformed {
		good += f.scanRequest(b[good:])
	}
	return good
}

// The same bytes are read alike however they arrive.
func TestFramingInPieces(t *testing.T) {
	all := strings.Join(wellFramed, "")
	for size := 1; size < 100; size++ {
		var f framing
		for rest := []byte(all); len(rest) > 0; {
			n := min(size, len(rest))
			if good := f.scanAll(rest[:n]); good != n {
				t.Fatalf("in pieces of %d: refused at %q, %d bytes before the end", size, rest[good:n],
					len(rest))
			}
			rest = rest[n:]
		}
		if f.at != atEnd {
			t.Errorf("in pieces of %d: ends in part %d of a request, want the end of one", size, f.at)
		}
	}
}

// A byte that others read over is refused there and then, wherever it is put: only a body may have it.
func TestFramingFaultInEveryPosition(t *testing.T) {
	for _, request := range wellFramed {
		for i := range len(request) {
			tryFaults(t, request[:i], request[i:])
		}
	}
}

// tryFaults puts faults between the two parts of a request.
func tryFaults(t *testing.T, front, back string) {
	t.Helper()
	var before framing
	before.scanAll([]byte(front))
	if before.at == atBody || before.at == atChunk {
		return
	}
	for _, fault := range []string{"\n", "\r\r", "\x00", "\v", "\x7f"} {
		if fault == "\n" && strings.HasSuffix(front, "\r") {
			continue // it is the line feed that belongs there
		}
		f := before
		if good := f.scanAll([]byte(fault + back)); f.at != atMalformed || good > 1 {
			t.Errorf("%q between %q and %q: %d bytes accepted, want it refused", fault, front, back, good)
		}
	}
}

// Each field costs more than its bytes, so that their number is bounded, over all pieces and with a trailer.
func TestFieldsAreBounded(t *testing.T) {
	const line = "a:\r\n"
	for _, test := range []struct {
		request string
		right   bool
	}{
		{"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat(line, maxFields-1) + "\r\n", true},
		{"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat(line, maxFields) + "\r\n", false},
		{"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
			strings.Repeat(line, maxFields-1) + "\r\n", false},
	} {
		for _, piece := range []int{1, 7, len(test.request)} {
			var f framing
			twice := strings.Repeat(test.request, 2) // the next request begins to count anew
			for part := range slices.Chunk([]byte(twice), piece) {
				f.scanAll(part)
			}
			if right := f.at != atMalformed; right != test.right {
				t.Errorf("%d bytes in pieces of %d: right %t, want %t", len(twice), piece, right, test.right)
			}
		}
	}
}

// BenchmarkFraming is what the second look at a usual request costs.
func BenchmarkFraming(b *testing.B) {
	request := []byte("GET /v1/gcra/api/acquire?size=1000&interval=1000&maxwait=0 HTTP/1.1\r\n" +
		"Host: localhost:5505\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n")
	b.SetBytes(int64(len(request)))
	var f framing
	for b.Loop() {
		if f.scanRequest(request) != len(request) {
			b.Fatal("the request is refused")
		}
	}
}
