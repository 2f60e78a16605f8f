"""Windows: memory of one rank that others write into."""

from __future__ import annotations

import ctypes
import operator
import sys
from numbers import Integral
from typing import TYPE_CHECKING, Any

from . import _arrays, _fast, _library

if TYPE_CHECKING:
    from ._communicator import Communicator


def _numbers(what: str, **values: int) -> list[int]:
    return [_library.as_int(value, f"{what}: {name}") for name, value in values.items()]


class Window:
    """A window of every rank of a communicator, made by `Communicator.window`.

    memory: this rank's own part, a memoryview of bytes, whatever array it was made of. numpy.frombuffer(window.memory,
    dtype) is an array on it.
    """

    def __init__(self, comm: Communicator, memory: Any) -> None:
        self._comm = comm
        memory = _arrays.alloc(int(memory)) if isinstance(memory, Integral) else memory
        address, size, held = _fast.memory(memory, "window", True)
        self.memory = _arrays.view(address, size, held)
        self._window = ctypes.c_void_p()
        handle = ctypes.c_void_p(comm._open("window"))
        where = (ctypes.c_void_p(address), ctypes.c_size_t(size))
        made = ctypes.byref(self._window)
        _library.call("ncclCommWindowRegister", comm._handle, "window", handle, *where, made, 0)
        comm._windows[self._window.value or 0] = held

    def put(self, source: Any, peer: int, offset: int = 0, *, signal: int = 0, context: int = 0) -> None:
        """Copies `source`, an array inside of a window of this rank, to byte `offset` of the peer's window, and then
        counts up the peer's signal. Returns when `source` may be written again."""
        address, size, held = _fast.memory(source, "put", False)
        handle = ctypes.c_void_p(self._comm._open("put"))
        what = (ctypes.c_void_p(address), ctypes.c_size_t(size), _arrays.TYPES["uint8"][0])
        if not self._window.value:
            raise RuntimeError("put: the window is closed")
        offset = operator.index(offset)
        if not 0 <= offset <= sys.maxsize:
            raise ValueError(f"put: offset {offset}: must be 0 or more, and inside of the peer's window")
        peer, signal, context = _numbers("put", peer=peer, signal=signal, context=context)
        where = (peer, self._window, ctypes.c_size_t(offset), signal, context, 0)
        stream = ctypes.c_void_p(self._comm._stream)
        _library.call("ncclPutSignal", self._comm._handle, "put", *what, *where, handle, stream)
        self._comm._queued("put", held, True)

    def signal(self, peer: int, *, signal: int = 0, context: int = 0) -> None:
        """Counts up the peer's signal, and writes nothing."""
        handle = ctypes.c_void_p(self._comm._open("signal"))
        peer, signal, context = _numbers("signal", peer=peer, signal=signal, context=context)
        stream = ctypes.c_void_p(self._comm._stream)
        _library.call("ncclSignal", self._comm._handle, "signal", peer, signal, context, 0, handle, stream)
        self._comm._queued("signal", None, True)

    def wait(self, peer: int, count: int = 1, *, signal: int = 0, context: int = 0) -> None:
        """Waits until the peer has counted up this rank's signal `count` times more, and takes these. What it has put
        before is in place then."""
        handle = ctypes.c_void_p(self._comm._open("wait"))
        wanted = _library.SignalWait(*_numbers("wait", count=count, peer=peer, signal=signal, context=context))
        stream = ctypes.c_void_p(self._comm._stream)
        _library.call("ncclWaitSignal", self._comm._handle, "wait", 1, ctypes.byref(wanted), handle, stream)
        self._comm._queued("wait", None, True)

    def close(self) -> None:
        """Ends the window: no peer writes into it any more. Ended before, or its communicator is: nothing happens."""
        window, self._window = self._window, ctypes.c_void_p()
        handle = self._comm._handle
        if window.value and handle:
            _library.call("ncclCommWindowDeregister", handle, "close", ctypes.c_void_p(handle), window)
            del self._comm._windows[window.value]

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
