"""mainspring schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.jobs.job import Job
from tests.cli.conftest import LIMIT, Shop
from tests.rows.crew import until

Golden = Callable[[str, str], None]


def unhurried(text: str) -> str:
    """Without how long ago or ahead something is, where that stands alone, and without the year of what is to come."""
    text = re.sub(r"\b\d{4}-01-01 (?=03:00:00 IST)", "<year>-01-01 ", text)
    return re.sub(r"(?<!\()\b(in \d+ [smhd]\b|\d+ [smhd] ago\b)", "<ago>", text)


def listed(shop: Shop, *words: str) -> list[str]:
    return [each["name"] for each in json.loads(shop.run("schedules", "ls", *words, "--json").out)["schedules"]]


@pytest.fixture
def put(shop: Shop) -> Shop:
    """Three schedules of a user, that never run by themselves while a test lasts."""
    schedules = shop.app.schedules
    schedules.put("nightly", shop.task("add").s(1), cron="0 3 1 1 *", tz="Asia/Kolkata")
    schedules.put("by-hand", shop.task("add").s(2), mode="triggered")
    schedules.put("after-it", shop.task("add").s(3), mode="triggered", depends_on="by-hand")
    return shop


@pytest.fixture
def orchestrated(shop: Shop) -> Iterator[Shop]:
    """One schedule in each state there is, with a worker at work."""
    app, schedules = shop.app, shop.app.schedules
    gone = Mainspring(shop.url, version="6")
    gone.schedule("gone", cron="0 0 1 1 *", call=gone.task(name="shop.gone")(lambda: None).s())
    gone.schedules.declare()
    gone.close()
    schedules.group("etl", max_concurrent=1)
    app.schedule("nightly", cron="0 3 1 1 *", tz="Asia/Kolkata", call=shop.task("add").s(1), jitter="5s")
    with app.worker():
        until(lambda: "nightly" in listed(shop), "the worker has stored what the code declares")
        schedules.put("broken", shop.task("fail").s("no"), mode="triggered", max_failures=1, reenable_after="1d")
        schedules.put("fetch", shop.task("wait").s(), mode="triggered", group="etl", priority=10)
        schedules.put("process", shop.task("add").s(1), mode="continuous", depends_on="fetch")
        schedules.put("load", shop.task("add").s(1), mode="triggered", group="etl")
        schedules.put("holiday", shop.task("pay").s("4242", 7), every="365d", blocks="fetch", queue="money")
        schedules.disable("holiday", "until January")
        schedules.trigger("broken").join(timeout=LIMIT)
        fetch = schedules.trigger("fetch")
        next(info for info in fetch.watch(timeout=LIMIT) if info.state == "running")
        schedules.trigger("load")
        until(lambda: schedules.get("broken").off == "failures", "its failure is counted")
        until(lambda: schedules.get("process").waiting_since, "its first run waits for fetch")
        yield shop
        for name in ("load", "fetch"):
            for job in (*schedules.get(name).waiting, *schedules.get(name).running):
                app.jobs.get(job).cancel()
        fetch.join(timeout=LIMIT)


# ---- look ------------------------------------------------------------------------------------------


@pytest.mark.row("O8", "U2")
@pytest.mark.option("cli.schedules.ls.disabled", "cli.schedules.ls.group")
def test_ls_prints_all_schedules(orchestrated: Shop, golden: Golden) -> None:
    golden("schedules-ls.txt", unhurried(orchestrated.call("schedules", "ls").out))
    golden("schedules-ls.json", orchestrated.run("schedules", "ls", "--json").out)
    assert listed(orchestrated, "--disabled") == ["broken", "gone", "holiday"]
    assert listed(orchestrated, "--group", "etl") == ["fetch", "load"]
    assert listed(orchestrated, "--group", "etl", "--disabled") == []
    assert orchestrated.run("schedules", "ls", "--group", "etl", "--disabled").out == "no schedule matches\n"
    refused = orchestrated.run("schedules", "ls", "--group", "elt")
    assert (refused.code, "did you mean 'etl'?" in refused.err) == (2, True)


@pytest.mark.row("O8", "U2")
@pytest.mark.option("cli.schedules.show.name")
def test_show_prints_everything_about_one_schedule(orchestrated: Shop, golden: Golden) -> None:
    golden("schedules-show.txt", unhurried(orchestrated.call("schedules", "show", "broken").out))
    golden("schedules-show.json", orchestrated.run("schedules", "show", "broken", "--json").out)
    golden("schedules-show-code.txt", unhurried(orchestrated.run("schedules", "show", "nightly").out))
    golden("schedules-show-waits.txt", unhurried(orchestrated.run("schedules", "show", "process").out))
    holiday = orchestrated.run("schedules", "show", "holiday").out
    assert "4242" not in holiday
    assert re.search(r"blocks +fetch", holiday)


@pytest.mark.row("O8", "U2")
def test_status_includes_schedules(orchestrated: Shop) -> None:
    found = json.loads(orchestrated.run("status", "--json").out)["schedules"]
    at = found.pop("next")
    assert (at["schedule"], at["at"]) == ("nightly", json.loads(show(orchestrated, "nightly"))["next"])
    assert found == {
        "total": 7, "enabled": 4, "disabled": 1, "disabled_by_failures": 1, "orphaned": 1, "failing": 1,
        "running": 1, "waiting": 2,
    }  # fmt: skip
    assert re.search(r"^7 +4 +1 +1 +1 +1 +1 +2 +nightly in \d+ [dhms]$", orchestrated.run("status").out, re.MULTILINE)


def show(shop: Shop, name: str) -> str:
    return shop.run("schedules", "show", name, "--json").out


@pytest.mark.stores("sqlite")
def test_ls_without_schedules_says_how_to_store_them(shop: Shop) -> None:
    assert shop.run("schedules", "ls").out == (
        "No schedules are stored yet. Start a worker, or run `mainspring schedules sync`.\n"
    )
    assert json.loads(shop.run("schedules", "ls", "--json").out)["schedules"] == []


@pytest.mark.row("S8", "U2")
@pytest.mark.option("cli.schedules.next.name", "cli.schedules.next.number")
def test_next_prints_the_next_occurrences(put: Shop, golden: Golden) -> None:
    year = (datetime.now(UTC) + timedelta(hours=2, minutes=30)).year  # it begins at 21:30
    found = json.loads(put.run("schedules", "next", "nightly", "-n", "2", "--json").out)["occurrences"]
    assert [each["at"] for each in found] == [f"{year + n - 1}-12-31T21:30:00Z" for n in (1, 2)]
    assert [each["local"] for each in found] == [f"{year + n}-01-01T03:00:00+05:30" for n in (1, 2)]
    told = put.run("schedules", "next", "nightly", "-n", "1").out
    golden("schedules-next.txt", unhurried(told))
    assert "when it is triggered" in put.run("schedules", "next", "by-hand").out


@pytest.mark.row("S8", "U2")
def test_next_without_a_name_merges_all_enabled_schedules(put: Shop) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    for n, name in enumerate(("second", "first", "third")):
        put.app.schedules.put(name, put.task("add").s(n), at=moment + timedelta(minutes=(20, 10, 30)[n]))
    put.app.schedules.put("often", put.task("add").s(9), every="1h", start=moment)
    put.app.schedules.put("never", put.task("add").s(9), every="1m", start=moment)
    put.app.schedules.disable("never")
    found = json.loads(put.run("schedules", "next", "-n", "5", "--json").out)["occurrences"]
    assert [each["schedule"] for each in found] == ["often", "first", "second", "third", "often"]
    assert [each["at"] for each in found] == sorted(each["at"] for each in found)
    assert json.loads(put.run("schedules", "next", "never", "-n", "1", "--json").out)["occurrences"]


@pytest.mark.row("S8", "U2")
@pytest.mark.option("cli.schedules.history.name", "cli.schedules.history.limit", "cli.schedules.history.before")
def test_history_prints_the_result_of_each_occurrence(shop: Shop, golden: Golden) -> None:
    app, schedules = shop.app, shop.app.schedules
    schedules.put("yearly", shop.task("fail").s("no"), cron="0 3 1 1 *", max_failures=0)
    jobs = schedules.backfill("yearly", *(datetime(year, 1, 1, tzinfo=UTC) for year in (2021, 2024)))
    shop.work(*jobs)
    schedules.put("yearly", shop.task("add").s(1), cron="0 3 1 1 *", max_failures=0)
    with app.worker():
        schedules.trigger("yearly").join(timeout=LIMIT)
        until(lambda: [run.state for run in schedules.history("yearly")].count(None) == 0, "all ends are noted")
    last = schedules.trigger("yearly")
    golden("schedules-history.txt", shop.call("schedules", "history", "yearly").out)
    golden("schedules-history.json", shop.run("schedules", "history", "yearly", "--json").out)
    first = shop.run("schedules", "history", "yearly", "--limit", "2").out
    [more] = re.findall(r"For older ones: --before (\S+)", first)
    rest = json.loads(shop.run("schedules", "history", "yearly", "--before", more, "--json").out)["runs"]
    assert [each["job"] for each in rest] == [str(job.id) for job in reversed(jobs)]
    assert str(last.id) in first
    assert "runs" in shop.run("schedules", "history", "yearly", "--before", "1m", "--json").out
    bad = shop.run("schedules", "history", "yearly", "--before", "yesterday")
    assert (bad.code, "--before 2h" in bad.err) == (2, True)


# ---- do --------------------------------------------------------------------------------------------


@pytest.mark.row("S11", "O6", "U2")
@pytest.mark.option("cli.schedules.run.name", "cli.schedules.run.force")
def test_run_prints_the_id_or_the_reason(put: Shop, golden: Golden) -> None:
    ran = put.call("schedules", "run", "by-hand")
    job: Job[Any] = put.app.jobs.get(ran.out.strip())
    assert (ran.code, job.info().schedule) == (0, "by-hand")
    refused = put.run("schedules", "run", "by-hand")
    golden("schedules-run-refused.txt", refused.err)
    assert (refused.code, refused.out) == (1, "")
    told = put.run("schedules", "run", "by-hand", "--json")
    assert (told.code, json.loads(told.out)["job"], json.loads(told.out)["id"]) == (1, str(job.id), None)
    forced = json.loads(put.run("schedules", "run", "by-hand", "--force", "--json").out)
    assert (forced["schedule"], forced["task"]) == ("by-hand", "shop.add")
    put.run("schedules", "disable", "nightly", "--reason", "snow")
    assert "it is disabled: snow" in put.run("schedules", "run", "nightly").err
    assert "it waits for 'by-hand' to succeed" in put.run("schedules", "run", "after-it").err
    put.work(job, put.app.jobs.get(forced["id"]))
    after = put.app.jobs.get(put.run("schedules", "run", "after-it").out.strip())
    put.work(after)
    assert [each.result() for each in (job, after)] == [3, 4]


@pytest.mark.row("S11")
@pytest.mark.option("cli.schedules.run.wait", "cli.schedules.run.wait_timeout")
def test_run_with_wait_waits_for_the_end(put: Shop) -> None:
    late = put.run("schedules", "run", "by-hand", "--wait", "--wait-timeout", "100ms", "--json")
    assert (late.code, json.loads(late.out)["state"]) == (1, "ready")
    assert put.run("schedules", "run", "by-hand", "--wait-timeout", "1s").code == 2, "without --wait it means nothing"
    with put.app.worker():
        put.app.jobs.get(json.loads(late.out)["id"]).join(timeout=LIMIT)
        ran = put.call("schedules", "run", "by-hand", "--force", "--wait", "--wait-timeout", f"{LIMIT}s")
        assert (ran.code, ran.out) == (0, "3\n")
        unknown = put.run("schedules", "run", "by-hand", "--force", "--wait", "--url", put.url, "--json")
        found = json.loads(unknown.out)
        assert (found["state"], found["result"]) == ("succeeded", None), "no code, no word of what may be secret"


@pytest.mark.row("S8", "O8", "U2")
@pytest.mark.option("cli.schedules.disable.names", "cli.schedules.disable.reason", "cli.schedules.enable.names")
def test_disable_and_enable_accept_several_names(put: Shop, golden: Golden) -> None:
    ran = put.run("schedules", "disable", "nightly", "by-hand", "--reason", "on holiday")
    golden("schedules-disable.txt", ran.out)
    assert [put.app.schedules.get(name).enabled for name in ("nightly", "by-hand", "after-it")] == [False, False, True]
    golden("schedules-enable.txt", unhurried(put.call("schedules", "enable", "nightly", "by-hand").out))
    assert all(each.enabled for each in put.app.schedules.list())
    refused = put.run("schedules", "disable", "nightly", "by-hnad")
    assert (refused.code, "did you mean 'by-hand'?" in refused.err) == (2, True)
    assert put.app.schedules.get("nightly").enabled, "nothing is done to the others"
    assert "did you mean 'by-hand'?" in put.run("schedules", "enable", "by-hnad").err


@pytest.mark.row("S8", "U2")
@pytest.mark.option("cli.schedules.rm.names", "cli.schedules.rm.yes")
def test_rm_removes_after_confirmation(put: Shop, golden: Golden) -> None:
    put.app.schedule("code", cron="0 0 1 1 *", call=put.task("add").s(1))
    put.app.schedules.declare()
    asked = put.run("schedules", "rm", "nightly")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    needed = put.run("schedules", "rm", "by-hand", "--yes")
    assert (needed.code, "is a dependency of other schedules: after-it" in needed.err) == (1, True)
    assert len(listed(put)) == 4
    ran = put.run("schedules", "rm", "by-hand", "code", "after-it", "--yes")
    assert (ran.code, listed(put)) == (1, ["code", "nightly"]), "those that wait for others go first"
    golden("schedules-rm.txt", ran.out + ran.err)
    misspelt = put.run("schedules", "rm", "nightly", "cod", "--yes")
    assert (misspelt.code, "did you mean 'code'?" in misspelt.err, len(listed(put))) == (2, True, 2)
    assert json.loads(put.run("schedules", "rm", "nightly", "-y", "--json").out) == {
        "removed": ["nightly"],
        "refused": [],
    }


@pytest.mark.row("S8")
@pytest.mark.option("cli.schedules.backfill.name", "cli.schedules.backfill.start", "cli.schedules.backfill.end")
def test_backfill_runs_past_occurrences_without_a_job(put: Shop) -> None:
    """Times are in UTC unless they name a zone."""
    made = json.loads(put.run("schedules", "backfill", "nightly", "2020-12-31T21:30", "2022-12-31T21:30", "--json").out)
    assert [each["at"] for each in made["jobs"]] == ["2020-12-31T21:30:00Z", "2021-12-31T21:30:00Z"]
    assert {put.app.jobs.get(each["id"]).info().schedule for each in made["jobs"]} == {"nightly"}
    ran = put.run("schedules", "backfill", "nightly", "2021-01-01T03:00+05:30", "2023-01-01T03:01+05:30")
    assert ran.out.startswith("created 1 job\n")
    assert "2022-12-31T21:30:00Z" in ran.out
    assert "nothing to do" in put.run("schedules", "backfill", "nightly", "2020-12-31T21:30", "2023-01-01").out
    assert "nothing to do" in put.run("schedules", "backfill", "nightly", "2s", "1s").out
    for words, says in (
        (["nightly", "1h", "2h"], "is not later than"),
        (["nightly", "then", "2h"], "start='then': is neither a time"),
        (["by-hand", "3h", "2h"], "has the mode 'triggered'"),
        (["nightyl", "3h", "2h"], "did you mean 'nightly'?"),
    ):
        refused = put.run("schedules", "backfill", *words)
        assert (refused.code, says in refused.err) == (2, True), refused.err


CODE = """
from mainspring import Mainspring

