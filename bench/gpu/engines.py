"""The engines of a bundle: archives unpacked, sources built beside the measuring.

An archive `engines/NAME.tar.*` holds `bin/` of a CUDA build; a source `source/NAME.tar.xz` holds `llama.cpp/`. A source whose archive is
there, too, is not built. Two builds side by side took 283 s of 32 cores, so one after the other the first is there after half of that, and the
card measures while the second is made. What is built is packed into $OUT in parts, one engine a command, so that another
machine need not build both.
"""

import glob
import os
import re
import subprocess
import tarfile
import threading
import time

from session import Build

CMAKE = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=90", "-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON", "-DGGML_FMA=ON",
         "-DGGML_F16C=ON", "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF",
         "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_BUILD_WEBUI=OFF", "-DGGML_CUDA_NCCL=OFF", "-DGGML_CCACHE=OFF",
         "-DGGML_CUDA_COMPRESSION_MODE=none"]
PROGRAMS = ["llama-server", "llama-fit-params", "llama-bench"]
PART_BYTES = 15 << 20


def number(path):
    """`b8799.small.tar.xz` is 8799."""
    found = re.match(r"b(\d+)", os.path.basename(path))
    if not found:
        raise ValueError(f"an engine's file is called after its build, as in b10605.tar.xz, not {path}")
    return int(found[1])


def unpacked(archive, folder):
    """Links and modes as they were packed: the archive is our own."""
    trusted = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **trusted)


class Engines:
    """What is there now, and what will be."""

    def __init__(self, session, archives, sources, awaited=()):
        """`awaited`: builds that another lane unpacks or builds in the same folder of work."""
        self.session, self.builds, self.processes = session, {}, []
        for archive in archives:
            self.unpack(archive)
        wanted = {number(source): source for source in sources}
        self.open = [(build, wanted[build]) for build in sorted(wanted, reverse=True) if build not in self.builds and not self.kept(build)]
        self.awaited = [build for build in awaited if not self.kept(build)]
        self.thread = threading.Thread(target=self.make, daemon=True)
        self.thread.start()

    def make(self):
        """Builds what is open, the newest first, and packs one of those that were built here."""
        for build, source in self.open:
            try:
                self.build(build, source)
            except Exception as error:
                self.session.say(f"b{build} is not built: {error}"[:1500])
        for build in sorted(self.builds):
            folder = f"{self.session.work}/build-{build}"
            if os.path.exists(f"{folder}/whole") and not os.path.exists(f"{folder}/packed"):
                self.pack(build, folder)
                break
        while self.awaited:
            time.sleep(0.5)
            self.awaited = [build for build in self.awaited if not self.kept(build)]

    def kept(self, build):
        """Is it there by another command on this machine?"""
        for folder in (f"{self.session.work}/build-{build}", f"{self.session.work}/engine-{build}"):
            if os.path.exists(f"{folder}/whole"):
                self.builds[build] = Build(build, f"{folder}/bin")
                return True
        return False

    def unpack(self, archive):
        build = number(archive)
        folder = f"{self.session.work}/engine-{build}"
        if not os.path.exists(f"{folder}/whole"):
            self.session.say(f"unpacks {os.path.basename(archive)}")
            unpacked(archive, folder)
            open(f"{folder}/whole", "w").close()
        self.builds[build] = Build(build, f"{folder}/bin")

    def call(self, command, log):
        with open(log, "ab") as said:
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            self.processes.append(process)
            if process.wait() != 0:
                with open(log, errors="replace") as lines:
                    raise OSError(f"{command[0]} ended with {process.returncode}: {' '.join(lines.read().split()[-120:])}")

    def build(self, build, source):
        folder, log = f"{self.session.work}/build-{build}", f"{self.session.work}/build-{build}.log"
        self.session.say(f"begins to build b{build}")
        unpacked(source, f"{self.session.work}/source-{build}")
        tree = f"{self.session.work}/source-{build}/llama.cpp"
        self.call(["cmake", "-S", tree, "-B", folder, "-G", "Ninja", *CMAKE, f"-DLLAMA_BUILD_NUMBER={build}"], log)
        self.call(["ninja", "-C", folder, "-j", str(os.cpu_count() + 4), *PROGRAMS], log)
        open(f"{folder}/whole", "w").close()
        self.builds[build] = Build(build, f"{folder}/bin")
        self.session.say(f"b{build} is built")

    def pack(self, build, folder):
        """Stripped and packed, `OUT/b10605.tar.xz.aa` and on: together they are an archive for --engine-archive."""
        script = ('cp -a "$1/bin" "$3/pack-$2" && find "$3/pack-$2" -type f -exec strip --strip-unneeded {} + ; cd "$3" && '
                  'tar -cf - --transform "s,^pack-$2,bin," "pack-$2" | xz -T0 --lzma2=preset=5,dict=64MiB | split -b "$5" - "$4/b$2.tar.xz."')
        try:
            arguments = [folder, str(build), self.session.work, self.session.out, str(PART_BYTES)]
            self.call(["nice", "bash", "-c", script, "pack", *arguments], f"{self.session.work}/pack-{build}.log")
            open(f"{folder}/packed", "w").close()
            self.session.say(f"b{build} is packed: {', '.join(sorted(map(os.path.basename, glob.glob(f'{self.session.out}/b{build}.tar.xz.*'))))}")
        except OSError as error:
            self.session.say(f"b{build} is not packed: {error}")

    def waiting(self):
        """Is one still being built?"""
        return self.thread.is_alive() and (bool(self.awaited) or any(build not in self.builds for build, _ in self.open))

    def stop(self, seconds):
        """Waits so long for what is being packed, and ends what is not done then."""
        self.awaited = []
        self.thread.join(max(0, seconds))
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
