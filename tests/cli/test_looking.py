"""mainspring status, workers, migrate, config, explain, check, completion."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Callable

import pytest

from mainspring import Mainspring
from tests.cli import worlds
from tests.cli.conftest import LIMIT, Shop

Golden = Callable[[str, str], None]


def hostless(text: str) -> str:
    """The worker's line without what belongs to this machine."""
    text = text.replace(socket.gethostname(), "<host>")
    return re.sub(rf"\b{os.getpid()}\b", "<pid>", text)


@pytest.mark.row("U2", "W17")
def test_workers_ls_lists_the_live_workers(shop: Shop, golden: Golden) -> None:
    assert shop.run("workers", "ls").out == "no workers\n"
    with shop.app.worker(queues="slow", lease="15s"):
        job = shop.task("wait").options(queue="slow").enqueue()
        next(info for info in job.watch(timeout=LIMIT) if info.state == "running")
        golden("workers-ls.txt", hostless(shop.call("workers", "ls").out))
        golden("workers-ls.json", hostless(shop.run("workers", "ls", "--json").out))
        job.cancel()
        job.join(timeout=LIMIT)
    assert shop.run("workers", "ls").out == "no workers\n"


@pytest.mark.row("U2")
def test_status_is_one_screen(shop: Shop, golden: Golden) -> None:
    worlds.dead(shop)
    shop.task("add").enqueue(1)
    golden("status.txt", shop.call("status").out)
    golden("status.json", shop.run("status", "--json").out)


def test_a_password_in_the_url_is_hidden(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_URL", "postgresql://me:hunter2@127.0.0.1:1/db")
    for words in (["config"], ["config", "--json"], ["status"], ["jobs", "ls"]):
        ran = shop.run(*words)
        assert "hunter2" not in ran.out + ran.err, words


@pytest.mark.row("E6", "U2")
@pytest.mark.stores("sqlite", "redis")  # PostgreSQL wants its owner for it
def test_migrate_prints_what_it_did(shop: Shop, golden: Golden) -> None:
    golden("migrate.txt", shop.call("migrate").out)
    golden("migrate-again.txt", shop.call("migrate").out)
    golden("migrate.json", shop.run("migrate", "--json").out)


@pytest.mark.row("C1", "C4")
@pytest.mark.option("cli.config.as_json")
@pytest.mark.stores("sqlite")
def test_config_shows_where_each_setting_comes_from(
    shop: Shop, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.folder / "mainspring.toml").write_text('keep = "3d"\n')
    monkeypatch.setenv("MAINSPRING_KEEP_COUNT", "7")
    monkeypatch.setenv("MAINSPRING_URL", "sqlite:////var/jobs.db")
    golden("config.txt", shop.call("config").out)
    golden("config.json", shop.run("config", "--json").out)


@pytest.mark.row("C4")
@pytest.mark.option("cli.config.schema")
def test_config_schema_needs_no_app(shop: Shop) -> None:
    (shop.folder / "app.py").unlink()
    plain, document = shop.call("config", "--schema"), shop.run("config", "--schema", "--json")
    assert json.loads(plain.out) == json.loads(document.out)
    assert "keep_dead" in json.loads(plain.out)["properties"]


@pytest.mark.row("C4")
@pytest.mark.option("cli.explain.task", "cli.explain.as_json")
@pytest.mark.stores("sqlite")
def test_explain_names_the_origin_of_each_option(shop: Shop, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_ROUTES", "shop.fa*=failures")
    golden("explain.txt", shop.call("explain", "shop.fail").out)
    golden("explain.json", shop.run("explain", "fail", "--json").out)
    ran = shop.run("explain", "shop.fial")
    assert (ran.code, "did you mean 'shop.fail'?" in ran.err) == (2, True)


@pytest.mark.row("B20")
@pytest.mark.option("cli.check.as_json")
def test_check_finds_jobs_that_this_code_cannot_run(shop: Shop, golden: Golden) -> None:
    """Exit code 1 if there is one. Ended jobs are not checked."""
    shop.task("add").enqueue(1)
    assert shop.run("check").code == 0
    golden("check-fine.txt", shop.run("check").out)
    old = Mainspring(shop.url)
    old.call("shop.add", a="one").enqueue()
    old.call("shop.removed", 1).options(delay="1h").enqueue()
    old.call("shop.gone").enqueue().cancel()
    old.close()
    ran = shop.call("check")
    assert ran.code == 1
    golden("check.txt", ran.out)
    golden("check.json", shop.run("check", "--json").out)


@pytest.mark.stores("sqlite")
def test_check_and_explain_name_annotations_that_cannot_be_resolved(shop: Shop) -> None:
    """One sentence with the task, the parameter and the name. The other tasks are fine."""
    with (shop.folder / "app.py").open("a") as file:
        file.write('\n\n@app.task(name="bad")\ndef bad(n: int, rows: "list[Nowhere]") -> None: ...\n')
        file.write('\n\n@app.task(name="bad-result")\ndef bad_result() -> "Nowhere": ...\n')
        file.write('\n\n@app.task(name="ignored", result="ignore")\ndef ignored() -> "Nowhere": ...\n')
    why = "task 'bad': argument 'rows' has an annotation that cannot be resolved: name 'Nowhere' is not defined"
    ran = shop.call("check")
    assert (ran.code, ran.out.splitlines()[0]) == (1, why)
    assert "task 'bad-result': its return type has an annotation that cannot be resolved" in ran.out
    found = json.loads(shop.call("check", "--json").out)["bad_tasks"]
    assert [each["task"] for each in found] == ["bad", "bad-result"]
    assert found[0]["why"] == why
    assert json.loads(shop.call("explain", "bad", "--json").out)["problem"] == why
    assert json.loads(shop.call("explain", "ignored", "--json").out)["problem"] is None


@pytest.mark.row("B20")
@pytest.mark.option("cli.check.limit")
def test_check_obeys_its_limit(shop: Shop) -> None:
    for n in range(3):
        shop.task("add").enqueue(n)
    assert json.loads(shop.run("check", "--limit", "2", "--json").out) == {
        "looked": 2, "refused": [], "bad_tasks": [], "bad_schedules": [],
    }  # fmt: skip


@pytest.mark.option("cli.completion.shell")
def test_completion_scripts_are_valid_for_their_shells(shop: Shop, golden: Golden) -> None:
    golden("completion.bash", shop.call("completion", "bash").out)
    golden("completion.zsh", shop.run("completion", "zsh").out)
    golden("completion.fish", shop.run("completion", "fish").out)
    subprocess.run(["bash", "-n"], input=shop.run("completion", "bash").out, text=True, check=True)


@pytest.mark.stores("sqlite")
def test_commands_tasks_and_schedules_are_completed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(words: str) -> list[str]:
        monkeypatch.setenv("_MAINSPRING_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return [line.partition(",")[2] for line in shop.call().out.splitlines() if line]

    assert "enqueue" in completed("mainspring en")
    assert "shop.add" in completed("mainspring enqueue shop.a")
    with (shop.folder / "app.py").open("a") as file:
        file.write("app.schedule('nightly', every='1h')(late)\n")
    assert completed("mainspring schedules show ni") == ["nightly"]
    assert completed("mainspring schedules disable other ni") == ["nightly"]
    assert completed("mainspring -A nowhere:app enqueue shop.a") == []
