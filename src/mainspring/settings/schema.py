"""The JSON Schema of the settings file, for editors."""

from __future__ import annotations

from typing import Any

from mainspring.settings.table import TABLE, Setting

_DURATION = {"anyOf": [{"type": "string", "examples": ["90s", "1h30m"]}, {"type": "number", "minimum": 0}]}
_SIZE = {"anyOf": [{"type": "string", "examples": ["256kB", "1MiB"]}, {"type": "integer", "minimum": 1}]}
_NAMES = {"type": "array", "items": {"type": "string"}}


def schema() -> dict[str, Any]:
    """The schema of ``mainspring.toml`` and of ``[tool.mainspring]``."""
    app = {"type": "string", "description": "The app that commands use: module:object.", "examples": ["shop.jobs:app"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Mainspring settings",
        "type": "object",
        "additionalProperties": False,
        "properties": {"app": app, **{name: _described(setting) for name, setting in TABLE.items()}},
    }


def _described(setting: Setting) -> dict[str, Any]:
    doc = setting.doc if not setting.shown_default else f"{setting.doc} Default: {setting.shown_default}."
    described = {**_shape(setting), "description": doc}
    if not setting.shown_default and setting.default is not None:
        described["default"] = setting.show(setting.default)
    return described


def _shape(setting: Setting) -> dict[str, Any]:
    match setting.kind:
        case "duration":
            return _DURATION
        case "size":
            return _SIZE
        case "whole":
            return {"type": "integer", "minimum": setting.low}
        case "flag":
            return {"type": "boolean"}
        case "choice":
            return {"enum": list(setting.choices)}
        case "names":
            return {"anyOf": [_NAMES, {"type": "string"}]} if "| str" in setting.type else _NAMES
        case "table":
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case "numbers":
            number = {"type": "integer", "minimum": setting.low}
            return {"anyOf": [number, {"type": "object", "additionalProperties": number}]}
        case _:
            return {"type": "string"}
