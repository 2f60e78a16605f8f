"""Finds and loads the library, and calls what is called rarely: creation, windows, operators. Calls of arrays go
through the extension ``_fast``."""

from __future__ import annotations

import ctypes
import operator
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

from ._errors import IN_PROGRESS, SUCCESS, error

try:
    from . import _fast
except ImportError as reason:
    raise ImportError(
        f"tutti: {pathlib.Path(__file__).parent} has no compiled extension for this Python ({reason}). Install the "
        "wheel of tutti (pip install python/ in a checkout), or make the package in a build tree with python/develop"
    ) from None

_UNSET_INT = -(2**31)
_MAGIC = 0xCAFEBEEF
_STREAM_NON_BLOCKING = 1


class UniqueIdBytes(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = [("internal", ctypes.c_char * 128)]


_CONFIG_INTS = (
    "blocking cgaClusterSize minCTAs maxCTAs netName splitShare trafficClass commName collnetEnable CTAPolicy "
    "shrinkShare nvlsCTAs nChannelsPerNetPeer nvlinkCentricSched graphUsageMode numRmaCtx maxP2pPeers "
    "graphStreamOrdering launchOrderImplicit numRmaSig rmaEagerInit hostCftMode nvlsHostMode"
).split()
_CONFIG_TEXTS = ("netName", "commName")


class Config(ctypes.Structure):
    """ncclConfig_t of version 2.32.3."""

    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint)] + [
        (name, ctypes.c_char_p if name in _CONFIG_TEXTS else ctypes.c_int) for name in _CONFIG_INTS
    ]


class SignalWait(ctypes.Structure):
    """ncclWaitSignalDesc_t."""

    _fields_ = [("count", ctypes.c_int), ("peer", ctypes.c_int), ("signal", ctypes.c_int), ("context", ctypes.c_int)]


def as_int(value: int, what: str) -> int:
    """A number for an `int` of the library: ctypes would cut off what is larger."""
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"{what} {number} is no number of 32 bits")
    return number


def _option(name: str, value: int | str) -> int | bytes:
    if name not in _CONFIG_TEXTS:
        return as_int(value, name)  # type: ignore[arg-type]
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}: must be a text")
    return value.encode()


def read_id(id: bytes, what: str) -> UniqueIdBytes:
    """An id of the program, for a call. what: begins and ends the error's text where it is none."""
    if len(id) != ctypes.sizeof(UniqueIdBytes):
        call, advice = what.split(": ")
        raise ValueError(f"{call}: an id has 128 bytes, this one {len(id)}: {advice}")
    return UniqueIdBytes.from_buffer_copy(id)


def make_config(options: dict[str, int | str | None]) -> Config:
    """The configuration of a communicator: what is None or not named is the library's choice."""
    config = Config(size=ctypes.sizeof(Config), magic=_MAGIC, version=23203)
    for name in _CONFIG_INTS:
        if name not in _CONFIG_TEXTS:
            setattr(config, name, _UNSET_INT)
    for name, value in options.items():
        if name not in _CONFIG_INTS or name == "blocking":
            raise TypeError(f"no option {name!r} of communicators: there are {', '.join(_CONFIG_INTS[1:])}")
        if value is not None:
            setattr(config, name, _option(name, value))
    config.blocking = 0  # creation is polled, so that Ctrl-C and time limits end it
    return config


def find_library() -> str:
    """Path of libnccl.so.2: TUTTI_LIBRARY, or the one in the package."""
    named = os.environ.get("TUTTI_LIBRARY")
    path = named or str(pathlib.Path(__file__).parent / "libnccl.so.2")
    if not os.path.exists(path):
        hint = "TUTTI_LIBRARY names no file" if named else "the package has no library"
        raise ImportError(f"tutti: {path}: {hint}. Install the wheel of tutti, or set TUTTI_LIBRARY to a libnccl.so.2")
    return path


_PATH = find_library()


def _raise_failure(code: int, handle: int, what: str, rank: int | None = None, text: str = "") -> None:
    """Called by the extension when a call has failed. text: known already."""
    raise error(code, rank, text, what) if text else failure(code, handle, what)


_fast.load(_PATH, _raise_failure)
_lib = ctypes.CDLL(_PATH)
_lib.tuttiGetDevice(ctypes.byref(ctypes.c_int()))  # arrays are host memory, also on a machine with GPUs
_lib.ncclGetLastError.restype = ctypes.c_char_p
_lib.ncclGetErrorString.restype = ctypes.c_char_p


