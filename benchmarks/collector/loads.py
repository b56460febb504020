"""What the host does while the collector is measured. Each load keeps every CPU busy."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CPUS = len(os.sched_getaffinity(0))
BINARIES = 500
_MARKER = bytes(range(0x10, 0x24))  # a build ID that is in no other place of a file

_SPIN = """
def inner(n): return sum(i * i for i in range(n))
def outer(): return sorted((inner(n % 100) for n in range(50)), key=lambda x: -x)
while True: outer()
"""
_PROGRAMS = """#include <stdlib.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
static volatile double x = 1;
static void work(void) { for (int i = 0; i < 10000; i++) x = x * 1.0000001 + 1e-9; }
/* worker PROCESSES: each works for a moment, ten times a second.
   starter PROGRAM PER_MINUTE: starts it that often. */
int main(int count, char **arguments) {
    if (arguments[1][0] == 'w') {
        for (int i = atoi(arguments[2]); i > 1 && fork(); i--) ;
        for (;;) { work(); usleep(100000); }
    }
    char *program[] = {arguments[2], NULL};
    for (;;) {
        pid_t child;
        if (!posix_spawn(&child, program[0], NULL, NULL, program, environ)) usleep(60000000 / atoi(arguments[3]));
        while (waitpid(-1, NULL, WNOHANG) > 0) ;
    }
}
"""

_NODE = """
const mix = (x, i) => (x * 31 + i) % 1000003;
const part = n => { let x = 1; for (let i = 0; i < n; i++) x = mix(x, i); return x; };
setInterval(() => { const until = Date.now() + 3; while (Date.now() < until) part(1000); }, 100);
"""
_JAVA = """class Load {
    static int mix(int x, int i) { return (x * 31 + i) % 1000003; }
    static int part(int n) { int x = 1; for (int i = 0; i < n; i++) x = mix(x, i); return x; }
    public static void main(String[] arguments) throws Exception {
        for (;; Thread.sleep(100)) {
            long until = System.currentTimeMillis() + 3;
            while (System.currentTimeMillis() < until) part(1000);
        }
    }
}
"""

_MAKEFILE = """parts := $(patsubst %,part%.o,$(shell seq 200))
program: $(parts)
	$(CC) -o $@ part1.o
part%.o:
	$(CC) -O1 -c -o $@ part.c
"""


def busy(folder: Path) -> list[list[str]]:
    """A process for each CPU, none of which ends."""
    return [["sha256sum", "/dev/zero"]] * CPUS


def processes_50(folder: Path) -> list[list[str]]:
    """50 processes that never rest, half of them Python, and a few short-lived ones each second."""
    short = ["sh", "-c", "while :; do ls -lR /usr/include >/dev/null; sleep 0.3; done"]
    return [[[sys.executable, "-c", _SPIN], ["sha256sum", "/dev/zero"]][i % 2] for i in range(50)] + [short]


def processes_2000(folder: Path) -> list[list[str]]:
    """2,000 processes, each of which works ten times a second."""
    return [[str(_program(folder)), "worker", "2000"], *busy(folder)]


def short_lived(folder: Path) -> list[list[str]]:
    """10,000 processes a minute that end at once."""
    return [[str(_program(folder)), "starter", "/bin/true", "10000"], *busy(folder)]


def go_build(folder: Path) -> list[list[str]]:
    """Builds of Go's standard library, one after the other."""
    build = f"while :; do GOCACHE={folder}/go go build -a std; done"
    return [["sh", "-c", build]]


def c_build(folder: Path) -> list[list[str]]:
    """Builds of a C program of small files, one after the other: each file takes a compiler and an assembler."""
    (folder / "Makefile").write_text(_MAKEFILE)
    (folder / "part.c").write_text(_PROGRAMS)
    return [["sh", "-c", f"while :; do make -C {folder} -j{CPUS} -B; done"]]


def binaries_500(folder: Path) -> list[list[str]]:
    """500 programs with build IDs of their own."""
    original = _program(folder).read_bytes()
    commands = []
    for number in range(BINARIES):
        path = folder / f"program{number}"
        path.write_bytes(original.replace(_MARKER, number.to_bytes(len(_MARKER), "big")))
        path.chmod(0o755)
        commands.append([str(path), "worker", "1"])
    return commands + busy(folder)


def node_and_java(folder: Path) -> list[list[str]]:
    """50 processes of Node and 20 of Java, each of which works ten times a second."""
    (folder / "Load.java").write_text(_JAVA)
    subprocess.run(["javac", str(folder / "Load.java")], check=True)
    java = ["java", "-Xmx32m", "-XX:+UseSerialGC", "-cp", str(folder), "Load"]
    return [["node", "-e", _NODE]] * 50 + [java] * 20 + busy(folder)


LOADS: dict[str, Callable[[Path], list[list[str]]]] = {
    "busy": busy,
    "50_processes": processes_50,
    "2000_processes": processes_2000,
    "short_lived": short_lived,
    "go_build": go_build,
    "c_build": c_build,
    "500_binaries": binaries_500,
    "node_and_java": node_and_java,
}
"""Each returns the commands to run; the folder is for its files."""
NEEDS = {
    "go_build": ["go"],
    "c_build": ["make"],
    "2000_processes": ["gcc"],
    "short_lived": ["gcc"],
    "500_binaries": ["gcc"],
    "node_and_java": ["node", "javac"],
}


def missing(name: str) -> str:
    """The program that this load needs and this machine lacks, or ""."""
    return next((program for program in NEEDS.get(name, []) if not shutil.which(program)), "")


@contextmanager
def running(name: str, folder: Path) -> Iterator[None]:
    """Runs a load."""
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for command in LOADS[name](folder)
    ]
    try:
        yield
    finally:
        for process in started:
            os.killpg(process.pid, 9)
            process.wait()


def _program(folder: Path) -> Path:
    path = folder / "program"
    if not path.exists():
        command = ["gcc", "-O1", "-x", "c", "-", "-o", str(path), f"-Wl,--build-id=0x{_MARKER.hex()}"]
        subprocess.run(command, input=_PROGRAMS.encode(), check=True)
    return path
