package grpc

import "encoding/binary"

// The parts of HTTP/2 that tell which calls a connection has, and how many bytes of them.
const (
	prefaceSize   = 24 // what a client sends before its first frame
	frameHeadSize = 9

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 1
)

// A frameHead is the head of an HTTP/2 frame.
type frameHead struct {
	length int // of what follows
	kind   byte
	flags  byte
	stream uint32
}

// A frameScanner finds the frames in one direction of a connection, in whatever pieces the bytes come. It
// keeps only the head of the present frame.
type frameScanner struct {
	skip int // bytes before the next head
	head [frameHeadSize]byte
	have int // of head
}

// scanPiece visits the frames whose heads end in this piece.
//
//	preface │ head (9) │ payload (length) │ head │ payload │ ...
//	  skip     have          skip
func (s *frameScanner) scanPiece(piece []byte, visit func(frameHead)) {
	for len(piece) > 0 {
		// Inside a payload, or the preface. Its bytes are of no interest.
		if s.skip > 0 {
			n := min(s.skip, len(piece))
			s.skip -= n
			piece = piece[n:]
			continue
		}
		// A head may come in several pieces, even byte by byte.
		n := copy(s.head[s.have:], piece)
		s.have += n
		piece = piece[n:]
		if s.have < frameHeadSize {
			return
		}
		s.have = 0
		h := &s.head
		// 24 bits of length, 8 of type, 8 of flags, 31 of the stream; the highest bit is reserved.
		f := frameHead{
			length: int(h[0])<<16 | int(h[1])<<8 | int(h[2]), kind: h[3], flags: h[4],
			stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31),
		}
		s.skip = f.length
		visit(f)
	}
}
