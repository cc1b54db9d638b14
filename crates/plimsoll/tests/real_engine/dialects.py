"""What clients of Ollama's and Anthropic's API do to `plimsoll serve`, with their own libraries.

Usage: dialects.py BASE_URL ACT. Prints one JSON object; `dialects.rs` asserts on it. Nothing is retried here:
a request that fails is a finding.
"""

import asyncio
import json
import sys
import time
from urllib.request import Request, urlopen

import anthropic
import ollama

CHAT, EMBEDDER = "alpha", "gamma"
HELLO = [{"role": "user", "content": "the ship"}]
SHORT = {"num_predict": 8, "temperature": 0}


def through_ollama(base: str) -> dict:
    """Each method of the library once."""
    api = ollama.Client(host=base)
    seen = {"models": sorted(model.model for model in api.list().models)}
    seen["show"] = api.show(CHAT).model_dump(mode="json")
    whole = api.chat(model=f"{CHAT}:latest", messages=HELLO, options=SHORT, keep_alive="5m")
    pieces = list(api.chat(model=CHAT, messages=HELLO, options=SHORT, stream=True))
    seen["chat"] = whole.model_dump(mode="json")
    seen["stream"] = {
        "text": "".join(piece.message.content or "" for piece in pieces),
        "done": [piece.done for piece in pieces],
        "last": pieces[-1].model_dump(mode="json"),
    }
    seen["ps"] = api.ps().model_dump(mode="json")["models"]
    seen["generate"] = api.generate(model=CHAT, prompt="the ship", options=SHORT).model_dump(mode="json")
    raw = list(api.generate(model=CHAT, prompt="the ship", raw=True, options=SHORT, stream=True))
    seen["raw"] = {"pieces": len(raw), "last": raw[-1].model_dump(mode="json")}
    embedded = api.embed(model=EMBEDDER, input=["the ship", "the load"])
    seen["embed"] = [len(vector) for vector in embedded.embeddings]
    seen["embeddings"] = len(api.embeddings(model=EMBEDDER, prompt="the ship").embedding)
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    with_tool = api.chat(model=CHAT, messages=HELLO, tools=[tool], options=SHORT, think=False)
    seen["tools"] = with_tool.done_reason
    seen["pull"] = [part.status for part in api.pull(CHAT, stream=True)]
    seen["errors"] = [refusal(call) for call in (
        lambda: api.chat(model="nowhere", messages=HELLO),
        lambda: api.generate(model="nowhere", prompt="x"),
        lambda: api.delete(CHAT),
        lambda: api.pull("nowhere"),
        lambda: api.chat(model=CHAT, messages=[{"role": "user", "content": "x", "images": ["aGVsbG8="]}]),
        lambda: list(api.chat(model=CHAT, messages=[{"role": "user", "content": "word " * 4000}], stream=True)),
    )]
    seen["unload"] = api.generate(model=CHAT, prompt="", keep_alive=0).done_reason
    for _ in range(600):
        if CHAT not in {model.model for model in api.ps().models}:
            break
        time.sleep(0.1)
    seen["load"] = api.generate(model=CHAT, prompt="").done_reason
    return seen


def refusal(call) -> list:
    try:
        return [200, repr(call())]
    except ollama.ResponseError as error:
        return [error.status_code, error.error]


def through_anthropic(base: str) -> dict:
    api = anthropic.Anthropic(base_url=base, api_key="unused", max_retries=0)
    request = {"model": CHAT, "max_tokens": 8, "messages": HELLO, "extra_body": {"temperature": 0}}
    whole = api.messages.create(**request)
    with api.messages.stream(**request) as stream:
        streamed = "".join(stream.text_stream)
    count = api.messages.count_tokens(model=CHAT, messages=HELLO)
    try:
        api.messages.create(**{**request, "model": "nowhere"})
        error = None
    except anthropic.NotFoundError as refused:
        error = refused.body
    return {
        "text": "".join(block.text for block in whole.content if block.type == "text"),
        "streamed": streamed,
        "output_tokens": whole.usage.output_tokens,
        "count": count.input_tokens,
        "error": error,
    }


async def home_assistant(base: str) -> dict:
    """The exchange of its integration `ollama`: `config_flow.py` and `entity.py`, with their defaults."""
    api = ollama.AsyncClient(host=base)
    models = {model["model"] for model in (await api.list()).get("models", [])}
    tool = {"type": "function", "function": {
        "name": "HassTurnOn", "description": "Turns on a device",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": []},
    }}
    history = [
        ollama.Message(role="system", content="You are a voice assistant."),
        ollama.Message(role="user", content="turn on the light"),
        ollama.Message(role="assistant", content="", tool_calls=[
            ollama.Message.ToolCall(function=ollama.Message.ToolCall.Function(
                name="HassTurnOn", arguments={"name": "light"}))]),
        ollama.Message(role="tool", content=json.dumps({"data": {"success": True}, "error": None})),
    ]
    parts = await api.chat(
        model=f"{CHAT}:latest", messages=history, tools=[tool], stream=True, keep_alive=-1,
        options={"num_ctx": 8192, "num_predict": 8}, think=False, format=None,
    )
    roles, text, done = set(), "", None
    async for part in parts:
        roles.add(part["message"]["role"])
        text += part["message"].get("content") or ""
        done = part
    # Its downloads: a model that is listed is not pulled, any other one is.
    pulled = await api.pull(CHAT)
    return {"models": sorted(models), "roles": sorted(roles), "text": text, "done": done["done"],
            "pulled": pulled.status, "ps": (await api.ps()).model_dump(mode="json")["models"]}


def copilot(base: str) -> dict:
    """The exchange of VS Code's Ollama provider: `ollamaProvider.ts`, and then `/v1/chat/completions`."""

    def fetch(path: str, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(base + path, data, {"Content-Type": "application/json"}), timeout=60) as answer:
            return answer.read().decode()

    version = [int(part) for part in json.loads(fetch("/api/version"))["version"].split(".")]
    assert version >= [0, 6, 4], version
    known = {}
    for model in json.loads(fetch("/api/tags"))["models"]:
        about = json.loads(fetch("/api/show", {"model": model["model"]}))
        info = about["model_info"]
        context = info.get(f"{info['general.architecture']}.context_length", 4096)
        output = context // 2 if context < 4096 else 4096
        known[model["model"]] = {
            "name": info["general.basename"], "input": context - output, "output": output,
            "vision": "vision" in about["capabilities"], "tools": "tools" in about["capabilities"],
        }
    events = fetch("/v1/chat/completions", {"model": CHAT, "messages": HELLO, "stream": True, "max_tokens": 4})
    return {"known": known, "ends": events.rstrip().endswith("data: [DONE]")}


if __name__ == "__main__":
    base, act = sys.argv[1:]
    acts = {
        "ollama": through_ollama,
        "anthropic": through_anthropic,
        "home_assistant": lambda base: asyncio.run(home_assistant(base)),
        "copilot": copilot,
    }
    print(json.dumps(acts[act](base)))