app = Mainspring(version={version!r})
{schedules}
"""


@pytest.mark.row("S8")
@pytest.mark.option("cli.schedules.sync.target", "cli.schedules.sync.app", "cli.schedules.sync.as_json")
def test_sync_stores_the_schedules_of_the_code(shop: Shop, golden: Golden) -> None:
    """Also of older code, after a rollback. Schedules that the code lacks are orphaned and can be removed."""

    def code(name: str, version: str, **rules: str) -> str:
        lines = [f"@app.schedule({each!r}, cron={rule!r})\ndef {each}(): ..." for each, rule in rules.items()]
        (shop.folder / name).write_text(CODE.format(version=version, schedules="\n".join(lines)))
        return name

    new = code("new.py", "2", report="0 3 * * *", tidy="0 4 * * *")
    old = code("old.py", "1", report="0 5 * * *")
    golden("schedules-sync.txt", shop.call("schedules", "sync", new).out)
    assert json.loads(shop.call("schedules", "sync", "-A", new, "--json").out) == {
        "added": [], "changed": [], "orphaned": [], "left": [], "over": [], "unchanged": ["report", "tidy"],
    }  # fmt: skip
    golden("schedules-sync-back.txt", shop.call("schedules", "sync", old).out)
    assert "at 05:00" in shop.app.schedules.get("report").rule
    assert shop.run("schedules", "rm", "tidy", "--yes").out == "removed schedule tidy\n"
    assert shop.call("schedules", "sync", "nowhere.py").code == 2


def test_a_time_that_passed_before_the_schedule_was_stored_is_shown(shop: Shop) -> None:
    shop.app.schedule("launch", at=datetime(2020, 1, 1, tzinfo=UTC), call=shop.task("add").s(1))
    ran = shop.run("schedules", "sync")
    assert ran.code == 0
    assert re.search(r"launch +over", ran.out)
    assert "no occurrence is left, and it never ran" in shop.run("schedules", "ls").out
    history = json.loads(shop.run("schedules", "history", "launch", "--json").out)
    assert "its time had passed when the schedule was stored" in json.dumps(history)
