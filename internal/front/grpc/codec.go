package grpc

import (
	"context"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// A callCodec reads requests into calls, and passes on answers that are bytes already. The messages of
// health checks and reflection it leaves to gRPC's own codec.
type callCodec struct{ encoding.CodecV2 }

func newCodec() callCodec { return callCodec{encoding.GetCodecV2(proto.Name)} }

// An encoded is an answer that is bytes already.
type encoded mem.BufferSlice

// Marshal implements [encoding.CodecV2].
func (c callCodec) Marshal(value any) (mem.BufferSlice, error) {
	// Answers of the methods above are not marshalled again.
	if answer, ok := value.(encoded); ok {
		return mem.BufferSlice(answer), nil
	}
	return c.CodecV2.Marshal(value)
}

// Unmarshal implements [encoding.CodecV2]. A message that cannot be read is noted in the call, and answered
// by its method: gRPC would report an internal error of the server.
func (c callCodec) Unmarshal(data mem.BufferSlice, value any) error {
	in, ok := value.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, value)
	}
	// A large one is read in its turn, and not here: gRPC waits for the end of the call yet.
	if data.Len() > largeMessage {
		data.Ref()
		in.large = data
		return nil
	}
	in.readMessage(data)
	return nil
}

// An incoming message is read into a call.
type incoming struct {
	call  *capacityCall
	read  func(c *capacityCall, message []byte) error
	large mem.BufferSlice // a message that was not read yet
}

// readMessage reads a message, and notes in the call what is wrong with it.
func (in *incoming) readMessage(data mem.BufferSlice) {
	// A message that came in one piece, as nearly all do, is read where it lies. Reading copies what it
	// keeps.
	if len(data) == 1 {
		in.call.fault = in.read(in.call, data[0].ReadOnlyData())
		return
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	in.call.fault = in.read(in.call, whole.ReadOnlyData())
}

// readLarge reads a large message in its turn, which the caller ends. It does nothing for others.
func (in *incoming) readLarge(ctx context.Context, t *turn) {
	if in.large == nil {
		return
	}
	defer in.large.Free()
	in.call.fault = t.begin(ctx, in.large.Len())
	if in.call.fault == nil {
		in.readMessage(in.large)
	}
}

// newEncoded makes an answer of what write appends to a buffer with room for size.
func (c *capacityCall) newEncoded(size int, write func(to []byte) []byte) encoded {
	// Small buffers cost more to pool than to allocate, by gRPC's own measure.
	if mem.IsBelowBufferPoolingThreshold(size) {
		return encoded{mem.SliceBuffer(write(make([]byte, 0, size)))}
	}
	buffer := c.answers.Get(size)
	// size is an upper bound, so write does not move the slice; the pool gets back what it gave.
	*buffer = write((*buffer)[:0])
	return encoded{mem.NewBuffer(buffer, c.answers)}
}

// An answerPool has the buffers of large answers, as they were left. gRPC's own pool clears a buffer before
// it hands it out, and gives one of a megabyte to an answer about 1,000 resources, which needs a tenth of it.
type answerPool struct{ buffers sync.Pool }

// Get implements [mem.BufferPool].
func (p *answerPool) Get(size int) *[]byte {
	buffer, ok := p.buffers.Get().(*[]byte)
	if !ok || cap(*buffer) < size {
		return new(make([]byte, size))
	}
	*buffer = (*buffer)[:size]
	return buffer
}

// Put implements [mem.BufferPool].
func (p *answerPool) Put(buffer *[]byte) { p.buffers.Put(buffer) }
