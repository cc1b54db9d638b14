"""Plans the GPU memory of models, and diagnoses failed allocations, without a GPU.

>>> import plimsoll
>>> plan = plimsoll.plan("model.gguf", "-c 32768", cards=["3090"])
>>> plan["fits"], plan["largest_context"]
"""

from __future__ import annotations

import os
import shlex
from typing import Any, Sequence, cast

from . import _library
from ._library import PlanError
from ._types import (
    Candidate,
    CardPlan,
    CardTerms,
    Diagnosis,
    Engine,
    Growth,
    Hint,
    HostPlan,
    HostTerms,
    Plan,
    Quote,
    Reason,
    Speed,
    SpeedRange,
)

__all__ = [
    "Candidate",
    "CardPlan",
    "CardTerms",
    "Diagnosis",
    "Engine",
    "Growth",
    "Hint",
    "HostPlan",
    "HostTerms",
    "Plan",
    "PlanError",
    "Quote",
    "Reason",
    "Speed",
    "SpeedRange",
    "doctor",
    "plan",
]


def plan(
    model: str | os.PathLike[str],
    flags: str | Sequence[str] = (),
    *,
    cards: Sequence[str],
    host: str | None = None,
    engine: str | None = None,
    program: str | None = None,
    depth: int | None = None,
) -> Plan:
    """Plan a GGUF file for cards, as ``plimsoll plan --formulas --json`` does.

    ``flags`` are those of llama-server, as words or as one text that is split as a shell splits it. Each of
    ``cards`` is a product such as ``"3090"`` or ``"2x3060"``, or a description such as
    ``"name=X,total=24GiB,free=23GiB,cc=8.6"``. ``host``, ``engine``, ``program`` and ``depth`` are the
    options ``--host``, ``--build``, ``--program`` and ``--depth``. All figures are bytes.

    Only the file's header is read. Raises :class:`PlanError` for a question without an answer.
    """
    words = shlex.split(flags) if isinstance(flags, str) else list(flags)
    if isinstance(cards, str):
        raise TypeError("cards is a list of cards, such as [\"3090\"]")
    question: dict[str, Any] = {
        "flags": ["-m", os.fspath(model), *words],
        "cards": list(cards),
        "host": host,
        "engine": engine,
        "program": program,
        "depth": depth,
    }
    return cast(Plan, _library.plan(question))


def doctor(log: str | bytes, *, context: Sequence[str] = ()) -> Diagnosis:
    """Diagnose a log, as ``plimsoll doctor --json`` does.

    ``context`` is further information about the failure: the command line, the card, memory sizes.
    """
    raw = log if isinstance(log, bytes) else log.encode(errors="replace")
    if isinstance(context, str):
        raise TypeError("context is a list of texts")
    question: dict[str, Any] = {"log": raw.decode(errors="replace"), "context": list(context)}
    return cast(Diagnosis, _library.doctor(question))
