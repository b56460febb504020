"""Fills the tables with generated samples, within ClickHouse.

50 services run on 40 of 200 hosts each. A service has 4,000 stacks of depth 10 to 80: their frames near the root are
shared, and each has a leaf of its own. Four versions of a service follow each other, and a new one replaces a fifth of
its stacks. Few stacks are hot. 5 % of the samples are in a trace, of about 20 samples. A version of a service runs in
one pod of a host, or in more: 125 make a million series.
"""

from clickhouse_connect.driver.client import Client

from icestream.topics import DEFAULT_PROFILE_TYPE

SERVICES, HOSTS, HOSTS_OF_SERVICE, VERSIONS = 50, 200, 40, 4
STACKS, IN_VERSION, NEW_IN_VERSION = 4_000, 2_500, 500
DEPTHS = (10, 80)
START_S = 1_769_990_400
"""A midnight (UTC)."""
DAY_S = 86_400
INSERT_ROWS = 2_000_000

_ID = "greatest(cityHash64({}), 1)"
_DEPTH = f"({DEPTHS[0]} + cityHash64('depth', service, stack) % {DEPTHS[1] - DEPTHS[0] + 1})"
# At depth d, the stacks of a service run through about 1.12^d nodes.
_BRANCH = f"intDiv(stack, toUInt32(greatest(1, {STACKS} / pow(1.12, {{}}))))"
_LEAF = _ID.format("'leaf', service, stack")


def _node(depth: str) -> str:
    return _ID.format(f"service, {depth}, {_BRANCH.format(depth)}")


_TREE = {
    "nodes": f"""
        INSERT INTO nodes
        SELECT node_id, parent_id, location_id, now() FROM
        (
            SELECT if(depth = of_stack, {_LEAF}, {_node("depth")}) AS node_id,
                any(if(depth = 1, 0, {_node("(depth - 1)")})) AS parent_id,
                any({_ID.format(f"'location', service, (depth * 7 + {_BRANCH.format('depth')}) % 2000")}) AS location_id
            FROM (SELECT intDiv(number, {STACKS}) AS service, number % {STACKS} AS stack,
                toUInt32({_DEPTH}) AS of_stack, toUInt32(arrayJoin(range(1, of_stack + 1))) AS depth
                FROM numbers({SERVICES * STACKS}))
            GROUP BY node_id
        )""",
    "locations": f"""
        INSERT INTO locations
        SELECT {_ID.format("'location', service, function")}, 1, concat('gnu:', toString(service)),
            concat('/usr/bin/service-', toString(service)), function * 64, 1,
            [(concat('function_', toString(function)), concat('file_', toString(function % 50), '.c'), 10, 5)], now()
        FROM (SELECT intDiv(number, 2000) AS service, number % 2000 AS function FROM numbers({SERVICES * 2000}))""",
    "series": f"""
        INSERT INTO series
        SELECT {_ID.format("'series', service, host, version, pod")},
            map('service', concat('service-', toString(service)), 'host', concat('host-', toString(host)),
            'version', concat('1.', toString(version)), 'pod', concat('pod-', toString(pod))), now()
        FROM
        (
            SELECT number % {SERVICES} AS service, intDiv(number, {SERVICES}) % {VERSIONS} AS version,
                (service * 4 + intDiv(number, {SERVICES * VERSIONS})) % {HOSTS} AS host,
                toUInt32(intDiv(number, {SERVICES * VERSIONS * HOSTS_OF_SERVICE})) AS pod
            FROM numbers({SERVICES * VERSIONS * HOSTS_OF_SERVICE} * {{pods}})
        )""",
}  # fmt: skip

# `r` is a sample's source of chance: each question takes other bits of it.
_SAMPLES = f"""
    INSERT INTO samples
    SELECT '{DEFAULT_PROFILE_TYPE}', concat('service-', toString(service)),
        {_ID.format("'series', service, host, version, pod")}, concat('host-', toString(host)),
        fromUnixTimestamp64Milli(at_ms, 'UTC'), toUInt32(1000 + service), toUInt32(1000 + service + intDiv(r, 512) % 8),
        {_LEAF},
        if(traced, reinterpretAsFixedString(sipHash128('t', service, intDiv(number, 20000))), toFixedString('', 16)),
        if(traced, reinterpretAsFixedString(cityHash64('span', service, intDiv(number, 20000))), toFixedString('', 8)),
        1, 52631579, concat('samples/host-', toString(host), '/1/0'), intDiv(at_ms, 5000), ''
    FROM
    (
        SELECT number, cityHash64(number) AS r, cityHash64(r) AS r2,
            toInt64(number * {{length_ms}} / {{rows}}) + {START_S * 1000} AS at_ms,
            toUInt32(r % {SERVICES}) AS service,
            toUInt32((service * 4 + intDiv(r, 4096) % {HOSTS_OF_SERVICE}) % {HOSTS}) AS host,
            toUInt32(least(({VERSIONS} - 1) * (at_ms - {START_S * 1000}) / {{length_ms}} + service / {SERVICES},
                {VERSIONS - 1})) AS version,
            toUInt32(version * {NEW_IN_VERSION}
                + pow((r2 % 1000003) / 1000003, 3) * {IN_VERSION}) AS stack,
            intDiv(r2, 1048576) % 20 = 0 AS traced,
            toUInt32(intDiv(r2, 33554432) % {{pods}}) AS pod
        FROM numbers({{first}}, {{count}})
    )"""


def fill_names(client: Client, pods: int) -> None:
    """Inserts nodes, locations and series."""
    for sql in _TREE.values():
        client.command(sql.format(pods=pods))


def fill_samples(client: Client, rows: int, days: int, pods: int) -> None:
    """Inserts samples in the order of time, spread over `days` days from START_S on."""
    for first in range(0, rows, INSERT_ROWS):
        count = min(INSERT_ROWS, rows - first)
        client.command(_SAMPLES.format(first=first, count=count, rows=rows, length_ms=days * DAY_S * 1000, pods=pods))
