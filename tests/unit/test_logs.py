"""Log lines: one per record, with the job's fields, without secrets, whatever is logged."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring.common.redact import remember
from mainspring.errors import InvalidOption
from mainspring.observe import logs
from mainspring.observe.log_format import FIELDS, JsonFormatter, TerminalFormatter, TextFormatter, escape
from mainspring.worker.config import LogSettings

JOB: dict[str, Any] = {
    "job_id": "0198",
    "task": "shop.send",
    "queue": "email",
    "attempt": 2,
    "worker": "w1",
    "trace_id": "ab",
}

NOWHERE: dict[str, Any] = dict.fromkeys(FIELDS, "")


def record(message: str, *args: Any, error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("shop", logging.INFO, __file__, 1, message, args, info)
    vars(made).update(extra)
    return made


def as_json(made: logging.LogRecord, hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    line = JsonFormatter(hidden).format(made)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - the test wants it with its traceback
        return caught


class TestJson:
    def test_a_line_is_one_object_with_the_jobs_fields(self) -> None:
        line = as_json(record("sent %d", 3, **JOB, rows=7))
        assert line.pop("time").endswith("Z")
        assert line.pop("pid") > 0
        assert line == {"level": "info", "logger": "shop", "message": "sent 3", **JOB, "rows": 7}

    def test_outside_of_a_job_the_fields_are_left_out(self) -> None:
        assert not set(FIELDS) & set(as_json(record("x", **NOWHERE)))

    def test_an_error_is_a_field_of_its_own(self) -> None:
        error = as_json(record("failed", error=raised(ValueError("bad\nthing"))))["error"]
        assert (error["type"], error["message"]) == ("ValueError", "bad\nthing")
        assert "in raised" in error["traceback"]

    def test_an_extra_cannot_replace_what_the_line_says_itself(self) -> None:
        assert as_json(record("x", level="forged", time="forged"))["level"] == "info"

    @pytest.mark.parametrize(
        "value",
        [object(), {1: {2: 3}}, [{"a"}], float("nan"), 10**30, "\ud800", b"x", Path("/x"), {"a": [None, True]}, int],
        ids=lambda value: type(value).__name__,
    )
    def test_any_value_can_be_logged(self, value: Any) -> None:
        assert "value" in as_json(record("x %s", value, value=value))

    def test_a_value_that_contains_itself_can_be_logged(self) -> None:
        loop: list[Any] = []
        loop.append(loop)
        assert "loop" in as_json(record("x", loop=loop))

    def test_arguments_that_do_not_fit_the_message_are_reported(self) -> None:
        assert "do not fit" in as_json(record("%d things", "no"))["message"]

    def test_no_control_character_gets_through(self) -> None:
        line = JsonFormatter().format(record("a\n\x1b[2J\x9b31m\u2028\u202e\x7fb"))
        assert not [char for char in line if not char.isprintable()]
        assert json.loads(line)["message"] == "a\n\x1b[2J\x9b31m\u2028\u202e\x7fb"


class TestText:
    def test_a_line_has_time_message_and_job(self) -> None:
        line = TextFormatter().format(record("sent", **JOB, rows=7))
        assert line.endswith(" shop: [shop.send 0198#2] sent rows=7")
        assert " INFO " in line

    def test_no_line_can_be_forged_and_no_escape_sequence_is_written(self) -> None:
        made = record("a\n12:00:00 ERROR forged\r\x1b[2J\x9b31m\u202e", note="x\ny")
        line = TerminalFormatter((), sys.stderr, colour=True).format(made)
        head, *more = line.split("\n")
        assert head.endswith(" a note=x\\ny")
        assert more == ["    12:00:00 ERROR forged\\r\\x1b[2J\\x9b31m\\u202e"]

    def test_a_job_of_another_worker_is_named_by_its_id_alone(self) -> None:
        line = TextFormatter().format(record("is dead", job_id="0198"))
        assert line.endswith(" shop: [0198] is dead")

    def test_a_traceback_is_indented_and_escaped(self) -> None:
        line = TextFormatter().format(record("failed", error=raised(ValueError("bad\n12:00 forged \x1b[2J"))))
        head, *rest = line.split("\n")
        assert head.endswith("failed")
        assert rest
        assert all(each.startswith("    ") for each in rest)
        assert "\x1b" not in line

    def test_colour_is_used_on_terminals_only(self) -> None:
        made = logging.LogRecord("shop", logging.ERROR, __file__, 1, "x", (), None)
        assert "\x1b[31mERROR" in TerminalFormatter((), sys.stderr, colour=True).format(made)
        assert "\x1b" not in TextFormatter().format(made)

    def test_escape_leaves_plain_text_unchanged(self) -> None:
        assert escape("plain é 漢 text\t") == "plain é 漢 text\\t"


@pytest.mark.row("G2")
class TestSecrets:
    CANARY = "canary-log-4711"

    @pytest.mark.parametrize("made", [JsonFormatter(["iban"]), TextFormatter(["iban"])], ids=["json", "text"])
    @pytest.mark.parametrize(
        "write",
        [
            lambda c: record("password=%s", c),
            lambda c: record("redis://u:%s@h/0", c),
            lambda c: record("x", password=c),
            lambda c: record("x", iban=c),
            lambda c: record("x", login={"api_key": c, "iban": c}),
            lambda c: record("x", error=raised(ValueError(f"token: {c}"))),
            lambda c: record("x", note=f"Authorization: Bearer {c}"),
        ],
    )
    def test_no_line_shows_a_secret(self, made: logging.Formatter, write: Callable[[str], logging.LogRecord]) -> None:
        line = made.format(write(self.CANARY))
        assert self.CANARY not in line
        assert "***" in line

    @pytest.mark.parametrize("made", [JsonFormatter(), TextFormatter()], ids=["json", "text"])
    def test_a_known_secret_value_is_hidden_anywhere_in_a_line(self, made: logging.Formatter) -> None:
        remember("known-canary-81")
        error = raised(RuntimeError("about known-canary-81"))
        line = made.format(record("the known-canary-81", note=["known-canary-81"], error=error))
        assert "known-canary-81" not in line


@contextmanager
def fresh() -> Iterator[logging.Logger]:
    """Logging as a new process has it, without what the test runner adds; put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("mainspring")
    before = root.handlers[:], root.level, ours.handlers[:], ours.level
    root.handlers, ours.handlers = [], []
    root.setLevel(logging.WARNING)
    try:
        yield root
    finally:
        logs.configure(LogSettings())
        root.handlers, ours.handlers = before[0], before[2]
        root.setLevel(before[1])
        ours.setLevel(before[3])


