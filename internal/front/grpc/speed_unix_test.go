//go:build unix

package grpc

import (
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// cpu is what this process has used of the processors.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// The time is that of client and server together. BenchmarkHealth is what gRPC takes by itself.
func BenchmarkGetCapacity(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("resources=%d", n), func(b *testing.B) {
			s := start(b, Config{}, shared(capacity.FairShare, 1e6))
			request := manyResources("client", n)
			before := cpu()
			for b.Loop() {
				if _, err := s.client.GetCapacity(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkCall is the server's part of a call, without gRPC.
func BenchmarkCall(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("resources=%d", n), func(b *testing.B) {
			s := start(b, Config{}, shared(capacity.FairShare, 1e6))
			message, err := proto.Marshal(manyResources("client", n))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				c := s.newCall()
				c.fault = c.readGet(message)
				to, err := s.answerCall(overGRPC, rpcGetCapacity, c)
				if err != nil {
					b.Fatal(err)
				}
				writeGet(c, to)
				s.freeCall(c)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/resource")
		})
	}
}

func BenchmarkHealth(b *testing.B) {
	s := start(b, Config{}, shared(capacity.FairShare, 1e6))
	client := grpc_health_v1.NewHealthClient(s.conn)
	before := cpu()
	for b.Loop() {
		if _, err := client.Check(b.Context(), new(grpc_health_v1.HealthCheckRequest)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkLock has many clients ask at once, each call the server's whole part but gRPC's.
func BenchmarkLock(b *testing.B) {
	const clients = 100_000
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			s := start(b, Config{}, shared(capacity.FairShare, 1e6))
			messages := make([][]byte, clients)
			for i := range messages {
				messages[i] = asked("client-"+strconv.Itoa(i), want("r", float64(i%100)))
			}
			var next atomic.Int64
			ask := func() {
				c := s.newCall()
				c.fault = c.readGet(messages[next.Add(1)%clients])
				to, err := s.answerCall(overGRPC, rpcGetCapacity, c)
				if err != nil {
					b.Error(err)
				}
				writeGet(c, to)
				s.freeCall(c)
			}
			for range clients {
				ask()
			}
			b.ResetTimer()
			b.SetParallelism(max(goroutines/runtime.GOMAXPROCS(0), 1))
			if goroutines == 1 {
				for b.Loop() {
					ask()
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ask()
				}
			})
		})
	}
}