def function(name: str) -> Any:
    """A function of the library. Missing: NotImplementedError."""
    try:
        return getattr(_lib, name)
    except AttributeError:
        raise NotImplementedError(f"the loaded library, {_PATH}, has no {name}") from None


def rank_of(handle: int) -> int | None:
    """Rank of a communicator; None: it is gone."""
    rank = ctypes.c_int()
    if not handle or _lib.ncclCommUserRank(ctypes.c_void_p(handle), ctypes.byref(rank)) != SUCCESS:
        return None
    return rank.value


def failure(code: int, handle: int, what: str) -> Exception:
    """The exception for a failed call, with the library's text."""
    text = (_lib.ncclGetLastError(None) or b"").decode(errors="replace")
    rank = rank_of(handle)
    if rank is not None:
        text = (_lib.ncclGetLastError(ctypes.c_void_p(handle)) or b"").decode(errors="replace") or text
    general: str = _lib.ncclGetErrorString(code).decode()
    if code == 8:
        text = "time is over and the operation is not complete: another rank has not come yet, or data is still moving"
    return error(code, rank, text or general, what)


def check(code: int, handle: int, what: str) -> None:
    """Raises the exception for a result, if it is an error."""
    if code not in (SUCCESS, IN_PROGRESS):
        raise failure(code, handle, what)


def call(name: str, handle: int, what: str, *args: Any) -> None:
    """Calls a function of the library and raises its error."""
    check(function(name)(*args), handle, what)


def unique_id() -> bytes:
    """A new id: 128 bytes."""
    made = UniqueIdBytes()
    call("ncclGetUniqueId", 0, "unique_id", ctypes.byref(made))
    return bytes(made)


def version() -> tuple[int, int, int]:
    """Version of NCCL's interface that the loaded library has."""
    number = ctypes.c_int()
    call("ncclGetVersion", 0, "version", ctypes.byref(number))
    return number.value // 10000, number.value // 100 % 100, number.value % 100


def abort(handle: int) -> None:
    """Ends all operations of a communicator and frees it."""
    _lib.ncclCommAbort(ctypes.c_void_p(handle))


def _poll_creation(handle: int, what: str, timeout: float | None) -> None:
    end = None if timeout is None else time.monotonic() + timeout
    state, pause = ctypes.c_int(IN_PROGRESS), 20e-6
    while True:
        call("ncclCommGetAsyncError", handle, what, ctypes.c_void_p(handle), ctypes.byref(state))
        if state.value != IN_PROGRESS:
            break
        if end is not None and time.monotonic() >= end:
            raise error(8, None, f"not all ranks have come within {timeout} s", what)
        time.sleep(pause)
        pause = min(2 * pause, 5e-3)
    check(state.value, handle, what)


def create(begin: Callable[[Any], int], parent: int, what: str, timeout: float | None) -> int:
    """Makes a communicator without blocking, and waits until it is ready. begin(pointer to the handle) starts it.
    Interrupted, or too late: it is aborted. Returns the handle, 0 where the rank belongs to none."""
    made = ctypes.c_void_p()
    check(begin(ctypes.byref(made)), parent, what)
    handle = made.value or 0
    try:
        _poll_creation(handle or parent, what, timeout)
    except BaseException:
        if handle:
            abort(handle)
        raise
    return handle


def device_of(handle: int) -> int:
    """Device of a communicator."""
    device = ctypes.c_int()
    call("ncclCommCuDevice", handle, "device", ctypes.c_void_p(handle), ctypes.byref(device))
    return device.value


def new_stream(device: int) -> int:
    """A stream of its own on a device."""
    before, stream = ctypes.c_int(), ctypes.c_void_p()
    call("tuttiGetDevice", 0, "stream", ctypes.byref(before))
    call("tuttiSetDevice", 0, "stream", device)
    try:
        call("tuttiStreamCreate", 0, "stream", ctypes.byref(stream), _STREAM_NON_BLOCKING)
    finally:
        _lib.tuttiSetDevice(before)
    return stream.value or 0


def destroy_stream(stream: int) -> None:
    """Gives a stream back; what is queued to it runs."""
    _lib.tuttiStreamDestroy(ctypes.c_void_p(stream))
