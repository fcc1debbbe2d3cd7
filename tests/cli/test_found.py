"""Found by others: what commands do in odd surroundings, and what they show."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mainspring import Secret
from tests.cli.conftest import LIMIT, Shop
from tests.cli.watching import Running, on_terminal

pytestmark = pytest.mark.stores("sqlite")

LEAKY = """
import logging
from mainspring import Mainspring, Secret

app = Mainspring()

@app.task(name="leaky", sensitive=["card"])
def leaky(card: str, key: Secret[str], pin: Secret[str]) -> None:
    logging.getLogger("lib").warning("uses %s\\x1b[2J", key.reveal())
    raise ValueError(f"bad {card} {key.reveal()} {pin.reveal()}")

@app.task(name="defaults", sensitive=["card"], meta={"token": "tok-in-meta"})
def defaults(password: str = "hunter2x", card: str = "card-default", url: str = "redis://u:pw-in-url@h") -> None: ...
"""


def shell(shop: Shop, command: str) -> subprocess.CompletedProcess[str]:
    """A line of bash, in which ``M`` is the command."""
    told = f'set -o pipefail\nM() {{ {sys.executable} -m mainspring "$@"; }}\n{command}'
    return subprocess.run(
        ["bash", "-c", told], cwd=shop.folder, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@pytest.fixture
def leaky(shop: Shop) -> Shop:
    (shop.folder / "app.py").write_text(LEAKY)
    return shop


@pytest.mark.row("G2")
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_run_local_shows_no_secret(leaky: Shop, flags: list[str]) -> None:
    """Not in the traceback, the error or the log lines. Log lines cannot send escape sequences to the terminal
    either.
    """
    job = leaky.app.tasks.find("leaky").enqueue("4111-2222-1111", Secret("sk-zzzzzz-123"), Secret("9876"))
    ran = leaky.call("jobs", "run", str(job.id), "--local", *flags)
    assert (ran.code, "ValueError: bad *** *** ***" in ran.err) == (1, True)
    assert "uses ***" in ran.err
    assert not re.search("4111|zzzzzz|9876|\x1b", ran.out + ran.err)


@pytest.mark.row("G2")
def test_explain_shows_no_secret_default(leaky: Shop) -> None:
    for flags in ([], ["--json"]):
        out = leaky.run("explain", "defaults", *flags).out
        assert "defaults(password: str = ***, card: str = ***, url: str = 'redis://u:***@h')" in out
        assert "tok-in-meta" not in out


def test_an_output_error_is_one_line_with_exit_code_2(shop: Shop) -> None:
    ran = shell(shop, "M status > /dev/full")
    assert (ran.returncode, ran.stderr) == (
        2,
        "mainspring: cannot write to standard output: No space left on device\n",
    )


def test_a_closed_pipe_ends_with_141_and_no_message(shop: Shop) -> None:
    ran = shell(shop, "M jobs ls --watch 0.1 | head -1")
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("M status >&-", 0, ""),
        ("M jobs rm --state dead <&-", 2, "cannot ask for confirmation"),
        ("M status <&- >&- 2>&-", 0, ""),
    ],
)
def test_closed_standard_streams_cause_no_traceback(shop: Shop, command: str, code: int, says: str) -> None:
    ran = shell(shop, command)
    assert (ran.returncode, says in ran.stderr, "Traceback" in ran.stderr) == (code, True, False)


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "0"])
def test_watch_needs_a_number_of_seconds(shop: Shop, seconds: str) -> None:
    ran = shop.run("jobs", "ls", "--watch", seconds)
    assert (ran.code, "Invalid value for '--watch'" in ran.err) == (2, True)


@pytest.mark.parametrize("columns", [20, 80, 100, 125, 160])
def test_an_id_is_never_cut_on_a_narrow_terminal(shop: Shop, columns: int) -> None:
    job = shop.task("fail").enqueue("a reason of several words")
    for words in (["jobs", "ls"], ["jobs", "show", str(job.id)]):
        _, shown = on_terminal(shop, *words, COLUMNS=str(columns), NO_COLOR="1")
        assert str(job.id) in shown
        assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", shown)
        assert "shop.fail" in shown


def test_what_the_app_prints_is_not_mixed_into_the_output(shop: Shop) -> None:
    file = shop.folder / "app.py"
    file.write_text(file.read_text().replace("app = ", "print('noise on import')\napp = ", 1))
    noisy = "\n@app.task(name='noisy')\ndef noisy() -> int:\n    print('noise of a job')\n    return 3\n"
    file.write_text(file.read_text() + noisy)
    ran = shop.call("jobs", "ls", "--json")
    assert (json.loads(ran.out)["jobs"], "noise on import" in ran.err) == ([], True)
    made = json.loads(shop.call("enqueue", "noisy", "--json").out)
    ran = shop.call("jobs", "run", made["id"], "--local", "--json")
    assert (json.loads(ran.out)["result"], "noise of a job" in ran.err) == (3, True)
    done = shell(shop, "COMP_WORDS='mainspring enqueue nois' COMP_CWORD=2 _MAINSPRING_COMPLETE=bash_complete M")
    assert (done.stdout, done.stderr) == ("plain,noisy\n", "")


def test_a_wrong_argument_is_named(shop: Shop) -> None:
    file = shop.folder / "app.py"
    file.write_text(file.read_text() + "\n@app.task(name='pair')\ndef pair(a: str, b: int, c: int = 0) -> None: ...\n")
    for words, name in (
        (["add", "1", "b=x"], "'b'"),
        (["pair", "42", "x"], "'b'"),
        (["pair", "42", "1", "c=x"], "'c'"),
    ):
        ran = shop.run("enqueue", *words)
        assert (ran.code, f"argument {name}" in ran.err) == (2, True), ran.err
    assert shop.run("enqueue", "pair", "42", "1").code == 0


def test_a_command_that_reads_does_not_create_a_store(shop: Shop) -> None:
    typo = shop.folder / "typo.db"
    for words in (["jobs", "ls"], ["status"], ["queues", "pause", "q"]):
        ran = shop.run(*words, "--url", f"sqlite:///{typo}")
        assert (ran.code, f"there is no store at {typo}" in ran.err) == (2, True)
    assert not [*shop.folder.glob("typo*")]
    assert shop.run("migrate", "--url", f"sqlite:///{typo}").code == 0
    assert shop.run("jobs", "ls", "--url", f"sqlite:///{typo}").out == "no jobs\n"


@pytest.mark.parametrize(
    ("target", "says"), [("..", "is a folder"), ("no-module", "is neither a Python module nor a Python file")]
)
def test_a_bad_app_name_is_refused_with_the_reason(shop: Shop, target: str, says: str) -> None:
    ran = shop.run("status", "-A", target)
    assert (ran.code, says in ran.err) == (2, True)


HANGS = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path("hangs.pid").write_text(str(os.getpid()))
Path("hangs.now").touch()
time.sleep(3600)
"""


