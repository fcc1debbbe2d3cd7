"""mainspring locks."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from mainspring import Mainspring
from tests.cli.conftest import LIMIT, Shop
from tests.rows.crew import until

Golden = Callable[[str, str], None]


@pytest.fixture
def held(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A lock, two places of a semaphore and an office; and what differs each time."""
    monkeypatch.setattr(sys, "argv", ["report.py"])
    app = shop.app
    first, second = (app.semaphore("gpu", 2, ttl="1h") for _ in range(2))
    with app.lock("nightly", ttl="1h"), app.election("main", ttl="1h") as election, first, second:
        until(lambda: election.leader, "it is elected")
        found = app.locks.list()
        tokens = {str(each.token): f"<token {n}>" for n, each in enumerate(found)}
        holder = found[0].holder
        yield {**tokens, holder.host: "<host>", str(holder.pid): "<pid>"}


def masked(text: str, masks: dict[str, str]) -> str:
    for each, instead in masks.items():
        text = text.replace(each, instead)
    return re.sub(r'\b59m[\d.]+s|\b1h$|(?<="remaining": )[\d.]+', "<left>", text, flags=re.MULTILINE)


@pytest.mark.row("U2", "L1")
@pytest.mark.option("cli.locks.ls.limit")
def test_ls_shows_each_lock_with_its_holder(shop: Shop, golden: Golden, held: dict[str, str]) -> None:
    golden("locks-ls.txt", masked(shop.call("locks", "ls").out, held))
    golden("locks-ls.json", masked(shop.run("locks", "ls", "--json").out, held))
    [only] = json.loads(shop.run("locks", "ls", "--limit", "1", "--json").out)["locks"]
    assert (only["name"], only["kind"]) == ("main", "election")
    assert 0 < only["remaining"] <= 3600


@pytest.mark.row("U2", "L1")
def test_ls_without_locks_says_so(shop: Shop, golden: Golden) -> None:
    golden("locks-none.txt", shop.run("locks", "ls").out)
    assert json.loads(shop.run("locks", "ls", "--json").out) == {"locks": []}
    assert shop.run("locks", "ls", "--limit", "0").code == 2


@pytest.mark.row("C4", "U2")
@pytest.mark.option("cli.locks.ls.url", "cli.locks.ls.namespace", "cli.locks.ls.as_json", "cli.locks.ls.app")
@pytest.mark.stores("sqlite")
def test_the_store_is_named_by_flags(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the flags the command would import an app that cannot be imported."""
    monkeypatch.delenv("MAINSPRING_URL")
    code = f"from mainspring import Mainspring\napp = Mainspring({shop.url!r}, namespace='other')\n"
    (shop.folder / "good.py").write_text(code)
    (shop.folder / "app.py").write_text("from mainspring import Mainspring\napp = Mainspring()\n1 / 0\n")
    app = Mainspring(shop.url, namespace="other")
    with app.lock("nightly"):
        assert shop.run("locks", "ls").code == 2
        for flags in (["--url", shop.url, "--namespace", "other"], ["-A", "good.py"]):
            [found] = json.loads(shop.run("locks", "ls", *flags, "--json").out)["locks"]
            assert found["name"] == "nightly"
    app.close()


@pytest.mark.row("U2")
@pytest.mark.option("cli.locks.ls.watch")
def test_watch_prints_the_locks_again_and_again(shop: Shop) -> None:
    lock = shop.app.lock("nightly")
    lock.acquire()
    watching = shop.start("locks", "ls", "--watch", "0.1", "--json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["locks"][0]["name"] == "nightly"
    lock.release()
    while json.loads(watching.stdout.readline())["locks"]:
        pass
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=LIMIT)
    assert watching.returncode == 130
