"""mainspring jobs: find and look."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli import worlds
from tests.cli.conftest import LIMIT, Shop

Golden = Callable[[str, str], None]


def three(shop: Shop) -> list[Any]:
    """A dead job, a ready one, and one that is scheduled and has a secret argument."""
    failed = shop.task("fail").enqueue("no")
    shop.work(failed)
    ready = shop.task("add").enqueue(1)
    return [failed, ready, shop.task("pay").options(delay="1h").enqueue("4111-2222", 5)]


@pytest.mark.row("U2", "Q11")
def test_ls_lists_the_newest_first(shop: Shop, golden: Golden) -> None:
    three(shop)
    plain, document = shop.call("jobs", "ls"), shop.run("jobs", "ls", "--json")
    assert (plain.code, document.code) == (0, 0), plain.err
    golden("jobs-ls.txt", plain.out)
    golden("jobs-ls.json", document.out)
    assert "4111-2222" not in plain.out + document.out, "a sensitive argument is shown to nobody"


def test_a_wrong_filter_is_named_as_its_flag(shop: Shop) -> None:
    """An unknown queue is explained by a command, too."""
    assert "state='failed'" in shop.run("jobs", "ls", "--state", "failed").err
    assert "mainspring queues ls, shows every queue" in shop.run("jobs", "cancel", "--queue", "mial", "--yes").err


def test_ls_without_jobs_says_so(shop: Shop) -> None:
    assert shop.run("jobs", "ls").out == "no jobs\n"


@pytest.mark.row("U2", "Q11")
@pytest.mark.option("cli.jobs.ls.state", "cli.jobs.ls.queue", "cli.jobs.ls.task", "cli.jobs.ls.tag")
@pytest.mark.option("cli.jobs.ls.reason", "cli.jobs.ls.error", "cli.jobs.ls.since", "cli.jobs.ls.until")
@pytest.mark.option("cli.jobs.ls.parent")
def test_ls_obeys_each_filter(shop: Shop) -> None:
    pair = worlds.ended(shop)
    for name in pair.filters:
        found = json.loads(shop.run("jobs", "ls", "--json", *pair.found(name)).out)
        assert [job["id"] for job in found["jobs"]] == [str(pair.expected(name).id)], name


def test_ls_takes_several_values_and_durations(shop: Shop) -> None:
    pair = worlds.ended(shop)
    both = shop.run("jobs", "ls", "--json", "--state", "dead", "--state", "cancelled", "--since", "1h")
    assert {job["id"] for job in json.loads(both.out)["jobs"]} == {str(pair.one.id), str(pair.other.id)}
    assert json.loads(shop.run("jobs", "ls", "--json", "--until", "1h").out)["jobs"] == []


@pytest.mark.option("cli.jobs.ls.limit", "cli.jobs.ls.cursor")
def test_ls_continues_at_the_cursor(shop: Shop) -> None:
    jobs = [shop.task("add").enqueue(n) for n in range(3)]
    first = shop.run("jobs", "ls", "--limit", "2")
    cursor = re.search(r"More jobs: --cursor (\S+)", first.out)
    assert cursor is not None, first.out
    assert str(jobs[0].id) not in first.out
    second = shop.run("jobs", "ls", "--limit", "2", "--cursor", cursor[1])
    assert str(jobs[0].id) in second.out
    assert str(jobs[1].id) not in second.out
    assert "More jobs" not in second.out


@pytest.mark.row("U2", "R6")
@pytest.mark.option("cli.jobs.show.id")
def test_show_has_timeline_arguments_and_every_error(shop: Shop, golden: Golden) -> None:
    failed, _, secret = three(shop)
    golden("jobs-show.txt", shop.run("jobs", "show", str(failed.id)).out)
    golden("jobs-show.json", shop.run("jobs", "show", str(failed.id), "--json").out)
    golden("jobs-show-scheduled.txt", shop.run("jobs", "show", str(secret.id)).out)


def test_an_unknown_job_is_reported_in_one_line(shop: Shop) -> None:
    ran = shop.run("jobs", "show", "01890a5d-ac96-774b-bcce-b302099a8057")
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("mainspring: ")
    assert "01890a5d-ac96-774b-bcce-b302099a8057" in ran.err


@pytest.mark.row("U2", "W9")
@pytest.mark.option("cli.jobs.logs.id", "cli.jobs.logs.as_json")
def test_logs_prints_the_lines_of_the_handler(shop: Shop, golden: Golden) -> None:
    job = shop.task("talk").enqueue(2)
    shop.work(job)
    golden("jobs-logs.txt", shop.run("jobs", "logs", str(job.id)).out)
    golden("jobs-logs.json", shop.run("jobs", "logs", str(job.id), "--json").out)


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.logs.follow")
def test_logs_follow_until_the_job_has_ended(shop: Shop) -> None:
    job = shop.task("talk").enqueue(3)
    following = shop.start("jobs", "logs", "-f", str(job.id))
    with pytest.raises(subprocess.TimeoutExpired):
        following.wait(1)
    shop.work(job)
    out, err = following.communicate(timeout=LIMIT)
    assert (following.returncode, out.count("line "), err) == (0, 3, "")


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.watch.id", "cli.jobs.watch.as_json")
def test_watch_prints_each_change_up_to_the_end(shop: Shop) -> None:
    job = shop.task("add").enqueue(1)
    watching = shop.start("jobs", "watch", str(job.id))
    first = watching.stdout.readline() if watching.stdout else ""
    shop.work(job)
    out, _ = watching.communicate(timeout=LIMIT)
    assert " ready attempt 0" in first
    assert " succeeded attempt 1" in out.splitlines()[-1]
    assert watching.returncode == 0
    lines = shop.run("jobs", "watch", str(job.id), "--json").out.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["succeeded"]


def test_watch_ends_with_1_for_a_job_that_did_not_succeed(shop: Shop) -> None:
    job = shop.task("add").enqueue(1)
    job.cancel("no need")
    ran = shop.run("jobs", "watch", str(job.id))
    assert (ran.code, "cancelled attempt 0 by_user" in ran.out) == (1, True)


@pytest.mark.option("cli.jobs.why.id")
def test_why_explains_the_named_job(shop: Shop) -> None:
    first, second = shop.task("add").enqueue(1), shop.task("add").options(delay="1h").enqueue(1)
    assert "the job is due at" not in shop.run("jobs", "why", str(first.id)).out
    assert f"{second.id} is scheduled\n- the job is due at" in shop.run("jobs", "why", str(second.id)).out


@pytest.mark.stores("sqlite")
def test_stored_text_cannot_control_the_terminal(shop: Shop) -> None:
    """Escape sequences in arguments, errors and log lines are printed as text."""
    evil = "\x1b]0;owned\x07 \x9b31m \u202e\r\n next"
    job = shop.task("fail").options(tags=["t"]).enqueue(evil)
    shop.work(job)
    outs = [shop.run("jobs", "ls").out, shop.run("jobs", "show", str(job.id)).out]
    document = shop.run("jobs", "show", str(job.id), "--json").out
    for out in (*outs, document):
        assert not set(out) & set("\x1b\x07\x9b\u202e\r")
    assert json.loads(document)["args"] == {"why": evil}


@pytest.mark.stores("sqlite")
def test_show_prints_the_result_without_secrets(shop: Shop) -> None:
    job, secret = shop.task("add").enqueue(1), shop.task("token").enqueue()
    shop.work(job, secret)
    shown = [json.loads(shop.run("jobs", "show", str(each.id), "--json").out)["result"] for each in (job, secret)]
    assert shown == [2, {"token": "***"}]
    assert "result  2" in shop.run("jobs", "show", str(job.id)).out
