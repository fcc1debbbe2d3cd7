"""Statements in the words of the protocol, for the one call that must be short: the enqueue of plain jobs.

The driver looks up a dumper for each parameter, rewrites placeholders and makes a cursor: for a statement with ten
parameters that takes longer than all the rest of an enqueue. Here the caller gives the values as the protocol has them,
and the server knows their types from the function that is called. A connection prepares such a statement after some
uses, as the driver does.

Texts are sent as binary values, with their length: a NUL in a text value would end it, and the server must refuse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult

NativeRows = list[tuple[bytes | None, ...]]

PREPARE_AFTER: Final = 5
"""A statement that a session runs this often is prepared on the server."""
_BYTEA = 17
"""The type of bytes on the server."""
_array = Struct(">iiIii").pack
_length = Struct(">i").pack
_OK = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)


def byteas(values: Sequence[bytes]) -> bytes:
    """The binary value of an array of bytes: dimensions, nulls, type, length and first index, then each value."""
    parts = [_array(1, 0, _BYTEA, len(values), 1)]
    for value in values:
        parts += (_length(len(value)), value)
    return b"".join(parts)


class NativeStep(NamedTuple):
    """A statement with ``$1``, ``$2`` for its parameters."""

    sql: bytes
    values: Sequence[bytes | str | None]
    formats: Sequence[Format]


class NativeStatements:
    """The statements that one connection has run."""

    def __init__(self, encoding: str) -> None:
        """``encoding``: of the texts on this connection."""
        self._encoding = encoding
        self._uses: dict[bytes, int] = {}
        self._names: dict[bytes, bytes] = {}

    def run(self, pgconn: PGconn, step: NativeStep) -> PQGen[NativeRows]:
        """Run a statement; the connection waits for it with its own ``wait``. The values of the rows are binary."""
        sql, given, formats = step
        values = [value.encode(self._encoding) if isinstance(value, str) else value for value in given]
        name = self._names.get(sql)
        if name is None:
            uses = self._uses[sql] = self._uses.get(sql, 0) + 1
            if uses < PREPARE_AFTER:
                pgconn.send_query_params(sql, values, param_formats=formats, result_format=Format.BINARY)
                return _rows((yield from self._result(pgconn)))
            name = b"mainspring_%d" % len(self._names)
            pgconn.send_prepare(name, sql)
            yield from self._result(pgconn)
            self._names[sql] = name
        pgconn.send_query_prepared(name, values, formats, Format.BINARY)
        return _rows((yield from self._result(pgconn)))

    def _result(self, pgconn: PGconn) -> PQGen[PGresult]:
        found: list[PGresult] = yield from generators.execute(pgconn)
        result = found[-1]
        if result.status not in _OK:
            raise error_from_result(result, self._encoding)
        return result


def _rows(result: PGresult) -> NativeRows:
    if not result.ntuples:
        return []
    columns = range(result.nfields)
    return [tuple([result.get_value(row, column) for column in columns]) for row in range(result.ntuples)]
