package grpc

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// A meteredStream notes each answer of a call that has several.
type meteredStream struct{ grpc.ServerStream }

// SendMsg implements [grpc.ServerStream].
func (s meteredStream) SendMsg(message any) error {
	connOf(s.Context()).noteAnswer(messageSize(message))
	return s.ServerStream.SendMsg(message)
}

// messageSize returns the size of an answer of health checks or reflection.
func messageSize(message any) int {
	if m, ok := message.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}
