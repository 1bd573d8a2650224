//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// frame is a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:] // #nosec G115 -- short
	head = append(head, kind, flags)
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}

// The kinds of frames, and the flag that ends headers.
const (
	frameData, frameHeaders, frameSettings = 0, 1, 4
	flagAck, flagEndHeaders                = 1, 4
)

// greeting is how a client of HTTP/2 begins.
func greeting() string {
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(frameSettings, 0, 0, "") +
		frame(frameSettings, flagAck, 0, "")
}

// open is the headers of a call.
func open(stream uint32) string {
	const path = "/doorman.Capacity/GetCapacity"
	// POST and http by their numbers in HPACK's table, the others with names from there and plain values.
	return frame(frameHeaders, flagEndHeaders, stream, "\x83\x86\x44"+string(rune(len(path)))+path+
		"\x41\x09localhost\x5f\x10application/grpc\x40\x02te\x08trailers")
}

// headers opens streams and leaves it at that.
func headers(n uint32) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(open(2*i + 1))
	}
	return text.String()
}

// halves opens streams and sends a little of a message of 1 MiB on each.
func halves(n uint32) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(open(2*i + 1))
		text.WriteString(frame(frameData, 0, 2*i+1, "\x00\x00\x0f\xff\x00"+strings.Repeat("x", 8<<10)))
	}
	return text.String()
}

// attackLeases asks for leases on ever new resources under ever new names.
func attackLeases(f *field) {
	conn, err := grpc.NewClient(f.server.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.tally.note(err)
		return
	}
	defer func() { _ = conn.Close() }()
	client := doormanpb.NewCapacityClient(conn)
	for round := 0; !f.ended(); round++ {
		request := &doormanpb.GetCapacityRequest{ClientId: new(fmt.Sprintf("client%d", round))}
		for i := range f.n(500) {
			request.Resource = append(request.Resource, &doormanpb.ResourceRequest{
				ResourceId: new(fmt.Sprintf("flood%d", i)), Wants: new(float64(1)), Priority: new(int64(0)),
			})
		}
		ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
		_, err := client.GetCapacity(ctx, request)
		cancel()
		f.tally.note(err)
		f.pause(50 * time.Millisecond)
	}
}
