package main

/*
extern void calledBack(int deep);
static volatile unsigned long c_sink;
__attribute__((noinline)) static void c_leaf(int n) { for (int i = 0; i < n; i++) c_sink += i * i; }
__attribute__((noinline)) static void c_works(void) { c_leaf(300000); c_sink++; }
__attribute__((noinline)) static void c_calls_go(void) { calledBack(0); c_sink++; }
__attribute__((noinline)) static void c_moved(int n) { for (int i = 0; i < n; i++) c_sink ^= i * i; }
__attribute__((noinline)) static void c_calls_deep(void) { calledBack(40); c_moved(300000); c_sink++; }
*/
import "C"

func init() { works = append(works, callsC, callsBack, moves) }

//export calledBack
func calledBack(deep C.int) {
	if deep == 0 {
		burn(300000)
		C.c_works()
		walks()
	} else {
		sink += uint64(grow(int(deep)))
	}
}

//go:noinline
func callsC() { C.c_works(); sink++ }

//go:noinline
func callsBack() { C.c_calls_go(); sink++ }

// Go that C calls gets another stack, and then C works on.
//
//go:noinline
func moves() {
	done := make(chan bool)
	go func() { callsDeep(); done <- true }()
	<-done
}

//go:noinline
func callsDeep() { C.c_calls_deep(); sink++ }
