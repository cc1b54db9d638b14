"""A typed program on the package, which mypy checks with --strict."""

import plimsoll
from plimsoll import CardPlan, Plan


def shortest(plan: Plan) -> CardPlan:
    """The card with the least room."""
    return min(plan["cards"], key=lambda card: card["headroom"])


def advice(model: str) -> str:
    try:
        plan = plimsoll.plan(model, "-c 32768", cards=["2x3090"], host="64GiB")
    except plimsoll.PlanError as error:
        return error.hint or str(error)
    if plan["fits"]:
        return f"{shortest(plan)['headroom'] >> 20} MiB to spare"
    return "; ".join(hint.get("flags", hint["text"]) for hint in plan["hints"])


def cause(log: bytes) -> str:
    diagnosis = plimsoll.doctor(log, context=["one RTX 3090"])
    lines = [quote["line"] for quote in diagnosis["evidence"]]
    return f"{diagnosis['cause']} ({diagnosis['confidence']:.0%}), lines {lines}"
