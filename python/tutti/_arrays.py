"""Types of arrays that the buffer protocol cannot name, and memory that peers can map."""

from __future__ import annotations

import ctypes
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
    number, _ = TYPES.get(array.dtype.name, (-1, 0))
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
    if size <= 0:
        raise ValueError(f"alloc: {size} bytes: must be at least 1")
    pointer = ctypes.c_void_p()
    _library.call("ncclMemAlloc", 0, "alloc", ctypes.byref(pointer), ctypes.c_size_t(size))
    address = pointer.value or 0
    block = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(block, _library.function("ncclMemFree"), ctypes.c_void_p(address))
    return memoryview(block).cast("B")


def address(array: Any) -> tuple[int, int, Any]:
    """Address and bytes of a writable contiguous buffer, and what keeps it."""
    view = memoryview(array)
    if not view.c_contiguous:
        raise BufferError("the array is not contiguous in C order: pass a contiguous copy")
    if view.readonly:
        raise BufferError("the array is read-only, and peers write to a window")
    flat = view.cast("B")
    held = (ctypes.c_char * flat.nbytes).from_buffer(flat)
    return ctypes.addressof(held), flat.nbytes, held
