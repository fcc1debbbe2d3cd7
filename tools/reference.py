"""Write the reference pages and typed dictionaries that come from tables. `--check` only lists stale files."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from mainspring import errors, states
from mainspring.common.duration import format_duration
from mainspring.common.foreign_names import LATER
from mainspring.options.table import Option, Scope, options_for
from mainspring.settings.table import TABLE
from mainspring.tasks import events
from tools import cli_reference

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
TYPED = ROOT / "src" / "mainspring" / "options" / "typed.py"
MARK = "# ---- written by `python -m tools.reference` from the table -------------------------------------------\n"
HEAD = "<!-- Written by `python -m tools.reference` from the code. Do not edit. -->\n\n"

SCOPES: tuple[tuple[Scope, str, str], ...] = (
    ("task", "Task options", "`@app.task(...)`"),
    ("bulk", "Bulk task options", "`@app.bulk_task(...)`, beside the task options"),
    ("job", "Job options", "`task.options(...)` and `call.options(...)`; they go before the task's"),
    ("worker", "Worker options", "`app.run(...)`, `app.worker(...)`, flags of `mainspring worker`, `Mainspring(...)`"),
    ("queue", "Queue options", "`app.queue(...)`"),
    ("pool", "Pool options", "`app.pool(...)`"),
    ("breaker", "Breaker options", "`app.breaker(...)`, and `breaker=` of a task"),
    (
        "schedule",
        "Schedule options",
        "`@app.schedule(...)` and `app.schedules.put(...)`, beside `cron`, `every`, `at`, `after`",
    ),
)


DICTIONARIES: dict[Scope, tuple[str, str]] = {
    "job": ("JobOptions", "Options of one job: ``task.options(...)``."),
    "task": ("TaskOptions", "Options of a task: ``@app.task(...)``."),
    "worker": ("WorkerOptions", "Options of a worker: ``app.run(...)``, ``app.worker(...)`` and the command line."),
    "queue": ("QueueOptions", "Options of a queue: ``app.queue(...)``."),
    "pool": ("PoolOptions", "Options of a pool of child processes: ``app.pool(...)``."),
    "breaker": ("BreakerOptions", "Options of a breaker: ``app.breaker(...)``, or ``breaker=`` of a task."),
    "schedule": (
        "ScheduleOptions",
        "Options of a schedule: ``@app.schedule(...)``, ``app.schedules.put(...)``; they replace the task's options.",
    ),
}


def typed_dictionaries() -> str:
    """The typed dictionaries of the options, as they are written into ``options/typed.py``."""
    found = []
    for scope, (name, doc) in DICTIONARIES.items():
        fields = [f"    {option.name}: {option.type}\n".replace("'", '"') for option in options_for(scope)]
        found.append(f'\n\nclass {name}(TypedDict, total=False):\n    """{doc}"""\n\n{"".join(fields)}')
    return "".join(found)


def typed_module() -> str:
    """``options/typed.py`` with its dictionaries written again."""
    head, _, _ = TYPED.read_text().partition(MARK)
    return head + MARK + typed_dictionaries()


def default_of(option: Option, scope: Scope) -> str:
    if scope == "schedule" and "task" in option.scopes:
        return "the task's"
    if option.shown_default:
        return option.shown_default
    if option.type.startswith("Duration") and isinstance(option.default, int):
        return format_duration(option.default / 1_000_000)
    return f"`{option.default!r}`"


def options_page() -> str:
    lines = [
        "# Options\n",
        "Start with [the five options you need](../guides/five-options.md).\n",
        "A duration is text such as `90s` or `1h30m`, a number of seconds, or a `timedelta`.\n",
    ]
    for scope, title, where in SCOPES:
        lines += [f"## {title}\n", f"{where}.\n", "| option | type | default | meaning |", "|---|---|---|---|"]
        for option in options_for(scope):
            kind = option.type.replace("|", "\\|")
            lines.append(f"| `{option.name}` | `{kind}` | {default_of(option, scope)} | {option.doc} |")
        later = sorted(LATER["option"]) if scope == "task" else []
        reserved = f"Reserved and refused until built: {', '.join(f'`{name}`' for name in later)}.\n" if later else ""
        lines.append(f"\n{reserved}")
    return "\n".join(lines)


def settings_page() -> str:
    lines = [
        "# Settings\n",
        (
            "The first place that has a setting wins: a keyword of `Mainspring(...)`, the environment, the file "
            "(`mainspring.toml`, or `[tool.mainspring]` in `pyproject.toml`), the default. In the environment lists "
            "are `a,b` and mappings `a=1,b=2`, and an empty variable is as none; in the file mappings are tables. "
            "A relative path in the file counts from the file. The file may also name the `app` that commands use. "
            "See [the guide](../guides/settings.md).\n"
        ),
        "| setting | type | variable | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for setting in TABLE.values():
        kind = setting.type.replace("|", "\\|")
        default = setting.shown_default or f"`{setting.show(setting.default)}`"
        lines.append(f"| `{setting.name}` | `{kind}` | `{setting.variable}` | {default} | {setting.doc} |")
    return "\n".join(lines) + "\n"


def states_page() -> str:
    picture = (states.__doc__ or "").split("\n\n")[-1]
    lines = ["# States of a job\n", "```text", picture.rstrip(), "```\n", "| action | from | to |", "|---|---|---|"]
    for step in states.TRANSITIONS:
        sources = ", ".join(sorted(step.sources)) or "(new)"
        lines.append(f"| {step.action} | {sources} | {', '.join(sorted(step.targets)) or '(gone)'} |")
    lines.append("\nAny ack or rescue of a running job that has a cancel order ends it as cancelled.\n")
    lines += ["| final state | reasons |", "|---|---|"]
    lines += [f"| {state} | {', '.join(sorted(reasons))} |" for state, reasons in states.REASONS.items()]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    lines = ["# Errors\n", "All errors are in `mainspring.errors`.\n"]
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if not base.__name__.startswith("_"))
            doc = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")
            lines += [f"## {name}\n", f"{doc} Is a {bases}.\n"]
    return "\n".join(lines)


EVENT_CONTENTS = """
The fields of an `Event`. Reading them never calls the store.

