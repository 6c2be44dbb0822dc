"""Parsing Python from worker threads."""

from __future__ import annotations

import ast
import gc
import threading

from securebench.python_text import parse_python


class _Yields:
    """An object that lets another thread run when it is garbage-collected.

    This may happen while a syntax tree is built.
    """

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        threading.Event().wait(0.0001)


def test_many_threads_parse_at_once() -> None:
    """Several threads can call ``parse_python`` at the same time. Garbage collection does not make a call fail."""
    source = "\n".join(f"def f{number}(a):\n    return [a, (a, {{a: {number}}})]" for number in range(200))
    expected = ast.dump(ast.parse(source))
    wrong: list[BaseException | None] = []

    def parse() -> None:
        for _ in range(3):
            _Yields()
            try:
                if ast.dump(parse_python(source)) != expected:
                    wrong.append(None)
            except Exception as error:  # noqa: BLE001 - without the lock, it is SystemError
                wrong.append(error)

    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        threads = [threading.Thread(target=parse) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
    assert not wrong
