"""As much of PyTorch as a second program on a card needs, for a rehearsal: what it holds is taken of the driver, what is computed is not."""
import ctypes
import os
from functools import cached_property


class OutOfMemoryError(RuntimeError):
    pass


class Card:
    """The first card's driver, with the primary context of this process."""

    @cached_property
    def driver(self):
        driver, handle, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int()
        calls = (lambda: driver.cuInit(0), lambda: driver.cuDeviceGet(ctypes.byref(device), 0),
                 lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device), lambda: driver.cuCtxSetCurrent(handle))
        for call in calls:
            if status := call():
                raise RuntimeError("CUDA error: out of memory" if status == 2 else "No CUDA GPUs are available")
        return driver

    def take(self, size):
        at = ctypes.c_uint64()
        if self.driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            self.driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
            gib = [f"{number / 2**30:.2f} GiB" for number in (size, total.value, free.value)]
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {gib[0]}. GPU 0 has a total capacity of {gib[1]} of which {gib[2]} is free. "
                                   f"Process {os.getppid()} has 1.00 GiB memory in use.")
        return at


class Tensor:
    """A matrix, all of one value."""

    def __init__(self, rows, columns, value=1.0, device=None):
        self.rows, self.columns, self.value = rows, columns, value
        self.at = card.take(rows * columns * 4) if device == "cuda" else None

    @property
    def T(self):
        return Tensor(self.columns, self.rows, self.value)

    def __matmul__(self, other):
        return Tensor(self.rows, other.columns, self.columns * self.value * other.value)

    def sum(self):
        return Tensor(1, 1, self.rows * self.columns * self.value)

    def item(self):
        return self.value


OutOfMemoryError.__module__ = "torch"
card = Card()


def ones(rows, columns=1, device=None):
    return Tensor(rows, columns, device=device)
