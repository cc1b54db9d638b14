"""Types of the documents: ``plimsoll.plan/1`` and ``plimsoll.diagnosis/1``. Sizes are bytes.

DECISION: an answer is the document itself, typed as dictionaries. A script that reads
``plimsoll plan --json`` then reads this too, and no second description of the fields can differ from it.
"""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict, Union


class _ReasonText(TypedDict):
    code: str
    text: str


class Reason(_ReasonText, total=False):
    """A statement, its values, and the statements that it follows from."""

    facts: Dict[str, Union[int, str]]
    because: List["Reason"]


class _HintText(TypedDict):
    text: str


class Hint(_HintText, total=False):
    """Advice, with the flags that carry it out."""

    flags: str
    saves: int
    #: With it, everything fits.
    enough: bool
    costs: str


class Engine(TypedDict):
    kind: str
    build: Optional[int]


class CardTerms(TypedDict):
    """Memory on a card; None where a term is not known."""

    weights: Optional[int]
    kv: Optional[int]
    compute: Optional[int]
    #: Run-time pool with a full context.
    pool: Optional[int]
    #: The driver's own memory.
    context: Optional[int]


class CardPlan(TypedDict):
    id: str
    total: int
    free: int
    terms: CardTerms
    #: After loading, before the first request.
    loaded: int
    #: With a full context.
    peak: int
    #: ``free - peak``; negative where the model does not fit.
    headroom: int
    fits: bool


class HostTerms(TypedDict):
    weights: Optional[int]
    kv: Optional[int]
    compute: Optional[int]
    output: Optional[int]


class HostPlan(TypedDict):
    terms: HostTerms
    peak: int


class Growth(TypedDict):
    #: Bytes of cache that one more token of context takes, over all cards.
    bytes_per_token: int
    #: Bytes of run-time pool that one more token in use takes.
    pool: int


class SpeedRange(TypedDict):
    """Tokens per second."""

    depth: int
    low: float
    likely: float
    high: float
    source: str


class Speed(TypedDict):
    decode: Optional[SpeedRange]
    decode_at_depth: Optional[SpeedRange]
    prefill: Optional[SpeedRange]
    prefill_at_depth: Optional[SpeedRange]
    #: Why something is left out.
    unknown: Optional[str]


class Plan(TypedDict):
    schema: str
    model: str
    engine: Engine
    #: Tokens that the engine will reserve.
    context: int
    default_context: Optional[int]
    cards: List[CardPlan]
    host: HostPlan
    growth: Growth
    #: None where not even the smallest context fits.
    largest_context: Optional[int]
    trained_context: Optional[int]
    fits: bool
    speed: Speed
    #: Doubts about the verdict.
    warnings: List[Reason]
    reasons: List[Reason]
    hints: List[Hint]


class _QuoteText(TypedDict):
    source: str
    line: int
    text: str


class Quote(_QuoteText, total=False):
    """A line that proves something."""

    file: str


class Candidate(TypedDict):
    cause: str
    sub_cause: Optional[str]
    confidence: float


class Diagnosis(TypedDict):
    schema: str
    #: ``other`` with a confidence of 0 where nothing is known.
    cause: str
    sub_cause: Optional[str]
    #: From 0 to 1.
    confidence: float
    evidence: List[Quote]
    also: List[Candidate]
    hints: List[Hint]
    reason: Reason
