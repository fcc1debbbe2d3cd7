"""An example for each command: the last lines of its ``--help``."""

from __future__ import annotations

from collections.abc import Mapping

import click

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "": ("mainspring dev tasks.py", "mainspring status"),
    "dev": ("mainspring dev tasks.py", "mainspring dev tasks.py --engine postgres"),
    "worker": (
        "mainspring worker tasks.py",
        "mainspring worker shop.app -Q email,default -p 2",
        "mainspring worker --burst",
    ),
    "enqueue": ("mainspring enqueue shop.send a@b.c subject=hi --delay 5m",),
    "jobs": ("mainspring jobs ls --state dead --since 1h",),
    "jobs ls": ("mainspring jobs ls --state running --queue email", "mainspring jobs ls --flow ID --state dead"),
    "jobs show": ("mainspring jobs show ID",),
    "jobs why": ("mainspring jobs why ID",),
    "jobs logs": ("mainspring jobs logs ID -f",),
    "jobs watch": ("mainspring jobs watch ID",),
    "jobs cancel": ("mainspring jobs cancel ID", "mainspring jobs cancel --queue email --yes"),
    "jobs retry": ("mainspring jobs retry ID",),
    "jobs run-now": ("mainspring jobs run-now ID",),
    "jobs rm": ("mainspring jobs rm ID",),
    "jobs run": ("mainspring jobs run ID --local --pdb",),
    "queues": ("mainspring queues ls", "mainspring queues pause email"),
    "queues ls": ("mainspring queues ls --watch",),
    "queues pause": ("mainspring queues pause email",),
    "queues resume": ("mainspring queues resume email",),
    "queues drain": ("mainspring queues drain email",),
    "queues purge": ("mainspring queues purge email",),
    "queues disable": ("mainspring queues disable email",),
    "queues enable": ("mainspring queues enable email",),
    "queues configure": ("mainspring queues configure email --max-depth 10000",),
    "queues reset": ("mainspring queues reset email",),
    "schedules": ("mainspring schedules ls", "mainspring schedules run nightly"),
    "schedules ls": ("mainspring schedules ls --watch",),
    "schedules show": ("mainspring schedules show nightly",),
    "schedules next": ("mainspring schedules next -n 10",),
    "schedules history": ("mainspring schedules history nightly --limit 20",),
    "schedules run": ("mainspring schedules run nightly --wait",),
    "schedules enable": ("mainspring schedules enable nightly",),
    "schedules disable": ('mainspring schedules disable nightly --reason "the source is down"',),
    "schedules rm": ("mainspring schedules rm nightly",),
    "schedules backfill": ("mainspring schedules backfill nightly 2026-01-01T00:00Z 2026-01-08T00:00Z",),
    "schedules sync": ("mainspring schedules sync",),
    "flows": ("mainspring flows ls", "mainspring flows show ID"),
    "flows ls": ("mainspring flows ls --state failed --since 1d",),
    "flows show": ("mainspring flows show ID --watch",),
    "flows graph": ("mainspring flows graph ID --format dot",),
    "flows cancel": ("mainspring flows cancel ID",),
    "flows retry": ("mainspring flows retry ID",),
    "flows close": ("mainspring flows close ID",),
    "limits": ("mainspring limits ls",),
    "limits ls": ("mainspring limits ls",),
    "limits set": ("mainspring limits set shop.send:at-once 2",),
    "limits reset": ("mainspring limits reset shop.send:at-once",),
    "limits rm": ("mainspring limits rm shop.send:at-once",),
    "breakers": ("mainspring breakers ls",),
    "breakers ls": ("mainspring breakers ls",),
    "breakers trip": ("mainspring breakers trip api --for 10m",),
    "breakers reset": ("mainspring breakers reset api",),
    "locks": ("mainspring locks ls",),
    "locks ls": ("mainspring locks ls --watch",),
    "dead": ("mainspring dead stats", "mainspring dead retry --all"),
    "dead ls": ("mainspring dead ls --error ValueError",),
    "dead show": ("mainspring dead show ID",),
    "dead stats": ("mainspring dead stats",),
    "dead retry": ("mainspring dead retry --all --rate 50",),
    "dead rm": ("mainspring dead rm ID",),
    "workers": ("mainspring workers ls",),
    "workers ls": ("mainspring workers ls --watch",),
    "status": ("mainspring status", "mainspring status --url sqlite:///jobs.db"),
    "config": ("mainspring config",),
    "explain": ("mainspring explain shop.send",),
    "check": ("mainspring check",),
    "migrate": ("mainspring migrate", "mainspring migrate --plan"),
    "backup": ("mainspring backup jobs-monday.db",),
    "restore": ("mainspring restore jobs-monday.db",),
    "demo": ("mainspring demo",),
    "completion": ("mainspring completion bash >> ~/.bashrc",),
}


def add_examples(command: click.Command, path: str = "", *, below: bool = True) -> None:
    """Add its examples to the help of this command, and of all commands below it unless ``below`` is False."""
    if found := EXAMPLES.get(path):
        lines = "\n".join(f"  {line}" for line in found)
        command.epilog = f"\b\n{'Example' if len(found) == 1 else 'Examples'}:\n{lines}"
    if below and isinstance(command, click.Group):
        for name, each in command.commands.items():
            add_examples(each, f"{path} {name}".strip())
