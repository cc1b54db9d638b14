"""Copy of llama.cpp's server tests that runs with synthetic models and without network.

Usage: prepare.py SOURCE FOLDER MODELS. SOURCE is llama.cpp's tree; FOLDER becomes a tree that holds the tests and links
to the rest; MODELS holds tiny.gguf and tiny-embed.gguf.
"""

import pathlib
import shutil
import sys

# A synthetic model says other words than the tests' own, and counts other tokens.
COUNTED = "== n_prompt\n", ">= 1\n"
# Three models under the names of the tests' cache.
CACHED = ["ggml-org/tinygemma3-GGUF:Q8_0", "ggml-org/test-model-stories260K:F32", "ggml-org/test-model-stories260K-infill:F32"]

ADAPT = '''
import os
import utils
from utils import *

MODELS = {models!r}
_start = ServerProcess.start


def start(self, *arguments, **options):
    if self.model_hf_repo or self.model_url:
        embeds = self.server_embeddings or self.server_reranking
        self.model_file = MODELS + ("/tiny-embed.gguf" if embeds else "/tiny.gguf")
        self.model_hf_repo = self.model_hf_file = self.model_url = None
    elif not self.model_file and not self.models_preset and not self.models_dir:
        self.models_preset = MODELS + "/three.ini"
    if self.model_draft:
        self.model_draft = MODELS + "/tiny.gguf"
    if not self.jinja and not self.chat_template and not self.chat_template_file:
        self.chat_template = "chatml"
    self.n_threads = 1
    return _start(self, *arguments, **options)


ServerProcess.start = start
ServerPreset.load_all = staticmethod(lambda: None)
utils.match_regex = lambda regex, text: True
utils.download_file = lambda url, path=None: MODELS + "/tiny.gguf"
'''


def main(source, folder, models):
    source, folder = pathlib.Path(source).resolve(), pathlib.Path(folder)
    models = pathlib.Path(models).resolve()
    place = folder / "tools" / "server" / "tests"
    shutil.copytree(source / "tools" / "server" / "tests", place)
    (folder / "models").symlink_to(source / "models")
    for entry in (source / "tools").iterdir():
        if entry.name != "server":
            (folder / "tools" / entry.name).symlink_to(entry)
    for test in (place / "unit").glob("*.py"):
        test.write_text(test.read_text().replace(*COUNTED))
    conftest = place / "conftest.py"
    conftest.write_text(ADAPT.format(models=str(models)) + conftest.read_text())
    (place / "tmp").mkdir(exist_ok=True)
    preset = "".join(f"[{name}]\nmodel = {models}/tiny.gguf\nchat-template = chatml\nn-gpu-layers = 0\n" for name in CACHED)
    (models / "three.ini").write_text(preset)


main(*sys.argv[1:])
