"""`./dev mission`: every row of docs/reference/mission.md with its tests and their results on each store."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import environment, outcomes, tests

STORES = ("sqlite", "postgres", "redis")
TABLE = environment.ROOT / "docs" / "reference" / "mission.md"


@dataclass(frozen=True, slots=True)
class Row:
    """One promise: where it must be shown (`needs`) and where a missing proof is a failure already (`owed`)."""

    id: str
    text: str
    needs: tuple[str, ...]
    owed: tuple[str, ...]


def command(args: list[str]) -> int:
    """Print the table; fail when an owed row is not shown to work."""
    if unknown := set(args) - {"--run", "--json"}:
        raise environment.Failed(f"mission takes --run and --json, not {' '.join(sorted(unknown))}")
    if "--run" in args:
        output = _stdout_to_stderr if "--json" in args else _plain
        output(["-m", "row"])
    record = load(tests.RESULTS)
    rows = parse(TABLE.read_text())
    found = {row.id: judge(row, record["tests"]) for row in rows}
    if "--json" in args:
        print(json.dumps({"commit": record["commit"], "rows": found}, indent=1))
    else:
        _show(rows, found, record)
    lacking = [
        f"{row.id} on {store}" for row in rows for store in row.owed if found[row.id][store] not in outcomes.PASSED
    ]
    if lacking:
        print(f"owed and not shown to work: {', '.join(lacking)}", file=sys.stderr)
    return 1 if lacking else 0


def parse(text: str) -> list[Row]:
    """The rows of the Markdown table `| ID | works when | needs | owed |`."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("| ") or len(cells) != 4 or cells[0] == "ID":
            continue
        needs = {"each": STORES, "one": ("any",)}[cells[2]]
        owed = needs if cells[3] == "each" else tuple(cells[3].strip("-").replace(",", " ").split())
        if wrong := set(owed) - set(needs):
            raise environment.Failed(f"row {cells[0]} owes {sorted(wrong)} but needs {needs}")
        rows.append(Row(cells[0], cells[1], needs, owed))
    return rows


def judge(row: Row, tested: list[outcomes.Tested]) -> dict[str, str]:
    """The row's result for each store it needs: the worst outcome of its tests.

    A row that needs one run takes every test as that run. For other rows, a test without a store proves nothing, but
    a failure of this test counts for every store.
    """
    mine = [test for test in tested if row.id in test["rows"]]
    unbound = [test["outcome"] for test in mine if test["store"] == "any" and test["outcome"] != "passed"]
    found = {}
    for store in row.needs:
        own = [test["outcome"] for test in mine if store in ("any", test["store"])] or ["missing"]
        found[store] = max([*own, *unbound], key=outcomes.SEVERITY.index)
    return found


def load(path: Path) -> outcomes.Results:
    """The last full run's record."""
    try:
        results: outcomes.Results = json.loads(path.read_text())
    except FileNotFoundError:
        raise environment.Failed("no test run is recorded yet: ./dev test, or ./dev mission --run") from None
    return results


def _plain(args: list[str]) -> int:
    return tests.run_twice(args, record=True)


def _stdout_to_stderr(args: list[str]) -> int:
    """Send our own output to stderr, so that stdout has only JSON."""
    import os

    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        return _plain(args)
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _show(rows: list[Row], found: dict[str, dict[str, str]], record: outcomes.Results) -> None:
    print(f"commit of the run: {record['commit']}\n")
    for row in rows:
        results = "  ".join(f"{store} {result}" for store, result in found[row.id].items())
        owed = f"  (owed: {', '.join(row.owed)})" if row.owed else ""
        print(f"{row.id:4} {row.text}\n     {results}{owed}")
        for name in sorted({test["id"] for test in record["tests"] if row.id in test["rows"]}):
            print(f"       {name}")
