#!/usr/bin/env python3
"""Checks on a card whether a replayed CUDA graph uses the memory that is mapped behind its addresses now, and what an exchange costs.

usage: remap_graph.py [OUT.json]

A graph is captured over a granule of virtual memory. Another granule is then mapped to the same address, on the card or in host memory, and
the graph is replayed. It ends with 0 if kernel nodes follow the mapping; memory copy nodes are reported apart. No other program is needed.
"""

import ctypes
import json
import sys
import time

CUDA = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
STEP = 64  # Granules of one step of an exchange: K and V of 32 layers.
U64, INT, HANDLE = ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry plimsoll_touch(.param .u64 at, .param .u64 count)
{
    .reg .pred %beyond;
    .reg .b32 %thread, %block, %width, %byte;
    .reg .b64 %first, %bytes, %index, %place;
    ld.param.u64 %first, [at];
    ld.param.u64 %bytes, [count];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    cvt.u64.u32 %place, %thread;
    mad.wide.u32 %index, %block, %width, %place;
    setp.ge.u64 %beyond, %index, %bytes;
    @%beyond bra done;
    add.u64 %place, %first, %index;
    ld.u8 %byte, [%place];
    add.u32 %byte, %byte, 1;
    st.u8 [%place], %byte;
done:
    ret;
}
"""


class Location(ctypes.Structure):
    _fields_ = [("kind", INT), ("id", INT)]


class Properties(ctypes.Structure):
    _fields_ = [("kind", INT), ("handles", INT), ("location", Location), ("windows", HANDLE), ("flags", U64)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", INT)]


CARD, HOST, NODE = Location(1, 0), Location(2, 0), Location(3, 0)


def call(name, *arguments):
    code = getattr(CUDA, name)(*arguments)
    if code:
        raise OSError(f"{name} gave {code}")


def made(name, *arguments, kind=HANDLE):
    """What a function writes to its first argument."""
    place = kind()
    call(name, ctypes.byref(place), *arguments)
    return place


def create(location, size):
    properties = Properties(1, 0, location, None, 0)
    return made("cuMemCreate", U64(size), ctypes.byref(properties), U64(0), kind=U64)


def put(at, size, memory):
    """Maps memory to an address, for the card."""
    call("cuMemMap", U64(at), U64(size), U64(0), memory, U64(0))
    access = Access(CARD, 3)
    call("cuMemSetAccess", U64(at), U64(size), ctypes.byref(access), U64(1))


def take(at, size):
    call("cuMemUnmap", U64(at), U64(size))


class Card:
    def __init__(self):
        call("cuInit", 0)
        device = made("cuDeviceGet", 0, kind=INT)
        call("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", device))
        self.module = made("cuModuleLoadData", ctypes.c_char_p(PTX))
        self.kernel = made("cuModuleGetFunction", self.module, b"plimsoll_touch")
        self.stream = made("cuStreamCreate", 1)
        properties = Properties(1, 0, CARD, None, 0)
        self.granule = made("cuMemGetAllocationGranularity", ctypes.byref(properties), 0, kind=U64).value
        self.host = self.usable()

    def usable(self):
        """The kind of host memory that can be mapped here."""
        for location in (NODE, HOST):
            try:
                memory = create(location, self.granule)
                call("cuMemRelease", memory)
                return location
            except OSError:
                continue
        raise OSError("no host memory can be mapped")

    def wait(self):
        call("cuStreamSynchronize", self.stream)

    def reserve(self, size):
        return made("cuMemAddressReserve", U64(size), U64(0), U64(0), U64(0), kind=U64).value

    def touch(self, at, size):
        values = [U64(at), U64(size)]
        pointers = (HANDLE * 2)(*(ctypes.cast(ctypes.byref(value), HANDLE) for value in values))
        call("cuLaunchKernel", self.kernel, size // 256, 1, 1, 256, 1, 1, 0, self.stream, pointers, None)

    def fill(self, at, size, value):
        call("cuMemsetD8Async", U64(at), ctypes.c_ubyte(value), U64(size), self.stream)
        self.wait()

    def byte(self, at, size):
        """The value of every byte; None if they differ."""
        back = ctypes.create_string_buffer(size)
        call("cuMemcpyDtoH_v2", back, U64(at), U64(size))
        return back.raw[0] if back.raw.count(back.raw[0]) == size else None

    def copy(self, to, of, size):
        call("cuMemcpyDtoDAsync_v2", U64(to), U64(of), U64(size), self.stream)

    def graph(self, work):
        call("cuStreamBeginCapture_v2", self.stream, 2)
        work()
        graph = HANDLE()
        call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        return made("cuGraphInstantiateWithFlags", graph, U64(0))

    def replay(self, graph):
        call("cuGraphLaunch", graph, self.stream)
        self.wait()


def follows(card, places):
    """Whether replayed nodes use the memory that is mapped now, for a kernel and for copies from and to the granule."""
    size, at = card.granule, card.reserve(3 * card.granule)
    memories = [create(place, size) for place in places]
    spare, out = at + size, at + 2 * size
    output = create(CARD, size)
    put(out, size, output)
    put(at, size, memories[0])
    kernel = card.graph(lambda: card.touch(at, size))
    reads = card.graph(lambda: card.copy(out, at, size))
    writes = card.graph(lambda: card.copy(at, out, size))
    result = {"kernel": True, "copy_from": True, "copy_to": True}
    for turn in range(6):
        now, other = memories[turn % 2], memories[(turn + 1) % 2]
        put(spare, size, other)
        value = 10 * turn + 10
        card.fill(at, size, value)
        card.fill(spare, size, 200)
        card.replay(kernel)
        result["kernel"] &= (card.byte(at, size), card.byte(spare, size)) == (value + 1, 200)
        card.fill(out, size, 0)
        card.replay(reads)
        result["copy_from"] &= card.byte(out, size) == value + 1
        card.fill(out, size, value + 5)
        card.replay(writes)
        result["copy_to"] &= (card.byte(at, size), card.byte(spare, size)) == (value + 5, 200)
        take(at, size)
        take(spare, size)
        put(at, size, other)
    return result


def timed(times, work):
    start = time.perf_counter()
    for index in range(times):
        work(index)
    return round((time.perf_counter() - start) / times * 1e6, 1)


def exchange(card):
    """Microseconds of each call, and of a step: granules of the card and of host memory change their places."""
    size, count = card.granule, STEP
    at = card.reserve((2 * count + 2) * size)
    places = [at + index * size for index in range(2 * count + 2)]
    memories, figures = [None] * len(places), {}
    for name, location, first in (("card", CARD, 0), ("host", card.host, count)):
        def build(index, location=location, first=first):
            memories[first + index] = create(location, size)
        figures[f"create_{name}"] = timed(count, build)
    memories[2 * count], memories[2 * count + 1] = create(CARD, size), create(card.host, size)
    figures["map_and_access"] = timed(len(places), lambda index: put(places[index], size, memories[index]))
    figures["copy_to_host"] = timed(count, lambda index: (card.copy(places[count + index], places[2 * count], size), card.wait()))
    figures["copy_to_card"] = timed(count, lambda index: (card.copy(places[2 * count], places[count + index], size), card.wait()))
    for index in range(len(places)):
        card.fill(places[index], size, index + 1)
    spare = [2 * count, 2 * count + 1]

    def pair(index):
        """The granule of the card goes to host memory, that of host memory to the card; both spares change places with them."""
        on_card, on_host = index, count + index
        card.copy(places[spare[1]], places[on_card], size)
        card.copy(places[spare[0]], places[on_host], size)
        card.wait()
        for place in (on_card, on_host, *spare):
            take(places[place], size)
        for one, other in ((on_card, spare[1]), (on_host, spare[0])):
            memories[one], memories[other] = memories[other], memories[one]
        # The spare of each kind is now what was there before; the spares' addresses change their kinds.
        memories[spare[0]], memories[spare[1]] = memories[spare[1]], memories[spare[0]]
        for place in (on_card, on_host, *spare):
            put(places[place], size, memories[place])

    figures["exchange_of_a_pair"] = timed(count, pair)
    figures["data_kept"] = all(card.byte(places[index], size) == index + 1 for index in range(2 * count))
    # The first half lies in host memory now, in granules.
    figures["touch_host_granules"] = timed(3, lambda _: (card.touch(places[0], count * size), card.wait()))
    figures["touch_card_granules"] = timed(3, lambda _: (card.touch(places[count], count * size), card.wait()))
    whole = card.reserve(count * size)
    put(whole, count * size, create(card.host, count * size))
    card.fill(whole, count * size, 1)
    figures["touch_host_whole"] = timed(3, lambda _: (card.touch(whole, count * size), card.wait()))
    return figures


def many(card, count):
    """Microseconds for each of many granules: whether their number makes the driver slow."""
    size, figures = card.granule, {}
    for name, location in (("card", CARD), ("host", card.host)):
        at = card.reserve(count * size)
        figures[f"attach_{name}"] = timed(count, lambda index, at=at, location=location: put(at + index * size, size, create(location, size)))
    return figures


def main():
    card = Card()
    result = {"granule": card.granule, "host": card.host.kind}
    for name, places in (("card_card", (CARD, CARD)), ("card_host", (CARD, card.host)), ("host_card", (card.host, CARD))):
        result[name] = follows(card, places)
        print(name, result[name], flush=True)
    result["exchange"] = exchange(card)
    print("exchange", result["exchange"], flush=True)
    result["many"] = many(card, 1024)
    print("many", result["many"], flush=True)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump(result, file, indent=1)
    sys.exit(0 if all(result[name]["kernel"] for name in ("card_card", "card_host", "host_card")) else 1)


main()