| field | value |
|---|---|
| `job`, `task`, `queue`, `attempt`, `state`, `reason`, `worker`, `at` | always |
| `args` | always: the arguments by name, `***` for secrets; decoded when read |
| `result` | for `succeeded`, decoded when read; None with `result="ignore"` or if it was too large |
| `warning` | for `succeeded`, if the result was too large |
| `error` | for `failed`, `retrying`, `dead`, and for `cancelled` if the body raised |
| `duration` | when the body has ended in this worker: how long it ran |
| `wait` | when the body has started in this worker: from the enqueue, with its delay, to the start |

Where the store decided, the worker that calls the hook did not run the body: `stalled`, `dead` after a rescue, and
`cancelled` of an expired job have `args`, and None as `result`, `duration` and `wait`. If another process cancels a job
while its body runs, the event has `args`, `duration` and `wait`, and None as `result`, whatever the body returned.
After the death of a process that ran one job alone, `stalled` and the event behind it come from the worker of the
job, with `error`, `duration` and `wait`.
"""


def events_page() -> str:
    fields = ", ".join(f"`{name}`" for name in events.Event.__struct_fields__)
    lines = [
        "# Events\n",
        f"A hook of `@app.on(...)` gets an `Event` with {fields}. See [the guide](../guides/failures.md).\n",
        "| event | when |",
        "|---|---|",
    ]
    rows: list[tuple[str, str]] = [
        *events.MEANINGS.items(), *events.BREAKER_MEANINGS.items(), *events.SCHEDULE_MEANINGS.items(),
    ]  # fmt: skip
    breaker_fields = ", ".join(f"`{name}`" for name in events.BreakerEvent.__struct_fields__)
    end = f"\nA hook of a breaker event gets a `BreakerEvent` with {breaker_fields}. "
    end += "See [the guide](../guides/breakers.md).\n"
    of_schedules = ", ".join(f"`{name}`" for name in events.ScheduleEvent.__struct_fields__)
    end += f"\nA hook of a schedule event gets a `ScheduleEvent` with {of_schedules}.\n"
    return "\n".join([*lines, *(f"| `{name}` | {text} |" for name, text in rows)]) + "\n" + EVENT_CONTENTS + end


def pages() -> dict[str, str]:
    """File name to text."""
    return {
        "options.md": HEAD + options_page(),
        "settings.md": HEAD + settings_page(),
        "states.md": HEAD + states_page(),
        "events.md": HEAD + events_page(),
        "errors.md": HEAD + errors_page(),
        "cli.md": HEAD + cli_reference.page(),
    }


def main(argv: list[str]) -> int:
    files = {PAGES / name: text for name, text in pages().items()} | {TYPED: typed_module()}
    stale = {path: text for path, text in files.items() if not _same(path, text)}
    if "--check" not in argv:
        for path, text in stale.items():
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
        return 0
    for path in stale:
        print(f"{path.relative_to(ROOT)} differs from the code: run python -m tools.reference", file=sys.stderr)
    return 1 if stale else 0


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
