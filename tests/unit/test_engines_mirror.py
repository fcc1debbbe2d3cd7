"""The three engines have the same names: a reader of one engine finds everything in the other two."""

from __future__ import annotations

from pathlib import Path

import pytest

import mainspring.stores

STORES = Path(mainspring.stores.__file__).parent
ENGINES = ("sqlite", "postgres", "redis")
TEXTS = {"sqlite": "sql", "postgres": "sql", "redis": "lua"}
JOBS = {
    *("enqueue", "claim", "ack", "finish", "follow_ups", "keys"),
    *("query", "actions", "prune", "promote", "reports"),
}
"""The modules or packages of ``jobs/``."""
NAMES = {
    *("__init__", "store", "turn", "jobs", "limits", "holders", "breakers", "fair", "lanes", "queues", "schedules"),
    *("fleet", "flows", "documents", "rows", "driver"),
}
OWN = {"redis": {"__main__"}}
"""``python -m mainspring.stores.redis`` prints the access rules of a user."""


def names(folder: Path) -> set[str]:
    """The modules and packages directly in a folder; a module and a package of one name are alike."""
    found = set()
    for path in folder.iterdir():
        if path.suffix == ".py":
            found.add(path.stem)
        elif path.is_dir() and path.name != "__pycache__":
            found.add(path.name)
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_has_a_module_or_package_for_every_feature_and_no_other(engine: str) -> None:
    assert names(STORES / engine) == NAMES | OWN.get(engine, set()) | {TEXTS[engine]}
    assert names(STORES / engine / "jobs") == JOBS | {"__init__"}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_sql_files_are_named_after_a_feature(engine: str) -> None:
    """``sql/claim.sql``, or files in ``sql/claim/``. The schema belongs to the driver.

    Redis has a script for each method of the contract, made from parts that are named by feature.
    """
    found = {path.stem for path in (STORES / engine / "sql").iterdir()}
    assert found - NAMES - JOBS <= {"schema"}
