"""Tests of the installed package, against the program's own answers.

PLIMSOLL_BUILT is the folder of `plimsoll` and of `specimen`, which writes headers of models.
"""

import contextlib
import ctypes
import io
import json
import os
import random
import re
import resource
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import plimsoll

BUILT = Path(os.environ["PLIMSOLL_BUILT"])
REPOSITORY = Path(__file__).resolve().parents[2]
LOG = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: "
    "cudaMalloc failed: out of memory\n"
    "llama_kv_cache_init: failed to allocate buffer for kv cache\n"
)
SEED = 20261201


def header(path):
    """The beginning of a model, whose weights are a hole of gigabytes."""
    with open(path, "rb") as file:
        return file.read(1 << 20)


class Folder(unittest.TestCase):
    """A folder with the header of a model and a log."""

    @classmethod
    def setUpClass(cls):
        cls.home, cls.before = tempfile.TemporaryDirectory(), os.getcwd()
        os.chdir(cls.home.name)
        subprocess.run([BUILT / "specimen", "l8", "model.gguf"], check=True, stdout=subprocess.DEVNULL)
        Path("server.log").write_text(LOG)

    @classmethod
    def tearDownClass(cls):
        os.chdir(cls.before)
        cls.home.cleanup()

    def printed(self, *words):
        """What the program prints as JSON."""
        output = subprocess.run([BUILT / "plimsoll", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(output.stdout)


class Answers(Folder):
    def test_a_plan_is_the_document_of_the_program(self):
        for flags, cards, options in [
            ("-c 65536", ["3090"], {}),
            ("-c 131072 -ctk q8_0 -ctv q8_0 -fa on", ["2x3060"], {"host": "32GiB"}),
            ("-ngl 10 -c 8192", ["name=X,total=4GiB,free=3GiB,cc=8.6"], {"host": "6GiB"}),
            ("-c 4096 -np 8", ["H100"], {"engine": "llama.cpp@9000", "depth": 128}),
            ("-c 4096 --lora nowhere.gguf", ["3090", "3090"], {"program": "llama-cli"}),
        ]:
            with self.subTest(flags):
                words = [f"--{name.replace('engine', 'build')}={value}" for name, value in options.items()]
                words += [word for card in cards for word in ("--card", card)]
                command = ["plan", "model.gguf", "--formulas", "--json", *words, "--", *flags.split()]
                self.assertEqual(plimsoll.plan("model.gguf", flags, cards=cards, **options), self.printed(*command))

    def test_a_diagnosis_is_the_document_of_the_program(self):
        printed = self.printed("doctor", "server.log", "--json", "--context", "one RTX 3090")
        self.assertEqual(plimsoll.doctor(LOG, context=["one RTX 3090"]), printed)
        self.assertEqual(plimsoll.doctor(LOG.encode()), self.printed("doctor", "server.log", "--json"))

    def test_flags_may_be_words_and_the_model_a_path(self):
        of_text = plimsoll.plan("model.gguf", "-c 4096 -ot 'exps=CPU'", cards=["3090"])
        of_words = plimsoll.plan(Path("model.gguf"), ["-c", "4096", "-ot", "exps=CPU"], cards=("3090",))
        self.assertEqual(of_text, of_words)

    def test_an_error_has_the_words_and_the_hint_of_the_program(self):
        for call, text, hint in [
            (lambda: plimsoll.plan("none.gguf", cards=["3090"]), "cannot open", None),
            (lambda: plimsoll.plan("server.log", cards=["3090"]), "server.log: ", None),
            (lambda: plimsoll.plan("model.gguf", "--nix", cards=["3090"]), "unknown flag `--nix`", None),
            (lambda: plimsoll.plan("model.gguf", cards=["3091"]), "`3091` is not a known card", None),
            (lambda: plimsoll.plan("model.gguf", cards=[]), "no card is given", "3090"),
            (lambda: plimsoll.plan("model.gguf", "-c 256", cards=["3090"], depth=257), "--depth 257", "-c 257"),
            (lambda: plimsoll.plan("model.gguf", cards=["3090"], depth=-1), "invalid value", None),
            (lambda: plimsoll.plan("/dev/zero", cards=["3090"]), "/dev/zero", None),
        ]:
            with self.assertRaises(plimsoll.PlanError) as caught:
                call()
            self.assertIn(text, str(caught.exception))
            self.assertIn(hint or "", caught.exception.hint or "")

    def test_a_text_in_place_of_a_list_is_refused(self):
        with self.assertRaises(TypeError):
            plimsoll.plan("model.gguf", cards="3090")
        with self.assertRaises(TypeError):
            plimsoll.doctor(LOG, context="one card")

    def test_examples_of_the_documentation_run(self):
        page = (REPOSITORY / "docs/python.md").read_text()
        examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(examples), 2)
        for example in examples:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(example, "docs/python.md", "exec"), {})
            self.assertTrue(printed.getvalue())


