#!/usr/bin/env python3
"""llama-server's command line over `plimsoll serve`: the program that llama.cpp's own tests start.

The command line becomes a configuration, as a user would write it, and `plimsoll serve` then takes this process's
place. Flags of the server itself become settings of [serve]; the other flags go to the engine. llama-server's
defaults become settings as well: the model is loaded at the start, and pages of every origin may use the server
unless tools are on.

PLIMSOLL: the program. PLIMSOLL_TEST_ENGINE: the llama-server that serves the models.
"""

import json
import os
import shlex
import sys
import tempfile

VALUES = {"--port", "--host", "--api-key", "--models-preset", "--models-max", "--cors-origins", "--alias", "--tags", "--model"}
SWITCHES = {"--no-models-autoload"}
# The router of llama-server answers for these itself, and allows pages of this machine only.
TOOLS = {"--tools", "--mcp-servers-config", "--mcp-servers-json"}
# Flags of the router's command line without a value.
BARE = {"--no-jinja", "--jinja", "--no-slots", "--slots", "--no-ui", "--offline", "--metrics", "--embedding", "--verbose"}


def split(arguments):
    """The server's own settings, and the flags of the engine."""
    own, engine = {}, []
    rest = iter(arguments)
    for word in rest:
        if word in VALUES:
            own[word] = next(rest)
        elif word in SWITCHES:
            own[word] = True
        else:
            engine.append(word)
    return own, engine


def origins(own, engine):
    asked = own.get("--cors-origins")
    if asked is None:
        return ["localhost"] if TOOLS & set(engine) else ["*"]
    return asked.split(",")


def one_model(own, engine):
    # llama-server takes the first of its sorted aliases for the name.
    names = sorted(set(own.get("--alias", "model").split(",")))
    lines = ["[serve]", f"autoload = {'false' if '--no-models-autoload' in own else 'true'}"]
    lines += [f"allow-origins = {json.dumps(origins(own, engine))}"]
    if key := own.get("--api-key"):
        lines.append(f"api-keys = {json.dumps([key])}")
    if os.environ.get("AIP_MODE"):
        lines.append('pass-env = ["AIP_*"]')
    lines += [f"[models.{json.dumps(names[0])}]", f"model = {json.dumps(own['--model'])}", "preload = true"]
    lines += [f"aliases = {json.dumps(names[1:])}", f"flags = {json.dumps(engine)}"]
    if tags := own.get("--tags"):
        lines.append(f"tags = {json.dumps(tags.split(','))}")
    return "\n".join(lines) + "\n"


def router(own, engine, folder):
    """What the command line says for all models, in front of the preset file."""
    lines = [";plimsoll: memory = 1GiB", ";plimsoll: engine-ports = on"]
    lines.append(f";plimsoll: downloads = {os.path.join(os.environ['LLAMA_CACHE'], 'plimsoll')}")
    lines += [f";plimsoll: allow-origin = {origin}" for origin in origins(own, engine)]
    if key := own.get("--api-key"):
        path = os.path.join(folder, "key")
        with open(path, "w") as file:
            file.write(key + "\n")
        lines.append(f";plimsoll: api-key-file = {path}")
    if "--no-models-autoload" in own:
        lines.append(";plimsoll: autoload = off")
    lines.append("[*]")
    words = iter(engine)
    for word in words:
        lines.append(f"{word.lstrip('-')} = {'1' if word in BARE else next(words)}")
    with open(own["--models-preset"]) as file:
        return "\n".join(lines) + "\n" + file.read()


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def slow(folder, program):
    """The engine with the pauses that llama-server's router makes for these tests."""
    words = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_engine.py"), program]
    path = write(folder, "llama-server", f"#!/bin/sh\nexec {shlex.join([sys.executable, *words])} \"$@\"\n")
    os.chmod(path, 0o755)
    return path


def main():
    own, engine = split(sys.argv[1:])
    folder = tempfile.mkdtemp()
    preset = own.get("--models-preset")
    if preset is None:
        config = write(folder, "plimsoll.toml", one_model(own, engine))
    elif os.path.basename(preset) == "three.ini":
        config = write(folder, "models.ini", router(own, engine, folder))
    else:
        # A test rewrites its own preset file, and a reload has to see that.
        config = preset
    port = own["--port"]
    hosts = [f"[{host}]" if ":" in host else host for host in own["--host"].split(",")]
    plimsoll, program = os.environ["PLIMSOLL"], os.environ["PLIMSOLL_TEST_ENGINE"]
    if preset and os.environ.get("LLAMA_SERVER_DEBUG_FAKE_TIMING"):
        program = slow(folder, program)
    arguments = [plimsoll, "serve", config, "--listen", ",".join(f"{host}:{port}" for host in hosts)]
    arguments += ["--card", "name=host,kind=host,total=64GiB", "--engine", program]
    # The default of llama-server.
    arguments += ["--models-max", str(own.get("--models-max", 4))]
    os.execv(plimsoll, arguments)


main()
