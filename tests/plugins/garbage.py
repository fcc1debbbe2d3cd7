"""Pytest plugin: ten thousand tests are made once and stay, so nobody looks for garbage among them.

Neither while they are collected, which takes a third longer otherwise, nor each time a test leaves some.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
