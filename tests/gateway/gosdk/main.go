// Pushes profiles of itself with Pyroscope's Go SDK, and prints the trace ID and the span ID of its work.
//
//	gosdk URL SERVICE
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	otelpyroscope "github.com/grafana/otel-profiling-go"
	"github.com/grafana/pyroscope-go"
	"go.opentelemetry.io/otel/sdk/trace"
)

var kept [][]byte

//go:noinline
func burn(seconds float64) (sum int) {
	for end := time.Now().Add(time.Duration(seconds * 1e9)); time.Now().Before(end); {
		for i := range 10_000 {
			sum += i * i
		}
	}
	return sum
}

//go:noinline
func allocate() {
	for range 200 {
		kept = append(kept, make([]byte, 100_000))
	}
}

//go:noinline
func contend() {
	var lock sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				lock.Lock()
				time.Sleep(2 * time.Millisecond)
				lock.Unlock()
			}
		})
	}
	all.Wait()
}

//go:noinline
func wait(end chan bool) {
	<-end
}

type logger struct{}

func (logger) Infof(string, ...any)  {}
func (logger) Debugf(string, ...any) {}
func (logger) Errorf(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func main() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: os.Args[2],
		ServerAddress:   os.Args[1],
		Tags:            map[string]string{"region": "eu", "hostname": "shop-1"},
		Logger:          logger{},
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU, pyroscope.ProfileGoroutines,
			pyroscope.ProfileAllocObjects, pyroscope.ProfileAllocSpace, pyroscope.ProfileInuseObjects, pyroscope.ProfileInuseSpace,
			pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration, pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration,
		},
	})
	if err != nil {
		panic(err)
	}
	end := make(chan bool)
	for range 7 {
		go wait(end)
	}
	tracer := otelpyroscope.NewTracerProvider(trace.NewTracerProvider()).Tracer("shop")
	pyroscope.TagWrapper(context.Background(), pyroscope.Labels("endpoint", "/pay"), func(ctx context.Context) {
		_, span := tracer.Start(ctx, "GET /pay")
		burn(0.6)
		span.End()
		fmt.Println(span.SpanContext().TraceID(), span.SpanContext().SpanID())
	})
	burn(0.3)
	allocate()
	contend()
	profiler.Flush(true)
	close(end)
}
