"""Open WebUI from PyPI, without the packages of local speech, search and vision.

Usage: open_webui.py install | serve PLIMSOLL PORT FOLDER. `open_webui.rs` runs it; torch alone would be 3 GB.
"""

import os
import re
import subprocess
import sys
from importlib.metadata import requires

# Only what runs models inside of Open WebUI needs them; it starts and chats without.
LEFT_OUT = {
    "accelerate", "einops", "faster-whisper", "onnxruntime", "opencv-python-headless", "pyarrow", "rapidocr",
    "sentence-transformers", "sentencepiece", "transformers",
}
SETTINGS = {
    "WEBUI_AUTH": "False", "ENABLE_OLLAMA_API": "False", "OPENAI_API_KEY": "unused", "WEBUI_SECRET_KEY": "test",
    "RAG_EMBEDDING_ENGINE": "openai", "AUDIO_STT_ENGINE": "openai", "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1",
    "ENABLE_VERSION_UPDATE_CHECK": "False", "ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "1",
    # Titles, tags and follow-up questions would be further requests in between.
    "ENABLE_TITLE_GENERATION": "False", "ENABLE_TAGS_GENERATION": "False", "ENABLE_FOLLOW_UP_GENERATION": "False",
}


def install() -> None:
    wanted = [line.split(";")[0] for line in requires("open-webui") if "extra ==" not in line]
    wanted = [line for line in wanted if re.split(r"[\[=<>! ]", line)[0] not in LEFT_OUT]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)


def serve(base: str, port: str, folder: str) -> None:
    environment = {**os.environ, **SETTINGS, "OPENAI_API_BASE_URL": f"{base}/v1", "DATA_DIR": folder, "HOME": folder}
    # The environment was made elsewhere and moved, so the paths in its programs are wrong.
    start = [sys.executable, "-c", "from open_webui import app; app()", "serve", "--host", "127.0.0.1", "--port", port]
    os.execve(sys.executable, start, environment)


if __name__ == "__main__":
    {"install": install, "serve": serve}[sys.argv[1]](*sys.argv[2:])
