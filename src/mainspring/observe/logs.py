"""Set up the logging of the standard library: the destination of lines, and the fields of the job in each line."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from mainspring.common.redact import looks_secret, remember
from mainspring.errors import InvalidOption
from mainspring.worker.config import LogSettings

_SHORTEST = 8  # length of a value in the environment: shorter values are words
_installed: list[tuple[logging.Logger, logging.Handler]] = []
_embedded: list[object] = []
_embedded_lock = threading.Lock()
_levels = [
    logging.NOTSET,
    logging.NOTSET,
]  # the root logger and ours, before the first embedded worker

log = logging.getLogger("mainspring")


def configure(settings: LogSettings = LogSettings(), *, worker: bool = False) -> None:  # noqa: B008 - the default is frozen
    """Show log lines as the settings say, unless the program has set up logging itself.

    A worker shows the lines of the whole program, other processes only the lines of Mainspring. A ``file`` is always
    written. The function may be called again; the last settings apply.
    """
    _undo()
    log.setLevel(settings.level.upper())
    _remember_environment()
    if worker:
        carry_fields()
    root = logging.getLogger()
    taken = bool(root.handlers or log.handlers)
    if worker and not taken and root.level == logging.WARNING:  # the default level: the program has not set it
        root.setLevel(log.level)
    if settings.file is not None or not taken:
        _install(root if worker else log, settings)
    else:
        _warn_unused(settings)


def configure_for_embedded(settings: LogSettings) -> Callable[[], None]:
    """Set up logging for an embedded worker; handlers of the program are not changed.

    Call the returned function when the worker has ended; the last call restores the logging of before. If several
    workers run at once, the settings of the first apply.
    """
    worker, root = object(), logging.getLogger()
    with _embedded_lock:
        if _embedded or settings.file is not None or not (root.handlers or log.handlers):
            if not _embedded:
                _levels[:] = root.level, log.level
                _configure_or_undo(settings)
            _embedded.append(worker)
        else:
            carry_fields()
            _warn_unused(settings)
    return lambda: _leave(worker)


def _configure_or_undo(settings: LogSettings) -> None:
    try:
        configure(settings, worker=True)
    except BaseException:
        _restore()
        raise


def _leave(worker: object) -> None:
    with _embedded_lock:
        if worker in _embedded:
            _embedded.remove(worker)
            if not _embedded:
                _restore()


def _restore() -> None:
    _undo()
    for logger, level in zip((logging.getLogger(), log), _levels, strict=True):
        logger.setLevel(level)


def _warn_unused(settings: LogSettings) -> None:
    if settings.format != "auto":
        log.warning("log_format=%s has no effect: the program has set up logging itself", settings.format)


def carry_fields() -> None:
    """Give every log record made in a job the fields of the job.

    Every handler sees ``job_id``, ``task``, ``queue``, ``attempt``, ``worker`` and ``trace_id``; outside of a job
    they are empty. A record factory cannot do this: ``extra=`` may not repeat a field that the factory sets, so a
    line with ``extra={"task": ...}`` would raise. Here the fields of the caller have priority. Secrets are removed
    from the message and the traceback of such a record, for every handler.
    """
    from mainspring.observe.log_format import conceal
    from mainspring.worker.run.context import log_fields

    if getattr(logging.Logger.makeRecord, "carries_fields", False):
        return
    plain = logging.Logger.makeRecord
    nothing = dict.fromkeys(("job_id", "task", "queue", "attempt", "worker", "trace_id"), "")

    def make_record(self: logging.Logger, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = plain(self, *args, **kwargs)
        own = vars(record)
        fields = log_fields()
        for name, value in (fields or nothing).items():
            own.setdefault(name, value)
        if fields is not None:
            conceal(record)
        return record

    make_record.carries_fields = True  # type: ignore[attr-defined]  # marks the logger for the next call
    logging.Logger.makeRecord = make_record  # type: ignore[method-assign]  # see the docstring


def _install(logger: logging.Logger, settings: LogSettings) -> None:
    handler = _handler(settings.file)
    handler.setFormatter(_formatter(settings, getattr(handler, "stream", None)))
    handler.setLevel(log.level)
    logger.addHandler(handler)
    _installed.append((logger, handler))


def _undo() -> None:
    while _installed:
        logger, handler = _installed.pop()
        logger.removeHandler(handler)
        handler.close()


def _handler(file: str | None) -> logging.Handler:
    if file in (None, "stderr"):
        return logging.StreamHandler()
    if file == "stdout":
        return logging.StreamHandler(sys.stdout)
    from logging.handlers import WatchedFileHandler

    try:
        return WatchedFileHandler(str(file), encoding="utf-8")
    except OSError as error:
        hint = "Give a file in an existing, writable directory; or stdout, stderr."
        raise InvalidOption("log_file", file, f"cannot be opened: {error.strerror or error}", hint=hint) from None


def _formatter(settings: LogSettings, stream: Any) -> logging.Formatter:
    """The formatter of a stream. ``auto`` is JSON in Kubernetes, except on a terminal, and text elsewhere."""
    from mainspring.observe.log_format import JournalFormatter, JsonFormatter, TerminalFormatter, TextFormatter

    terminal = bool(getattr(stream, "isatty", bool)())
    in_cluster = settings.format == "auto" and "KUBERNETES_SERVICE_HOST" in os.environ and not terminal
    if settings.format == "json" or in_cluster:
        return JsonFormatter(settings.redact)
    if terminal:
        return TerminalFormatter(settings.redact, stream, colour=not os.environ.get("NO_COLOR"))
    return (JournalFormatter if _is_journal(stream) else TextFormatter)(settings.redact)


def _is_journal(stream: Any) -> bool:
    """Whether systemd reads this stream: it names the device and the inode of its socket in ``JOURNAL_STREAM``."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):  # a stream in memory, or closed
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _remember_environment() -> None:
    """Hide the values of variables that look secret, wherever they would be logged."""
    for name, value in os.environ.items():
        if looks_secret(name) and name != "PWD":  # the working directory, not a password
            remember(value, shortest=_SHORTEST)
