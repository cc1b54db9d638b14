"""Calls the functions of libplimsoll_abi.so, with JSON in and JSON out."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any, Callable


class PlanError(ValueError):
    """A question that has no answer. The text is the one that the program prints."""

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text if hint is None else f"{text}\nhint: {hint}")
        #: What can be done about it, if anything.
        self.hint = hint


def _load() -> ctypes.CDLL:
    # `CDLL` gives the interpreter's lock back during a call; `PyDLL` would not.
    library = ctypes.CDLL(str(Path(__file__).with_name("libplimsoll_abi.so")))
    for name in ("plimsoll_plan", "plimsoll_doctor"):
        function = getattr(library, name)
        function.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        # With `c_char_p`, ctypes would copy the answer and lose the pointer that has to be freed.
        function.restype = ctypes.c_void_p
    library.plimsoll_free.argtypes = (ctypes.c_void_p,)
    library.plimsoll_free.restype = None
    return library


_LIBRARY = _load()


def _ask(function: Callable[[bytes, int], int], question: dict[str, Any]) -> Any:
    sent = json.dumps(question).encode()
    pointer = function(sent, len(sent))
    try:
        answer = json.loads(ctypes.string_at(pointer))
    finally:
        _LIBRARY.plimsoll_free(pointer)
    error = answer.get("error")
    if error is not None:
        raise PlanError(error["text"], error["remedy"])
    return answer


def plan(question: dict[str, Any]) -> Any:
    return _ask(_LIBRARY.plimsoll_plan, question)


def doctor(question: dict[str, Any]) -> Any:
    return _ask(_LIBRARY.plimsoll_doctor, question)