def hang(shop: Shop) -> psutil.Process:
    """Change the app so that its import never ends; the process that tries it."""
    (shop.folder / "app.py").write_text(HANGS)
    while not (shop.folder / "hangs.now").exists():
        pass
    return psutil.Process(int((shop.folder / "hangs.pid").read_text()))


@pytest.mark.parametrize("at_start", [False, True])
def test_ctrl_c_ends_dev_while_an_import_hangs(shop: Shop, at_start: bool) -> None:
    if at_start:
        (shop.folder / "app.py").write_text(HANGS)
    with Running(shop, "dev", "app.py") as dev:
        if not at_start:
            dev.says("serving")
        look = hang(shop)
        assert dev.end() == 0
    assert gone(look)


def test_an_import_that_hangs_ends_with_dev_also_after_kill_9(shop: Shop) -> None:
    with Running(shop, "dev", "app.py") as dev:
        dev.says("serving")
        look = hang(shop)
        dev.end(signal.SIGKILL)
    assert gone(look)


def gone(process: psutil.Process) -> bool:
    process.wait(LIMIT)
    return True


def test_the_folder_of_a_project_is_not_a_temporary_folder(tmp_path: Path) -> None:
    """The store of a project below the temporary directory is guarded too."""
    from mainspring.errors import OutsideTest
    from mainspring.testing.chosen import check_url

    project = tmp_path / "project"
    check_url(f"sqlite:///{tmp_path}/x.db", allowed=(), basetemp=None, root=project)
    check_url(f"sqlite:///{project}/tmp/x.db", allowed=(), basetemp=str(project / "tmp"), root=project)
    with pytest.raises(OutsideTest):
        check_url(f"sqlite:///{project}/x.db", allowed=(), basetemp=None, root=project)
