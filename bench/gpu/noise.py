"""Random weights for a model that `specimen` wrote with a hole in their place, in the time of a copy.

usage: noise.py MODEL

Zeros give the same answer whatever an engine reads. Blocks of every type are drawn once and repeated from another start in each tensor; their
scales keep the numbers near 0.02, so that activations stay finite.
"""

import os
import random
import struct
import sys

# Blocks that are drawn: a prime number, so that as many rows of a matrix differ, more than most vocabularies have tokens.
BLOCKS = 131101
PIECE = 32 << 20
TEXT, ARRAY = 8, 9
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def half(number):
    return struct.pack("<e", number)


# Types by number: elements and bytes of a block, and its scales as (offset, bytes).
TYPES = {
    0: (1, 4, []),
    1: (1, 2, []),
    2: (32, 18, [(0, half(0.0043))]),
    8: (32, 34, [(0, half(0.00027))]),
    12: (256, 144, [(0, half(8e-5)), (2, half(6e-4))]),
    13: (256, 176, [(0, half(4e-5)), (2, half(6.2e-4))]),
    14: (256, 210, [(208, half(1.5e-5))]),
    39: (32, 17, [(0, b"\x78")]),
}


class Header:
    """Keys of a GGUF file, and its tensors: name, elements, type and place."""

    def __init__(self, path):
        self.file = open(path, "rb", buffering=1 << 20)
        assert self.file.read(4) == b"GGUF", path
        _, tensors, keys = self.number("<IQQ")
        self.keys = {}
        for _ in range(keys):
            name, kind = self.text().decode(), self.number("<I")[0]
            # Without the architecture in front.
            self.keys[name.partition(".")[2]] = self.value(kind)
        alignment = self.keys.get("alignment", 32)
        self.tensors = [self.tensor() for _ in range(tensors)]
        end = self.file.tell()
        self.start = end + -end % alignment

    def number(self, format):
        return struct.unpack(format, self.file.read(struct.calcsize(format)))

    def text(self):
        return self.file.read(self.number("<Q")[0])

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            of, count = self.number("<IQ")
            if of in (TEXT, ARRAY):
                return [self.value(of) for _ in range(count)]
            return self.file.read(WIDTHS[of] * count)
        content = self.file.read(WIDTHS[kind])
        return int.from_bytes(content, "little")

    def tensor(self):
        name = self.text().decode()
        sizes = self.number(f"<{self.number('<I')[0]}Q")
        kind, offset = self.number("<IQ")
        count = 1
        for size in sizes:
            count *= size
        return name, count, kind, offset


def size(count, kind):
    """Bytes of so many elements."""
    elements, width, _ = TYPES[kind]
    return count // elements * width


def constant(name):
    """The number that a tensor of single floats holds everywhere; None for random ones."""
    if name.endswith("norm.weight"):
        return 1.0
    # The decay of a recurrent state is negative.
    return -0.5 if name.endswith("ssm_a") else None


def floats(numbers, format):
    return struct.pack(f"<{BLOCKS}{format}", *(numbers.uniform(-0.035, 0.035) for _ in range(BLOCKS)))


def pattern(kind, numbers):
    """Random blocks of a type."""
    if kind in (0, 1):
        return floats(numbers, "fe"[kind])
    _, width, scales = TYPES[kind]
    blocks = bytearray(numbers.randbytes(BLOCKS * width))
    for block in range(0, len(blocks), width):
        for offset, content in scales:
            blocks[block + offset:block + offset + len(content)] = content
    return bytes(blocks)


def repeated(content):
    return content * (PIECE // len(content) + 2)


def fill(path):
    """Writes the weights of a model; its size and header stay."""
    header, numbers, drawn = Header(path), random.Random(path.rsplit("/", 1)[-1]), {}
    with open(path, "r+b", buffering=0) as file:
        for name, count, kind, offset in header.tensors:
            left, at, width = size(count, kind), header.start + offset, TYPES[kind][1]
            value = constant(name) if kind == 0 else None
            if value is not None:
                file.seek(at)
                file.write(struct.pack("<f", value) * count)
                continue
            if kind not in drawn:
                drawn[kind] = memoryview(repeated(pattern(kind, numbers)))
            file.seek(at)
            begin = numbers.randrange(BLOCKS) * width
            whole = PIECE // (BLOCKS * width) * BLOCKS * width or BLOCKS * width
            while left:
                left -= file.write(drawn[kind][begin:begin + min(left, whole)])


if __name__ == "__main__":
    fill(sys.argv[1])
    os.sync()
