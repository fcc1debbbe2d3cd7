"""Progress, log lines and stream items of running attempts, what queues do, and the small documents."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import msgspec

from mainspring.jobs.records import AttemptReport, LogLine
from mainspring.stores.records import Document

from .heads import moment

LINES_KEPT = 1000
_pack = msgspec.msgpack.Encoder().encode
_line = msgspec.msgpack.Decoder(tuple[int, str, str]).decode
_number = Struct(">d").unpack_from


def report_arguments(worker: str, reports: Sequence[AttemptReport]) -> list[bytes | str | int]:
    words: list[bytes | str | int] = [worker]
    for report in reports:
        lines = [_pack((line.at, line.level, _clean(line.text))) for line in report.logs[-LINES_KEPT:]]
        items = [moment(n) + data for n, data in dict(report.items).items()]
        progress = b"" if report.progress is None else b"+" + report.progress
        words += (report.id + moment(report.token), progress, len(report.logs), len(lines), len(items), *lines, *items)
    return words


def _clean(text: str) -> str:
    """Text that a lone surrogate would make impossible to store."""
    return text.encode("utf-8", "replace").decode("utf-8")


def log_lines(entries: Sequence[bytes], after: int) -> list[LogLine]:
    lines = []
    for entry in entries:
        (n,) = _number(entry)
        if n > after:
            lines.append(LogLine(*_line(entry[8:]), int(n)))
    return lines


def items(members: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return [(int(_number(member)[0]), member[8:]) for member in members]


def documents(kind: str, stored: dict[bytes, bytes]) -> list[Document]:
    """By name."""
    found = []
    for name, value in stored.items():
        version, _, data = value.partition(b":")
        found.append(Document(kind, name.decode(), int(version), data))
    return sorted(found, key=lambda doc: doc.name)
