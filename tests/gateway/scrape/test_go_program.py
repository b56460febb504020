"""Programs of Go are scraped as they are."""

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.settings import GatewaySettings
from icestream.messages.raw import decode_raw
from icestream.topics import RAW
from tests.gateway.scrape.scraping import metric, scraping
from tests.gateway.stored import Store, values
from tests.go import needs_go
from tests.pipeline.reading import messages
from tests.waiting import wait_until

GO = """package main

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"time"
)

var kept [][]byte

// Every allocation is counted. Otherwise some are, and the sum is an estimate.
func init() { runtime.MemProfileRate = 1 }

//go:noinline
func Burn(x uint64) uint64 {
	for i := 0; i < 1000000; i++ {
		x ^= x << 13
		x ^= x >> 7
	}
	return x
}

//go:noinline
func Allocate() { kept = append(kept, make([]byte, 1<<20)) }

//go:noinline
func Wait() { time.Sleep(time.Hour) }

func main() {
	for i := 0; i < 7; i++ {
		go Wait()
	}
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	fmt.Println(listener.Addr())
	go http.Serve(listener, nil)
	for x := uint64(1); ; {
		x = Burn(x)
		if len(kept) < 200 {
			Allocate()
		}
		time.Sleep(time.Millisecond)
	}
}
"""


@pytest.fixture
def go_program(tmp_path: Path) -> Iterator[str]:
    """HOST:PORT of a program that serves its profiles."""
    (tmp_path / "main.go").write_text(GO)
    subprocess.run(["go", "build", "-o", "program", "main.go"], cwd=tmp_path, check=True, timeout=600)
    program = subprocess.Popen([tmp_path / "program"], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    with program.stdout:
        yield program.stdout.readline().strip()
        program.kill()
        program.wait()


@pytest.mark.soak  # to compile Go's HTTP server takes 40 CPU seconds; test_cumulative.py has the sums of such scrapes
@needs_go
def test_a_go_program_is_scraped_and_found(
    go_program: str, settings: GatewaySettings, store: Store, tmp_path: Path
) -> None:
    job = f"""
        scrape_configs:
          - job_name: gophers
            scrape_interval: 1s
            static_configs: [{{targets: ["{go_program}"], labels: {{zone: "7"}}}}]
            relabel_configs: [{{source_labels: [zone], target_label: zone, replacement: "z$1"}}]
        """
    start = time.time_ns()
    wanted = {"process_cpu", "memory:alloc_space", "memory:inuse_space", "goroutines"}

    def kinds() -> set[str]:
        return {decode_raw(message.value()).profile_type for message in messages(settings, RAW)}

    with scraping(settings, tmp_path / "jobs.yaml", job):
        wait_until(lambda: all(any(kind.startswith(one) for kind in kinds()) for one in wanted), kinds)
    came = list(messages(settings, RAW))
    for message in came:
        store.add(message.value() or b"")
    period = str(start // 10**9 - 1), str(time.time_ns() // 10**9 + 1)
    selector = '{service="gophers", zone="z7", job="gophers", instance="' + go_program + '"}'

    def by_function(profile_type: str) -> Counter[str]:
        profile = store.pprof(selector, profile_type, *period)
        functions: Counter[str] = Counter()
        for stack, value in values(profile, 1).items():
            for function in {line[0] for _, _, lines in stack for line in lines}:
                functions[function] += value
        return functions

    scrapes = sum(decode_raw(message.value()).profile_type.startswith("goroutines") for message in came)
    assert scrapes > 1
    assert by_function("goroutines:goroutine:count:goroutine:count")["main.Wait"] == 7  # an average
    assert by_function("process_cpu:cpu:nanoseconds:cpu:nanoseconds")["main.Burn"] > 0
    in_use = by_function("memory:inuse_space:bytes:space:bytes")["main.Allocate"]
    allocated = by_function("memory:alloc_space:bytes:space:bytes")["main.Allocate"]
    assert in_use > 0
    assert allocated < 210 << 20  # counted once, not in every scrape again
    assert metric("scrapes_total", job="gophers", result="ok") >= 4
    assert metric("scrape_restarts_total", job="gophers") == 0
