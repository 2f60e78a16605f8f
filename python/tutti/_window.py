"""Windows: memory of one rank that others write into."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _arrays, _library

if TYPE_CHECKING:
    from ._communicator import Communicator


class Window:
    """A window of every rank of a communicator, made by `Communicator.window`.

    memory: this rank's own part, a memoryview of bytes: numpy.frombuffer(window.memory, dtype) is an array on it.
    """

    def __init__(self, comm: Communicator, memory: Any) -> None:
        self._comm = comm
        self.memory = memoryview(_arrays.alloc(memory) if isinstance(memory, int) else memory).cast("B")
        address, size, self._held = _arrays.address(self.memory)
        self._window = ctypes.c_void_p()
        handle = ctypes.c_void_p(comm._open("window"))
        where = (ctypes.c_void_p(address), ctypes.c_size_t(size))
        made = ctypes.byref(self._window)
        _library.call("ncclCommWindowRegister", comm._handle, "window", handle, *where, made, 0)

    def put(self, source: Any, peer: int, offset: int = 0, *, signal: int = 0, context: int = 0) -> None:
        """Copies `source`, an array inside of a window of this rank, to byte `offset` of the peer's window, and then
        counts up the peer's signal. Returns when `source` may be written again."""
        address, size, held = _arrays.address(source)
        handle = ctypes.c_void_p(self._comm._open("put"))
        what = (ctypes.c_void_p(address), ctypes.c_size_t(size), _arrays.TYPES["uint8"][0])
        where = (peer, self._window, ctypes.c_size_t(offset), signal, context, 0)
        stream = ctypes.c_void_p(self._comm._stream)
        _library.call("ncclPutSignal", self._comm._handle, "put", *what, *where, handle, stream)
        self._comm._queued("put", held, True)

    def signal(self, peer: int, *, signal: int = 0, context: int = 0) -> None:
        """Counts up the peer's signal, and writes nothing."""
        handle = ctypes.c_void_p(self._comm._open("signal"))
        stream = ctypes.c_void_p(self._comm._stream)
        _library.call("ncclSignal", self._comm._handle, "signal", peer, signal, context, 0, handle, stream)
        self._comm._queued("signal", None, True)

    def wait(self, peer: int, count: int = 1, *, signal: int = 0, context: int = 0) -> None:
        """Waits until the peer has counted up this rank's signal `count` times more, and takes these. What it has put
        before is in place then."""
        handle = ctypes.c_void_p(self._comm._open("wait"))
        wanted = _library.SignalWait(count, peer, signal, context)
        stream = ctypes.c_void_p(self._comm._stream)
        _library.call("ncclWaitSignal", self._comm._handle, "wait", 1, ctypes.byref(wanted), handle, stream)
        self._comm._queued("wait", None, True)

    def close(self) -> None:
        """Ends the window: no peer writes into it any more. Ended before, or its communicator is: nothing happens."""
        window, self._window = self._window, ctypes.c_void_p()
        handle = self._comm._handle
        if window.value and handle:
            _library.call("ncclCommWindowDeregister", handle, "close", ctypes.c_void_p(handle), window)

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
