"""Operators of one communicator, beside `Op`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _arrays, _library

if TYPE_CHECKING:
    from ._communicator import Communicator

UserFunction = Callable[[Any, Any, str], object]
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_NAMES = {number: name for name, (number, _) in _arrays.TYPES.items()}
_FORMATS: dict[str, Any] = {
    "int8": "b",
    "uint8": "B",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}


class Operator(int):
    """The number of an operator that the library has made for one communicator."""

    _comm: Communicator

    def free(self) -> None:
        """Gives the operator back. It must not be used any more. Freed before, or its communicator is closed: nothing
        happens."""
        handle = self._comm._handle
        if handle and not getattr(self, "_freed", False):
            self._freed = True
            _library.call("ncclRedOpDestroy", handle, "free", int(self), ctypes.c_void_p(handle))

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()


class PremulSum(Operator):
    """Every rank's elements times its factor, summed; made by `Communicator.premul_sum`."""

    def __new__(cls, comm: Communicator, factor: float, dtype: str) -> PremulSum:
        if dtype not in _arrays.TYPES:
            raise ValueError(f"premul_sum: no type {dtype!r}: there are {', '.join(_arrays.TYPES)}")
        handle = comm._open("premul_sum")
        made, scalar = ctypes.c_int(), _scalar(factor, dtype)
        address = ctypes.byref(scalar)
        number = _arrays.TYPES[dtype][0]
        create = "ncclRedOpCreatePreMulSum"
        _library.call(create, handle, "premul_sum", ctypes.byref(made), address, number, 1, ctypes.c_void_p(handle))
        self = super().__new__(cls, made.value)
        self._comm = comm
        return self


class UserOp(Operator):
    """An operator of the program; made by `Communicator.user_op`."""

    _callback: Any  # the library calls it until the operator is freed
    _state: list[BaseException]

    def __new__(cls, comm: Communicator, function: UserFunction, commutes: bool) -> UserOp:
        if not callable(function):
            raise TypeError(f"user_op: {function!r} cannot be called")
        handle, made = comm._open("user_op"), ctypes.c_int()
        state: list[BaseException] = []
        callback = _CALLBACK(_guarded(function, state))
        create = "tuttiRedOpCreateUser"
        arguments = (ctypes.byref(made), callback, int(commutes), None, ctypes.c_void_p(handle))
        _library.call(create, handle, "user_op", *arguments)
        self = super().__new__(cls, made.value)
        self._comm, self._callback, self._state = comm, callback, state
        return self

    def free(self) -> None:
        """Gives the operator back, and raises the first exception of its function."""
        super().free()
        if self._state:
            raise self._state.pop()


def _guarded(function: UserFunction, failures: list[BaseException]) -> Callable[..., None]:
    """What the library calls. It cannot pass on exceptions: the first one is kept."""

    def call(incoming: int, inout: int, count: int, number: int, _argument: int | None) -> None:
        try:
            name = _NAMES[number]
            size = count * _arrays.TYPES[name][1]
            views = [memoryview((ctypes.c_ubyte * size).from_address(at)).cast("B") for at in (incoming, inout)]
            if name in _FORMATS:
                views = [view.cast(_FORMATS[name]) for view in views]
            function(views[0], views[1], name)
        except BaseException as failure:
            if not failures:
                failures.append(failure)

    return call


_SCALARS: dict[str, type[Any]] = {
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


def _scalar(value: float, dtype: str) -> Any:
    if dtype in _SCALARS:
        scalar = _SCALARS[dtype](value)
        if "int" in dtype and scalar.value != value:
            raise OverflowError(f"premul_sum: {value} is no {dtype}")
        return scalar
    import numpy  # the narrow types are NumPy's and ml_dtypes'

    if dtype != "float16":
        import ml_dtypes

        narrow = getattr(ml_dtypes, dtype)
    else:
        narrow = numpy.float16
    return ctypes.create_string_buffer(numpy.asarray(value, narrow).tobytes())
