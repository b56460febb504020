// Changes between the stacks of goroutines and of the scheduler in every way, until it is killed. Says when it is ready, and
// waits for a line. Go builds c.go only if it has a C compiler.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

type node struct{ left, right *node }

var (
	sink  uint64
	works = []func(){walks, grows, asks, collects, signals}
)

//go:noinline
func burn(n uint64) {
	for i := uint64(0); i < n; i++ {
		sink += i * i
	}
}

//go:noinline
func walks() { walk(20, make([]uintptr, 32)); sink++ }

//go:noinline
func walk(depth int, pcs []uintptr) {
	if depth > 0 {
		walk(depth-1, pcs)
		sink++
		return
	}
	for i := 0; i < 300; i++ {
		sink += uint64(runtime.Callers(0, pcs)) // on the scheduler's stack
	}
}

//go:noinline
func grows() {
	for i := 0; i < 20; i++ {
		done := make(chan bool)
		go func() { begins(); done <- true }()
		<-done
	}
}

//go:noinline
func begins() { sink += uint64(grow(40)) }

//go:noinline
func grow(depth int) int {
	var pad [2048]byte
	pad[depth&2047] = byte(depth)
	if depth == 0 {
		return 1
	}
	return grow(depth-1) + int(pad[(depth+1)&2047])
}

//go:noinline
func asks() {
	for i := 0; i < 10000; i++ {
		sink += uint64(time.Now().Nanosecond()) // the vDSO, on the scheduler's stack
	}
}

//go:noinline
func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{tree(depth - 1), tree(depth - 1)}
}

//go:noinline
func collects() {
	kept := tree(12)
	runtime.GC()
	if kept.left == nil {
		sink++
	}
}

//go:noinline
func signals() {
	for i := 0; i < 300; i++ {
		syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGUSR1))
	}
}

//go:noinline
func inGoroutine() {
	for {
		for _, work := range works {
			work()
		}
	}
}

func main() {
	var line string
	fmt.Println("ready")
	fmt.Scanln(&line)
	signal.Notify(make(chan os.Signal), syscall.SIGUSR1)
	go inGoroutine()
	select {}
}
