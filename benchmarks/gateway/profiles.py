"""The load: profiles of services whose names come with them, in pprof and gzip."""

import gzip
import random
import time

from tests.gateway.profiles import maker

SERVICES, STACKS, FUNCTIONS, SAMPLES = 10, 2000, 1500, 150
WINDOW_NS = 10 * 10**9


def make_profiles(count: int, new_stacks: int = 0, pods: int = 1) -> list[tuple[int, bytes]]:
    """Returns the number of the service and the body of each. `new_stacks`: how many of a profile's samples have a
    stack of known functions that no profile had before. Each window has a profile of each service and of its `pods`."""
    chosen = random.Random(1)
    services = [_stacks(chosen, number) for number in range(SERVICES)]
    at_once = SERVICES * pods
    first = time.time_ns() - count // at_once * WINDOW_NS - 60 * 10**9
    return [
        (i % SERVICES, _profile(chosen, services[i % SERVICES], first + i // at_once * WINDOW_NS, new_stacks))
        for i in range(count)
    ]


def _stacks(chosen: random.Random, service: int) -> list[list[int]]:
    """Stacks of numbers of functions, root first."""
    stacks: list[list[int]] = [[0]]
    while len(stacks) < STACKS:
        stem = chosen.choice(stacks)
        stem = stem[: chosen.randint(1, len(stem))]
        more = chosen.randint(1, max(60 - len(stem), 1))
        stacks.append(stem + [(service * 7 + chosen.randrange(FUNCTIONS)) % FUNCTIONS for _ in range(min(more, 12))])
    return stacks


def _profile(chosen: random.Random, stacks: list[list[int]], time_nanos: int, new_stacks: int) -> bytes:
    made = maker([("samples", "count"), ("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
    made.profile.time_nanos, made.profile.duration_nanos = time_nanos, WINDOW_NS
    ids: dict[int, int] = {}
    for at, known in enumerate(chosen.sample(stacks, SAMPLES)):
        stack = known + [chosen.randrange(FUNCTIONS) for _ in range(3)] if at < new_stacks else known
        for number in stack:
            if number not in ids:
                ids[number] = len(ids) + 1
                name = made.string(
                    f"github.com/company/shop/internal/package{number % 90}.(*Type{number % 40}).Method{number}"
                )
                file = made.string(
                    f"/go/src/github.com/company/shop/internal/package{number % 90}/file{number % 200}.go"
                )
                made.profile.function.add(id=ids[number], name=name, system_name=name, filename=file, start_line=10)
                made.profile.location.add(id=ids[number], address=4096 + number * 64).line.add(
                    function_id=ids[number], line=10 + number % 80
                )
        count = chosen.randint(1, 20)
        made.profile.sample.add(location_id=[ids[number] for number in reversed(stack)], value=[count, count * 10**7])
    return gzip.compress(made.done().SerializeToString(), 6)
