"""What real clients do to `plimsoll serve`, with OpenAI's own library.

Usage: clients.py BASE_URL ACT. Prints one JSON object; `openai.rs` asserts on it. Nothing is retried here:
a request that fails is a finding.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

from openai import OpenAI

CHATS = ["alpha", "beta"]
EMBEDDER = "gamma"


def client(base: str) -> OpenAI:
    return OpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0, timeout=120)


def chat(api: OpenAI, model: str, text: str, tokens: int = 12) -> dict:
    answer = api.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], max_tokens=tokens, temperature=0
    )
    return {
        "id": answer.id,
        "model": answer.model,
        "text": answer.choices[0].message.content,
        "finish": answer.choices[0].finish_reason,
    }


def stream(api: OpenAI, model: str, text: str, tokens: int = 12) -> dict:
    pieces, ids, finish = [], set(), None
    for chunk in api.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], max_tokens=tokens, temperature=0, stream=True
    ):
        ids.add(chunk.id)
        if chunk.choices:
            pieces.append(chunk.choices[0].delta.content or "")
            finish = chunk.choices[0].finish_reason or finish
    return {"id": sorted(ids)[0], "ids": len(ids), "text": "".join(pieces), "finish": finish}


def embed(api: OpenAI, model: str, texts: list[str]) -> dict:
    answer = api.embeddings.create(model=model, input=texts)
    return {"count": len(answer.data), "size": len(answer.data[0].embedding), "model": answer.model}


def running(base: str) -> list[str]:
    with urlopen(f"{base}/running", timeout=10) as answer:
        return sorted(entry["model"] for entry in json.load(answer)["running"])


def surface(base: str) -> dict:
    """Each kind of request once."""
    api = client(base)
    return {
        "models": sorted(model.id for model in api.models.list().data),
        "chat": chat(api, "alpha", "the ship"),
        "stream": stream(api, "alpha", "the ship"),
        "embeddings": embed(api, EMBEDDER, ["the ship", "the load", "the storm"]),
    }


def order(base: str) -> dict:
    """Budget for two of three: which one leaves when the third comes."""
    api = client(base)
    seen = []
    for model in ["alpha", "beta", EMBEDDER, "beta", "alpha", EMBEDDER, "alpha", "beta"]:
        if model == EMBEDDER:
            embed(api, model, ["a"])
        else:
            chat(api, model, "the ship", tokens=4)
        seen.append([model, running(base)])
    return {"seen": seen}


def crowd(base: str, clients: int = 16, requests: int = 200) -> dict:
    """Mixed requests from many clients at once; every one must be answered, with an answer of its own."""

    def one(number: int) -> dict:
        api = client(base)
        kind, model = number % 4, CHATS[number // 4 % 2]
        if kind == 0:
            return {"id": f"embedding-{number}", "ok": embed(api, EMBEDDER, [str(number)])["count"] == 1}
        if kind == 1:
            answer = stream(api, model, f"the ship {number}", tokens=8)
            return {"id": answer["id"], "ok": answer["ids"] == 1 and answer["finish"] in ("stop", "length")}
        answer = chat(api, model, f"the load {number}", tokens=8)
        return {"id": answer["id"], "ok": answer["finish"] in ("stop", "length")}

    def safely(number: int) -> dict:
        try:
            return one(number)
        except Exception as error:  # every failure is reported, none hidden
            return {"id": f"failed-{number}", "ok": False, "error": repr(error)}

    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(safely, range(requests)))
    return {
        "answered": sum(answer["ok"] for answer in answers),
        "distinct": len({answer["id"] for answer in answers}),
        "errors": [answer["error"] for answer in answers if "error" in answer],
    }


if __name__ == "__main__":
    base, act = sys.argv[1:]
    print(json.dumps({"surface": surface, "order": order, "crowd": crowd}[act](base)))