class Calls(Folder):
    def test_a_hundred_plans_take_less_than_a_second(self):
        def rate():
            begin = time.perf_counter()
            for context in range(20):
                plimsoll.plan("model.gguf", f"-c {4096 + 256 * context}", cards=["3090"])
            return 20 / (time.perf_counter() - begin)

        best = max(rate() for _ in range(10))
        print(f"{best:.0f} plans a second")
        self.assertGreaterEqual(best, 100)

    def test_other_threads_run_while_the_library_computes(self):
        log = LOG + "a line of a long log, of which there are many\n" * 400_000
        sent, library = json.dumps({"log": log}).encode(), plimsoll._library._LIBRARY

        def compute():
            library.plimsoll_free(library.plimsoll_doctor(sent, len(sent)))

        worker, turns = threading.Thread(target=compute), 0
        worker.start()
        # A thread that holds the interpreter's lock in C is not interrupted, so few turns would be counted.
        while worker.is_alive():
            turns += 1
            time.sleep(0.001)
        print(f"{turns} turns of another thread during one call")
        self.assertGreaterEqual(turns, 20)

    def test_threads_get_the_answers_of_their_own_questions(self):
        found = {}

        def ask(context):
            for _ in range(10):
                found[context] = plimsoll.plan("model.gguf", f"-c {context}", cards=["3090"])["context"]

        threads = [threading.Thread(target=ask, args=(256 * number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, {256 * number: 256 * number for number in range(1, 9)})

    def test_answers_are_freed(self):
        def ask(times):
            for _ in range(times):
                plimsoll.plan("model.gguf", "-c 4096", cards=["3090"])
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        before = ask(200)
        self.assertLess(ask(1000) - before, 2048, "KiB more after 1000 answers of 3 KiB")


class Hostile(Folder):
    """Input that means harm. A crash would end the interpreter, and so the test."""

    def test_damaged_headers_are_planned_or_refused(self):
        source, whole = random.Random(SEED), header("model.gguf")
        refused = 0
        for _ in range(500):
            damaged = bytearray(whole[: source.choice([len(whole), source.randrange(4096)])])
            for _ in range(source.randrange(1, 8)):
                if damaged:
                    damaged[source.randrange(min(len(damaged), 1 << 14))] = source.choice([0, 255, source.randrange(256)])
            Path("damaged.gguf").write_bytes(damaged)
            try:
                plimsoll.plan("damaged.gguf", cards=["3090"])
            except plimsoll.PlanError as error:
                refused += 1
                self.assertTrue(str(error))
        self.assertGreater(refused, 100)

    def test_odd_words_are_planned_or_refused(self):
        source = random.Random(SEED)
        words = ["-c", "-1", "999999999999", "", "\0", "-ngl", "-ot", "a=b", "é\U0001f6a2", "-ts", "1,1e999", "\ud800", "-np", "x" * 9999]
        for _ in range(500):
            flags = [source.choice(words) for _ in range(source.randrange(6))]
            cards = [source.choice(["3090", "name=X,total=1GiB", "total=,", "99x3090", "\0", ""])]
            try:
                plimsoll.plan("model.gguf", flags, cards=cards, host=source.choice([None, "1GiB", "-1", ""]))
            except plimsoll.PlanError as error:
                self.assertTrue(str(error))

    def test_any_bytes_are_a_log(self):
        source = random.Random(SEED)
        for _ in range(300):
            damaged = bytearray(LOG.encode() * 3)
            for _ in range(source.randrange(64)):
                damaged[source.randrange(len(damaged))] = source.randrange(256)
            self.assertEqual(plimsoll.doctor(bytes(damaged))["schema"], "plimsoll.diagnosis/1")
        self.assertEqual(plimsoll.doctor("\ud800\0")["schema"], "plimsoll.diagnosis/1")

    def test_bytes_that_are_no_question_get_an_error(self):
        library, source = plimsoll._library._LIBRARY, random.Random(SEED)
        texts = [b"", b"null", b"[]", b"{", b"{}" * 9, b"[" * 100_000, b'{"flags": 7}', b'{"log": "\\ud800"}', b"\xff\xfe"]
        texts += [bytes(source.randrange(256) for _ in range(64)) for _ in range(200)]
        for function in (library.plimsoll_plan, library.plimsoll_doctor):
            for text in texts:
                pointer = function(text, len(text))
                self.assertIn("error", json.loads(ctypes.string_at(pointer)))
                library.plimsoll_free(pointer)
            # No question at all, and nothing to free.
            pointer = function(None, 0)
            self.assertIn("error", json.loads(ctypes.string_at(pointer)))
            library.plimsoll_free(pointer)
        library.plimsoll_free(None)


if __name__ == "__main__":
    unittest.main()
