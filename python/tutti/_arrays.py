"""Types of arrays that the buffer protocol cannot name, and memory that peers can map."""

from __future__ import annotations

import ctypes
import operator
import sys
import weakref
from typing import Any

from . import _library

# Numbers of ncclDataType_t and bytes, by the names of NumPy and ml_dtypes.
TYPES = {
    "int8": (0, 1),
    "uint8": (1, 1),
    "int32": (2, 4),
    "uint32": (3, 4),
    "int64": (4, 8),
    "uint64": (5, 8),
    "float16": (6, 2),
    "float32": (7, 4),
    "float64": (8, 8),
    "bfloat16": (9, 2),
    "float8_e4m3fn": (10, 1),
    "float8_e5m2": (11, 1),
}


def describe(array: object) -> tuple[Any, int, int] | None:
    """For NumPy arrays of types without a format (ml_dtypes, dates): their bytes, number and size of the type. The
    number is -1 for types that can only be moved. None: no such array."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray):
        return None
    if not array.flags.c_contiguous:
        raise BufferError("the array is not contiguous in C order: pass numpy.ascontiguousarray(x)")
    number, _ = TYPES.get(array.dtype.name, (-1, 0)) if array.dtype.isnative else (-1, 0)
    size = array.dtype.itemsize
    return array.reshape(-1).view(f"V{size}" if number < 0 else "u1"), number, size


def alloc(size: int) -> memoryview:
    """Memory of `size` bytes that peers of the machine can map: operations on it copy once less. Zeroed. It is freed
    when nothing refers to it any more.

    >>> import tutti
    >>> memory = tutti.alloc(16)
    >>> memory.nbytes, bytes(memory[:2])
    (16, b'\\x00\\x00')
    """
    size = operator.index(size)
    if size <= 0:
        raise ValueError(f"alloc: {size} bytes: must be at least 1")
    kind = ctypes.c_ubyte * size  # raises where no address space is as large
    pointer = ctypes.c_void_p()
    _library.call("ncclMemAlloc", 0, "alloc", ctypes.byref(pointer), ctypes.c_size_t(size))
    address = pointer.value or 0
    block = kind.from_address(address)
    freed = weakref.finalize(block, _library.function("ncclMemFree"), ctypes.c_void_p(address))
    freed.atexit = False  # operations that were not waited for may still use it
    return memoryview(block).cast("B")


def view(address: int, size: int, held: Any) -> memoryview:
    """The bytes at an address. They keep `held`, and so their memory."""
    block = (ctypes.c_ubyte * size).from_address(address)
    block.__dict__["held"] = held
    return memoryview(block).cast("B")
