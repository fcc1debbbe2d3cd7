"""mainspring breakers."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from mainspring import Mainspring
from tests.cli.conftest import LIMIT, Shop

Golden = Callable[[str, str], None]


def make(app: Mainspring, *names: str) -> None:
    for name in names:
        with app.breaker(name, failures=3):
            pass


@pytest.mark.row("U2", "R8")
def test_ls_shows_the_state_of_each_breaker(shop: Shop, golden: Golden) -> None:
    make(shop.app, "mail")
    with shop.app.breaker("search", rate=0.25, minimum=10):
        pass
    with pytest.raises(ConnectionError), shop.app.breaker("payments", failures=1, open_for="1h"):
        raise ConnectionError("away")
    shop.app.breakers.trip("mail")
    golden("breakers-ls.txt", shop.call("breakers", "ls").out)
    golden("breakers-ls.json", shop.run("breakers", "ls", "--json").out)


@pytest.mark.row("U2", "R8")
@pytest.mark.option("cli.breakers.trip.name", "cli.breakers.reset.name", "cli.breakers.trip.for_")
def test_trip_and_reset_print_the_new_state(shop: Shop, golden: Golden) -> None:
    make(shop.app, "mail")
    golden("breakers-trip.txt", shop.run("breakers", "trip", "mail").out)
    assert (shop.app.breakers.get("mail").state, shop.app.breakers.get("mail").until) == ("open", None)
    golden("breakers-reset.txt", shop.run("breakers", "reset", "mail").out)
    assert shop.app.breakers.get("mail").state == "closed"
    [tripped] = json.loads(shop.run("breakers", "trip", "mail", "--for", "2h", "--json").out)["breakers"]
    assert (tripped["state"], tripped["tripped"], tripped["until"] is None) == ("open", True, False)


def test_unknown_breakers_and_bad_durations_are_refused(shop: Shop) -> None:
    make(shop.app, "mail")
    for words, says in ((("trip", "mial"), "did you mean"), (("trip", "mail", "--for", "soon"), "for_")):
        ran = shop.run("breakers", *words)
        assert (ran.code, says in ran.err) == (2, True), ran.err


@pytest.mark.row("C4", "U2")
@pytest.mark.option("cli.breakers.ls.url", "cli.breakers.ls.namespace", "cli.breakers.ls.as_json")
@pytest.mark.option("cli.breakers.trip.url", "cli.breakers.trip.namespace", "cli.breakers.trip.as_json")
@pytest.mark.option("cli.breakers.reset.url", "cli.breakers.reset.namespace", "cli.breakers.reset.as_json")
@pytest.mark.option("cli.breakers.ls.app", "cli.breakers.trip.app", "cli.breakers.reset.app")
@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("command", ["ls", "trip other", "reset other"])
def test_the_store_is_named_by_flags(shop: Shop, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Without the flags the command would import an app that cannot be imported."""
    app = Mainspring(shop.url, namespace="other")
    make(app, "other")
    app.close()
    monkeypatch.delenv("MAINSPRING_URL")
    code = f"from mainspring import Mainspring\napp = Mainspring({shop.url!r}, namespace='other')\n"
    (shop.folder / "good.py").write_text(code)
    (shop.folder / "app.py").write_text("from mainspring import Mainspring\napp = Mainspring()\n1 / 0\n")
    words = ["breakers", *command.split()]
    assert shop.run(*words).code == 2
    for flags in (["--url", shop.url, "--namespace", "other"], ["-A", "good.py"]):
        [found] = json.loads(shop.run(*words, *flags, "--json").out)["breakers"]
        assert found["name"] == "other"


@pytest.mark.option("cli.breakers.ls.watch")
def test_watch_prints_the_breakers_again_and_again(shop: Shop) -> None:
    make(shop.app, "mail")
    watching = shop.start("breakers", "ls", "--watch", "0.1", "--json")
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["breakers"][0]["state"] == "closed"
    shop.app.breakers.trip("mail")
    while json.loads(watching.stdout.readline())["breakers"][0]["state"] != "open":
        pass
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=LIMIT)
    assert watching.returncode == 130