class TestConfigure:
    def test_a_program_with_its_own_handlers_is_left_alone(self) -> None:
        with fresh() as root:
            own = logging.NullHandler()
            root.addHandler(own)
            logs.configure(LogSettings(), worker=True)
            assert root.handlers == [own]
            assert root.level == logging.WARNING

    def test_a_format_without_effect_is_reported(self, capsys: pytest.CaptureFixture[str]) -> None:
        with fresh() as root:
            root.addHandler(logging.StreamHandler(sys.stderr))
            logs.configure(LogSettings(format="json"), worker=True)
            assert "log_format=json has no effect" in capsys.readouterr().err

    def test_a_log_file_is_written_also_with_handlers_of_the_program(self, tmp_path: Path) -> None:
        with fresh() as root:
            root.addHandler(logging.NullHandler())
            logs.configure(LogSettings(file=str(tmp_path / "x.log"), format="text"), worker=True)
            logging.getLogger("lib").warning("hello")
            assert (tmp_path / "x.log").read_text().endswith("lib: hello\n")

    def test_in_a_worker_the_level_applies_to_the_whole_program(self, capsys: pytest.CaptureFixture[str]) -> None:
        with fresh():
            logs.configure(LogSettings(level="info", file="stdout", format="json"), worker=True)
            logging.getLogger("lib").info("yes")
            logging.getLogger("lib").debug("no")
            [line] = capsys.readouterr().out.splitlines()
            assert json.loads(line)["message"] == "yes"
            logs.configure(LogSettings(level="error", file="stdout"), worker=True)
            logging.getLogger("lib").warning("not now")
            assert capsys.readouterr().out == ""

    def test_outside_a_worker_only_our_own_loggers_are_configured(self, capsys: pytest.CaptureFixture[str]) -> None:
        with fresh():
            logs.configure(LogSettings(level="debug", file="stdout", format="json"))
            logging.getLogger("lib").error("no")
            logging.getLogger("mainspring.x").debug("yes")
            assert [json.loads(line)["message"] for line in capsys.readouterr().out.splitlines()] == ["yes"]

    def test_the_last_settings_apply_and_no_line_is_written_twice(self, capsys: pytest.CaptureFixture[str]) -> None:
        with fresh():
            for _ in range(2):
                logs.configure(LogSettings(file="stdout"))
            logging.getLogger("mainspring").info("once")
            assert capsys.readouterr().out.count("once") == 1

    def test_a_file_that_cannot_be_opened_stops_the_start(self, tmp_path: Path) -> None:
        reason = r"log_file=.*cannot be opened: No such file or directory"
        with fresh(), pytest.raises(InvalidOption, match=reason):
            logs.configure(LogSettings(file=str(tmp_path / "nowhere" / "x.log")))

    def test_secret_variables_are_hidden(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with fresh():
            monkeypatch.setenv("SHOP_API_KEY", "canary-env-1234")
            monkeypatch.setenv("PWD", "/home/ann/shop")
            logs.configure(LogSettings(file="stdout", format="json"))
            logging.getLogger("mainspring").info("got canary-env-1234 in %s", os.environ["PWD"])
            assert json.loads(capsys.readouterr().out)["message"] == "got *** in /home/ann/shop"


class TestFields:
    def test_every_record_has_the_fields_and_an_extra_overrides_them(self, caplog: pytest.LogCaptureFixture) -> None:
        """An ``extra`` of the same name is no error: the value of the caller is used."""
        logs.carry_fields()
        logs.carry_fields()
        with caplog.at_level(logging.INFO):
            logging.getLogger("lib").info("x", extra={"task": "mine"})
        made = caplog.records[-1]
        assert [getattr(made, name) for name in FIELDS] == ["", "mine", "", "", "", ""]
