"""SQL of users: one SELECT of icestream's own database, within limits.

`readonly` forbids writing, and most table functions, but not `file('/etc/passwd')` or INTO OUTFILE of the embedded
engine. So the engine first formats the statement (which refuses several), and then says what it consists of (EXPLAIN
AST, which only parses). Only known kinds of nodes, functions and tables pass. Both times the statement is a subquery.
"""

import re
from dataclasses import dataclass
from typing import Any

import orjson
from clickhouse_connect.driver.exceptions import ClickHouseError

from api.errors import ApiError, bad_request
from api.queries.database import Database

MAX_SQL = 100_000
"""Characters of a statement."""
MAX_ROWS = 10_000

_NODES = {
    "ArrayJoin", "Asterisk", "ColumnsExceptTransformer", "ColumnsListMatcher", "ColumnsRegexpMatcher",
    "ColumnsTransformerList",
    "ExpressionList", "Function", "Identifier", "InterpolateElement", "Literal", "OrderByElement", "QualifiedAsterisk",
    "QualifiedColumnsListMatcher", "QualifiedColumnsRegexpMatcher", "SampleRatio", "SelectIntersectExceptQuery",
    "SelectQuery", "SelectWithUnionQuery", "Subquery", "TableExpression", "TableIdentifier", "TableJoin",
    "TablesInSelectQuery", "TablesInSelectQueryElement", "WindowDefinition", "WindowListElement", "WithElement",
}  # fmt: skip
"""Kinds of nodes of a statement. Not among them: Set (settings), QueryParameter, and APPLY, which hides a function."""
_TABLE_FUNCTIONS = {"generateseries", "generate_series", "numbers", "values", "view", "zeros"}
_REFUSED_CATEGORIES = {
    "", "AI", "Dictionary", "Embedded Dictionary", "Internal", "Introspection", "Machine Learning", "Other",
}  # fmt: skip
"""Functions of these categories may read files, ask other servers, wait, or tell of the machine and its settings."""
_HARMLESS = {
    "bar", "bytesize", "countdigits", "currentdatabase", "exists", "finalizeaggregation",
    "formatreadabledecimalsize",
    "formatreadablequantity", "formatreadablesize", "formatreadabletimedelta", "identity", "ignore", "lambda",
    "lowcardinalitykeys", "materialize", "neighbor", "rownumberinallblocks", "rownumberinblock", "runningdifference",
    "totypename", "transform", "tupleelement", "version",
}  # fmt: skip
_LINE = re.compile(r"( *)([A-Za-z]+)(?: (.*))?")
_NAME = re.compile(r"(.*?)(?: \(alias .*\))?(?: \(children \d+\))?", re.DOTALL)
_SETTINGS = (
    ", readonly = 1, query_plan_remove_redundant_sorting = 0, output_format_json_quote_64bit_integers = 0,"
    " output_format_json_validate_utf8 = 1,"
    " output_format_json_named_tuples_as_objects = 0"
)


@dataclass(frozen=True)
class SqlAnswer:
    columns: list[dict[str, str]]  # name and type
    rows: list[list[Any]]
    more: bool
    """Whether there are more rows."""


@dataclass(frozen=True)
class _Allowed:
    database: str
    other_databases: frozenset[str]
    tables: frozenset[str]
    functions: frozenset[str]  # in small letters
    aggregates: frozenset[str]
    combinators: tuple[str, ...]

    def is_function(self, name: str) -> bool:
        name = name.lower()
        return name in self.functions or self._is_aggregate(name)

    def _is_aggregate(self, name: str) -> bool:
        ends = [end for end in self.combinators if name.endswith(end)]
        return name in self.aggregates or any(self._is_aggregate(name.removesuffix(end)) for end in ends)


