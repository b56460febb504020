// Works 20 functions deep, in a goroutine, until it is killed. Says when it is ready, and waits for a line.
package main

import "fmt"

var work uint64

//go:noinline
func spin() {
	for i := uint64(0); i < 20000000; i++ {
		work += i
	}
}

//go:noinline
func descend(depth int) {
	if depth == 0 {
		spin()
	} else {
		descend(depth - 1)
	}
	work++
}

//go:noinline
func inGoroutine() {
	for {
		descend(20)
	}
}

func main() {
	var line string
	fmt.Println("ready")
	fmt.Scanln(&line)
	go inGoroutine()
	select {}
}
