"""A folder with an app in it, and commands run there: in this process, or as real ones."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.cli import cli
from mainspring.errors import mask_url
from mainspring.jobs.job import Job

HERE = Path(__file__).parent
LIMIT = 60
WRITE = "MAINSPRING_TEST_GOLDEN"
"""Set it to write the golden files anew; then read what changed."""

UUID = re.compile(r"\b[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}\b")
REPLACED = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\((in )?\d+ [smhd]( ago)?\)"), "(<ago>)"),
    (re.compile(r"(<|\b)\d+(\.\d+)?(ms|s|us)(?=\s|$)"), "<span>"),
    (re.compile(r'"(wait|run|age)": \d[\d.e-]*'), r'"\1": <seconds>'),
    (re.compile(r'"pid": \d+'), '"pid": <pid>'),
    (re.compile(r"(?ms)^( *)Traceback \(most recent call last\):\n.*?(?=^\1\w)"), r"\1<traceback>\n"),
    (re.compile(r'"traceback": "Traceback.*"'), '"traceback": "<traceback>"'),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<worker>"),
    (re.compile(r"\.py:\d+"), ".py:<n>"),
    (re.compile(r"\b(sqlite|postgres|redis):[\w-]+"), "<durability>"),
    (re.compile(r"(?<=process_slots)( +|\": {\s+\"value\": )\d+"), r"\1<n>"),
    (re.compile(r"(?<=thread_slots)( +|\": {\s+\"value\": )\d+"), r"\1<n>"),
    (re.compile(r"-> \d+$"), "-> <version>"),
    (re.compile(r"(?<=version )\d+(?=:)"), "<version>"),
    (re.compile(r'"(before|after)": \d+'), r'"\1": <version>'),
    (re.compile(r"(?<=\S)  +"), "  "),
)


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Shop:
    """A folder with the app of ``shop.py`` as its ``app.py``, and a store of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def run(self, *arguments: str, typed: str | None = None) -> Ran:
        """The command, in this process."""
        ran = CliRunner().invoke(cli, list(arguments), prog_name="mainspring", input=typed)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return Ran(ran.exit_code, ran.stdout, ran.stderr)

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """The command as a real process, left running."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "mainspring", *arguments],
            cwd=self.folder, text=True, **{"stdout": pipe, "stderr": pipe, "stdin": subprocess.DEVNULL, **more},
        )  # fmt: skip

    def call(self, *arguments: str, typed: str | None = None) -> Ran:
        """The command as a real process, to its end."""
        process = self.start(*arguments, stdin=subprocess.DEVNULL if typed is None else subprocess.PIPE)
        out, err = process.communicate(typed, timeout=LIMIT)
        return Ran(process.returncode, out, err)

    @property
    def app(self) -> Any:
        """The app, as commands in this process load it."""
        module: Any = importlib.import_module("app")
        return module.app

    def task(self, name: str) -> Any:
        return self.app.tasks.find(f"shop.{name}")

    def work(self, *jobs: Job[Any]) -> None:
        """Let a worker bring these jobs to their end."""
        with self.app.worker():
            for job in jobs:
                job.join(timeout=LIMIT)

    def forget(self) -> None:
        """What was imported from the folder goes with the test."""
        for name, module in [*sys.modules.items()]:
            if (getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                if isinstance(app := getattr(module, "app", None), Mainspring):
                    app.close()
                del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture
def shop(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    for name in os.environ:
        if name.startswith("MAINSPRING_") and name != WRITE:
            monkeypatch.delenv(name)
    folder = tmp_path / "shop"
    folder.mkdir()
    shutil.copy(HERE / "shop.py", folder / "app.py")
    monkeypatch.setenv("MAINSPRING_URL", store_url)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    shop = Shop(folder, store_url)
    yield shop
    shop.forget()


class Masks:
    """Puts placeholders where every run differs."""

    def __init__(self, places: dict[str, str]) -> None:
        self._ids: dict[str, str] = {}
        self._places = places

    def __call__(self, text: str) -> str:
        for place, instead in self._places.items():
            text = text.replace(place, instead)
        text = UUID.sub(self._id, text)
        for pattern, instead in REPLACED:
            text = pattern.sub(instead, text)
        return text

    def _id(self, match: re.Match[str]) -> str:
        plain = match[0].replace("-", "")
        number = self._ids.setdefault(plain, str(len(self._ids) + 1))
        return f"<id {number}>" if "-" in match[0] else f"<hex {number}>"


@pytest.fixture
def golden(tmp_path: Path, store_url: str) -> Callable[[str, str], None]:
    """``golden("jobs-ls", output)``: the output is what the file of that name says."""
    urls = {store_url: "<url>", mask_url(store_url): "<url>"}
    masks = Masks({**urls, str(tmp_path / "shop"): "<folder>", str(tmp_path): "<tmp>"})

    def check(name: str, text: str) -> None:
        file = HERE / "golden" / name
        masked = masks(text)
        if os.environ.get(WRITE):
            file.write_text(masked)
        assert masked == file.read_text(), f"{file.name}: read what changed, then write it anew with {WRITE}=1"

    return check
