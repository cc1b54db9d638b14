"""What further clients do to `plimsoll serve`: langchain-openai, llm, litellm and aider.

Usage: other_clients.py BASE_URL ACT. Prints one JSON object of what worked, by call; `dialects.rs` asserts on it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CHAT, EMBEDDER = "alpha", "gamma"
# All at temperature 0: a synthetic model may otherwise end at once, with no word.
HELLO = [{"role": "user", "content": "the ship"}]


def langchain(base: str) -> dict:
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    chat = ChatOpenAI(base_url=f"{base}/v1", api_key="unused", model=CHAT, max_tokens=8, temperature=0,
                      max_retries=0)
    # Its default sends token numbers of OpenAI's vocabulary, which no other model knows.
    embed = OpenAIEmbeddings(
        base_url=f"{base}/v1", api_key="unused", model=EMBEDDER, check_embedding_ctx_length=False
    )
    return {
        "invoke": chat.invoke("the ship").content != "",
        "stream": "".join(piece.content for piece in chat.stream("the ship")) != "",
        "embed": len(embed.embed_query("the ship")) == 128,
    }


def llm(base: str) -> dict:
    with tempfile.TemporaryDirectory() as home:
        models = f"- model_id: ours\n  model_name: {CHAT}\n  api_base: {base}/v1\n"
        Path(home, "extra-openai-models.yaml").write_text(models)
        program = [sys.executable, "-m", "llm", "-m", "ours", "-o", "max_tokens", "8", "-o", "temperature", "0",
                   "the ship"]
        ask = lambda *more: run(program + list(more), home, {"LLM_USER_PATH": home, "OPENAI_API_KEY": "unused"})
        return {"stream": ask() != "", "whole": ask("--no-stream") != ""}


def litellm(base: str) -> dict:
    import litellm

    short = {"messages": HELLO, "max_tokens": 8, "temperature": 0, "num_retries": 0}
    open_ai = {"model": f"openai/{CHAT}", "api_base": f"{base}/v1", "api_key": "unused"}
    said = lambda answer: bool(answer.choices[0].message.content)
    streamed = lambda answer: "".join(part.choices[0].delta.content or "" for part in answer) != ""
    ours = {"api_base": base}
    return {
        "openai": said(litellm.completion(**open_ai, **short)),
        "openai stream": streamed(litellm.completion(**open_ai, **short, stream=True)),
        "anthropic": said(litellm.completion(model=f"anthropic/{CHAT}", api_key="unused", **ours, **short)),
        "ollama": said(litellm.completion(model=f"ollama/{CHAT}", **ours, **short)),
        "ollama stream": streamed(litellm.completion(model=f"ollama/{CHAT}", **ours, **short, stream=True)),
        "ollama_chat": said(litellm.completion(model=f"ollama_chat/{CHAT}", **ours, **short)),
        "ollama_chat stream": streamed(litellm.completion(model=f"ollama_chat/{CHAT}", **ours, **short, stream=True)),
        "ollama embedding": len(litellm.embedding(model=f"ollama/{EMBEDDER}", input=["x"], **ours).data) == 1,
        "lm_studio": said(litellm.completion(model=f"lm_studio/{CHAT}", api_base=f"{base}/v1", api_key="x", **short)),
    }


def aider(base: str) -> dict:
    """One message to a model, by OpenAI's API and by Ollama's."""

    def ask(model: str, variables: dict) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "settings.yml").write_text(f"- name: {model}\n  extra_params:\n    max_tokens: 8\n    temperature: 0\n")
            program = [sys.executable, "-m", "aider", "--model", model, "--weak-model", model,
                       "--no-git", "--yes-always", "--no-check-update", "--no-analytics", "--no-show-model-warnings",
                       "--map-tokens", "0", "--edit-format", "ask", "--no-fancy-input", "--no-pretty",
                       "--model-settings-file", str(Path(folder, "settings.yml")), "--message", "the ship"]
            said = run(program, folder, variables)
            # Of a model that stops at its limit it tells that, and of one that ends its count; errors are litellm's.
            return ("Tokens:" in said or "has hit a token limit" in said) and "litellm." not in said

    return {
        "openai": ask(f"openai/{CHAT}", {"OPENAI_API_BASE": f"{base}/v1", "OPENAI_API_KEY": "unused"}),
        "ollama_chat": ask(f"ollama_chat/{CHAT}", {"OLLAMA_API_BASE": base}),
    }


def run(program: list, folder: str, variables: dict) -> str:
    environment = {**os.environ, "HOME": folder, **variables}
    done = subprocess.run(program, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{program}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    base, act = sys.argv[1:]
    print(json.dumps({"langchain": langchain, "llm": llm, "litellm": litellm, "aider": aider}[act](base)))