class ReadOnlySql:
    """May be used by many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._allowed: _Allowed | None = None

    def answer(self, sql: str, most_rows: int) -> SqlAnswer:
        """Returns up to `most_rows` rows. Raises ApiError."""
        allowed = self._allowed = self._allowed or self._read_allowed()
        [statement] = self._read("SELECT formatQuerySingleLine({sql:String})", {"sql": sql})[1][0]
        if not statement.lstrip("( ").startswith(("SELECT", "WITH")):
            raise bad_request("bad_sql", "only SELECT is answered", "write one SELECT, or WITH ... SELECT")
        whole = f"SELECT * FROM ({statement})"  # as it is run: in brackets, it can have no FORMAT and no file
        _check(self._ask(f"EXPLAIN AST {whole}", None, None).decode(errors="replace").splitlines(), allowed)
        columns, rows = self._read(f"{whole} LIMIT {int(most_rows) + 1}")
        return SqlAnswer(columns, rows[:most_rows], len(rows) > most_rows)

    def _read(self, sql: str, parameters: dict[str, Any] | None = None) -> tuple[list[dict[str, str]], list[list[Any]]]:
        answer = orjson.loads(self._ask(sql, parameters, _SETTINGS))
        return answer["meta"], answer["data"]

    def _ask(self, sql: str, parameters: dict[str, Any] | None, settings: str | None) -> bytes:
        try:
            return self._database.raw(sql, parameters, settings)
        except ClickHouseError as error:
            raise _as_bad_sql(error) from error

    def _read_allowed(self) -> _Allowed:
        [[database]] = self._read("SELECT currentDatabase()")[1]
        names = self._read("SELECT name FROM system.databases")[1]
        tables = self._read("SELECT name FROM system.tables WHERE database = currentDatabase()")[1]
        functions = self._read("SELECT lower(name), lower(alias_to), is_aggregate, categories FROM system.functions")[1]
        combinators = self._read("SELECT lower(name) FROM system.aggregate_function_combinators")[1]
        of_tables = {name.lower() for (name,) in self._read("SELECT name FROM system.table_functions")[1]} - {"format"}
        refused = {name for name, _, _, categories in functions if categories in _REFUSED_CATEGORIES} - _HARMLESS
        plain = {
            name
            for name, original, is_aggregate, categories in functions
            if not is_aggregate and (original or name) not in refused and (original or categories or name in _HARMLESS)
        }
        return _Allowed(
            database=database,
            other_databases=frozenset(name for (name,) in names if name != database),
            tables=frozenset(name for (name,) in tables),
            functions=frozenset((plain | _HARMLESS) - of_tables),
            aggregates=frozenset(name for name, _, is_aggregate, _ in functions if is_aggregate),
            combinators=tuple(name for (name,) in combinators),
        )


def _check(lines: list[str], allowed: _Allowed) -> None:
    """Raises ApiError if a node of a statement is not allowed. A name with a line break cannot hide a node: its own
    lines come after it."""
    above: dict[int, str] = {}  # the last node of each depth
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or match[2] not in _NODES:
            raise _refused(f"{(match[2] if match else line)[:60]!r} in the statement")
        depth, kind = len(match[1]), match[2]
        name = _name(match[3] or "")
        above[depth] = kind
        if kind == "Function" and above.get(depth - 1) == "TableExpression":
            if name.lower() not in _TABLE_FUNCTIONS and name not in allowed.tables:
                raise _refused(f"the table function {name[:60]!r}")
        elif kind == "Function" and not allowed.is_function(name):
            raise _refused(f"the function {name[:60]!r}")
        elif kind in ("TableIdentifier", "Identifier"):
            database, dot, _ = name.partition(".")
            if dot and (
                database in allowed.other_databases or (kind == "TableIdentifier" and database != allowed.database)
            ):
                raise _refused(f"{name[:60]!r}")


def _name(text: str) -> str:
    match = _NAME.fullmatch(text)
    return match[1] if match else text


def _refused(what: str) -> ApiError:
    return bad_request(
        "bad_sql", f"{what} is not allowed here",
        "ask for tables and views of icestream's database (docs/storage.md), with functions that compute only",
    )  # fmt: skip


def _as_bad_sql(error: ClickHouseError) -> ApiError:
    text = re.sub(
        r"^.*?DB::Exception: |\s*\(version .*|\s*\(for url .*|\.?:? In scope .*", "", str(error), flags=re.DOTALL
    )
    return bad_request("bad_sql", text[:1000].strip() or "the engine refuses the statement")
