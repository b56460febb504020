"""Ask the tables and views in SQL while icestream runs: one SELECT, read only.

  icestream sql "SELECT service, sum(value) / 1e9 AS cpu_s FROM samples WHERE time > now() - 3600 GROUP BY service"
  icestream sql "SELECT function, cumulative_ns / 1e9 AS cpu_s
      FROM function_cpu(start = now() - INTERVAL 1 HOUR, end = now()) ORDER BY cpu_s DESC LIMIT 20"
  echo "SELECT service, operation, thread_cpu_ns FROM operation_cpu(start = now() - 3600, end = now())" |
      icestream sql --format csv | head

Without a statement, it is read from standard input. The API answers: that of `icestream up` or `icestream api`, where
it listens on the loopback only, or with --api-sql always. docs/storage.md lists the tables and views.
"""

import argparse
import csv
import json
import sys
from typing import Any

from api.terminal.client import DEFAULT_URL, URL_VARIABLE, Client
from api.terminal.draw import table
from icestream.cli import CommandError, positive
from icestream.process.printable import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("statement", nargs="?", help="one SELECT (default: from standard input)")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="default: table")
    parser.add_argument("--rows", type=positive, default=1_000, help="rows at most (default: 1000; 10000 at most)")
    parser.add_argument("--url", help=f"address of the API (default: ${URL_VARIABLE}, else {DEFAULT_URL})")


def run(args: argparse.Namespace) -> int:
    if args.statement is None and sys.stdin.isatty():
        raise CommandError('give a statement: icestream sql "SELECT ..."')
    statement = args.statement if args.statement is not None else sys.stdin.read()
    answer = Client(args.url).json("/api/v1/sql", {"rows": args.rows}, statement)
    names, rows = [column["name"] for column in answer["columns"]], answer["rows"]
    if args.format == "json":
        print(json.dumps(answer, ensure_ascii=False))
    elif args.format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(value) for value in row] for row in rows)
    else:
        numbers = [_is_number(column["type"]) for column in answer["columns"]]
        right = numbers.index(False) if False in numbers else len(numbers)
        print("\n".join(table([printable(name) for name in names], [_shown(row) for row in rows], right)))
    if answer["more"]:
        print(
            f"icestream sql: there are more than {len(rows)} rows; --rows {10 * len(rows)} shows more", file=sys.stderr
        )
    return 0


def _shown(row: list[Any]) -> list[str]:
    return [printable(_text(value)) for value in row]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_number(kind: str) -> bool:
    return any(number in kind for number in ("Int", "Float", "Decimal")) and "(" not in kind.replace("Nullable(", "")
