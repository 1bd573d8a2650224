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

// http2Frame is a frame of HTTP/2.
func http2Frame(kind, flags byte, stream uint32, payload string) string {
	// The length has 3 bytes, so the first of 4 is cut off.
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:] // short
	head = append(head, kind, flags)
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}

// The kinds of frames, and the flag that ends headers.
const (
	frameData, frameHeaders, frameSettings = 0, 1, 4
	flagAck, flagEndHeaders                = 1, 4
)

// http2Preface is how a client of HTTP/2 begins.
func http2Preface() string {
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(frameSettings, 0, 0, "") +
		http2Frame(frameSettings, flagAck, 0, "")
}

// openStream is the headers of a call.
func openStream(stream uint32) string {
	const path = "/doorman.Capacity/GetCapacity"
	// POST and http by their numbers in HPACK's table, the others with names from there and plain values.
	return http2Frame(frameHeaders, flagEndHeaders, stream, "\x83\x86\x44"+string(rune(len(path)))+path+
		"\x41\x09localhost\x5f\x10application/grpc\x40\x02te\x08trailers")
}

// openStreams opens streams and leaves it at that.
func openStreams(n uint32) string {
	var text strings.Builder
	for i := range n {
		// Streams that a client opens have odd numbers.
		text.WriteString(openStream(2*i + 1))
	}
	return text.String()
}

// halfMessages opens streams and sends a little of a message of 1 MiB on each.
func halfMessages(n uint32) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(openStream(2*i + 1))
		// The length is almost 1 MiB, of which 8 KiB come.
		text.WriteString(http2Frame(frameData, 0, 2*i+1, "\x00\x00\x0f\xff\x00"+strings.Repeat("x", 8<<10)))
	}
	return text.String()
}

// attackLeases asks for leases on many resources under ever new names.
func attackLeases(f *attackField) {
	conn, err := grpc.NewClient(f.server.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.tally.recordStep(err)
		return
	}
	defer func() { _ = conn.Close() }()
	client := doormanpb.NewCapacityClient(conn)
	// Each round is another client on the same resources, so that their leases grow in number.
	for round := 0; !f.hasEnded(); round++ {
		request := &doormanpb.GetCapacityRequest{ClientId: new(fmt.Sprintf("client%d", round))}
		for i := range f.scaleNumber(500) {
			request.Resource = append(request.Resource, &doormanpb.ResourceRequest{
				ResourceId: new(fmt.Sprintf("flood%d", i)), Wants: new(float64(1)), Priority: new(int64(0)),
			})
		}
		ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
		_, err := client.GetCapacity(ctx, request)
		cancel()
		f.tally.recordStep(err)
		f.pauseFor(50 * time.Millisecond)
	}
}
