"""llama-server's command line over the llama.cpp server inside PyPI's xllamacpp.

Decision: no flag table of our own. The extension module carries llama.cpp's own argument parser, so
every flag, short name, negation, LLAMA_ARG_* variable and error text here is llama-server's, at the
build that the wheel was made from. Python only starts the server and ends it; requests never pass
through it.

llama.cpp itself speaks the router control channel when LLAMA_SERVER_ROUTER_PORT is set: it writes the
state lines on stdout. The commands on stdin are obeyed here, by leaving at once: left to itself the
server would end its loop without telling Python, and wait for ever for a stream that is still open.

Exit status: 0 after the exit command, SIGTERM or SIGINT; 1 for a bad flag, a failed load, or a
stdin that closed under the control channel.
"""

import ctypes
import os
import signal
import struct
import sys
from types import FrameType
from typing import BinaryIO, NoReturn

import xllamacpp
from xllamacpp import xllamacpp as extension

# The layout below is that of this release and no other; plimsoll installs exactly it.
RELEASE = "2026.10.11549"
# xllamacpp numbers its releases YEAR.MONTH.BUILD, BUILD being llama.cpp's (the wheel itself reports 0).
BUILD = RELEASE.rsplit(".", 1)[1]

# common_params_parse(int, char **, common_params &, llama_example, void (*)(int, char **))
PARSE_SYMBOL = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
LLAMA_EXAMPLE_SERVER = 12

ROUTER_PORT = "LLAMA_SERVER_ROUTER_PORT"
EXIT_COMMAND = b"cmd_router_to_child:exit"


def fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(1)


def native_address(params: xllamacpp.CommonParams) -> int:
    """Returns where the C++ common_params lies, after proving it by writing and reading two fields."""
    address = id(params) + object.__basicsize__
    before = params.n_predict, params.n_ctx
    params.n_predict, params.n_ctx = 0x504C, 0x494D
    seen = struct.unpack("=ii", ctypes.string_at(address, 8))
    params.n_predict, params.n_ctx = before
    if xllamacpp.__version__ != RELEASE or seen != (0x504C, 0x494D):
        fail(
            f"this adapter drives xllamacpp {RELEASE}, found {xllamacpp.__version__} with another layout\n"
            "hint: run `plimsoll engine install`"
        )
    return address


def parse(arguments: list[str]) -> xllamacpp.CommonParams:
    """Returns the parameters llama-server would run with; llama.cpp prints what is wrong with them."""
    parser = getattr(ctypes.CDLL(extension.__file__), PARSE_SYMBOL)
    parser.restype = ctypes.c_bool
    parser.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    words = [b"llama-server", *map(os.fsencode, arguments)]
    argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    params = xllamacpp.CommonParams()
    if not parser(len(words), ctypes.addressof(argv), native_address(params), LLAMA_EXAMPLE_SERVER, None):
        raise SystemExit(1)
    return params


def refuse_what_is_missing(params: xllamacpp.CommonParams) -> None:
    """Refuses what llama-server has and this engine has not: the router, and fetching a model."""
    model = params.model
    for flag, value in (
        ("--hf-repo", model.hf_repo),
        ("--model-url", model.url),
        ("--docker-repo", model.docker_repo),
    ):
        if value:
            fail(f"{flag} is not supported by this engine: fetch the file and give it with --model")
    if not model.path:
        fail("--model is missing, and this engine has no router mode")


def leave(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(0)


def take_control_channel() -> BinaryIO:
    """Returns the real stdin, and gives the server a silent pipe in its place."""
    channel = os.fdopen(os.dup(0), "rb")
    silent, _never_written = os.pipe()
    os.dup2(silent, 0)
    return channel


def obey(channel: BinaryIO) -> NoReturn:
    """Ends the process on the exit command, or when stdin closes; llama-server's own statuses."""
    for line in channel:
        if EXIT_COMMAND in line:
            os._exit(0)
    print("stdin closed, exiting", file=sys.stderr, flush=True)
    os._exit(1)


def serve(params: xllamacpp.CommonParams) -> NoReturn:
    channel = take_control_channel() if ROUTER_PORT in os.environ else None
    # Loading holds the interpreter, so a Python handler would wait for its end: until then a signal just kills.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _server = xllamacpp.Server(params)
    except RuntimeError:
        raise SystemExit(1) from None  # llama.cpp has said why
    # A signal leaves a byte here. One that came just before `signal.pause` would be waited for in vain.
    ended, ends = os.pipe()
    os.set_blocking(ends, False)
    signal.set_wakeup_fd(ends)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    if channel is not None:
        obey(channel)
    while True:
        os.read(ended, 1)


def print_version() -> None:
    info = xllamacpp.BUILD_INFO
    print(f"version: xllamacpp-{RELEASE} (build {BUILD}, commit unknown)", file=sys.stderr)
    print(f"built with {info['compiler']} for {info['build_target']}", file=sys.stderr)


def main() -> None:
    arguments = sys.argv[1:]
    if "--version" in arguments:
        return print_version()
    params = parse(arguments)
    refuse_what_is_missing(params)
    serve(params)


if __name__ == "__main__":
    main()
