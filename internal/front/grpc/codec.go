package grpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// A callCodec reads requests into calls, and lets answers pass that are bytes already. What else there is at
// the door, health and reflection, it leaves to the codec of gRPC.
type callCodec struct{ encoding.CodecV2 }

func newCodec() callCodec { return callCodec{encoding.GetCodecV2(proto.Name)} }

// An encoded answer is one that is bytes already.
type encoded mem.BufferSlice

// Marshal implements [encoding.CodecV2].
func (c callCodec) Marshal(value any) (mem.BufferSlice, error) {
	if answer, ok := value.(encoded); ok {
		return mem.BufferSlice(answer), nil
	}
	return c.CodecV2.Marshal(value)
}

// Unmarshal implements [encoding.CodecV2]. What is wrong with a message is for its method to say: gRPC
// would call it a failure of the server.
func (c callCodec) Unmarshal(data mem.BufferSlice, value any) error {
	in, ok := value.(*incoming)
	if !ok {
		return c.CodecV2.Unmarshal(data, value)
	}
	if len(data) == 1 {
		in.call.fault = in.read(in.call, data[0].ReadOnlyData())
		return nil
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	in.call.fault = in.read(in.call, whole.ReadOnlyData())
	return nil
}

// An incoming message is read into a call.
type incoming struct {
	call *capacityCall
	read func(c *capacityCall, message []byte) error
}

// newEncoded makes an answer of what write appends to a buffer that has room for size.
func newEncoded(size int, write func(to []byte) []byte) encoded {
	if mem.IsBelowBufferPoolingThreshold(size) {
		return encoded{mem.SliceBuffer(write(make([]byte, 0, size)))}
	}
	pool := mem.DefaultBufferPool()
	buffer := pool.Get(size)
	*buffer = write((*buffer)[:0])
	return encoded{mem.NewBuffer(buffer, pool)}
}
