"""Communicators: a group of ranks that call the same operations in the same order."""

from __future__ import annotations

import ctypes
import enum
import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from . import _arrays, _fast, _launch, _library
from ._errors import TuttiUsageError
from ._operators import PremulSum, UserFunction, UserOp
from ._request import Request
from ._window import Window

_fast.setup(_arrays.describe, Request)

R = TypeVar("R")


class Op(enum.IntEnum):
    """What reductions do with the elements of the ranks. AVG of integers rounds towards zero. The bitwise operations
    are for integers. The logical ones are for all types: an element is true unless it is
    zero, and the result is 1 or 0."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    BIT_AND = 0x74747400
    BIT_OR = 0x74747401
    BIT_XOR = 0x74747402
    LOGICAL_AND = 0x74747403
    LOGICAL_OR = 0x74747404
    LOGICAL_XOR = 0x74747405


class _Function(enum.IntEnum):
    """fast_function of csrc/fast.h."""

    ALL_REDUCE = 0
    REDUCE = 1
    BROADCAST = 2
    ALL_GATHER = 3
    REDUCE_SCATTER = 4
    GATHER = 5
    SCATTER = 6
    ALL_TO_ALL = 7
    SEND = 8
    RECV = 9


# As plain integers: members of an enumeration cost a look-up in each call.
_ALL_REDUCE, _REDUCE, _BROADCAST, _ALL_GATHER, _REDUCE_SCATTER = range(5)
_GATHER, _SCATTER, _ALL_TO_ALL, _SEND, _RECV = range(5, 10)
_SUM, _MAX = int(Op.SUM), int(Op.MAX)
_INTERNAL_ERROR, _INVALID_USAGE = 3, 5


class Operations(Generic[R]):
    """The operations of a communicator: ``Communicator`` has them waiting, ``Communicator.start`` as requests.

    An array is an object with the buffer protocol (numpy.ndarray, bytearray, array.array, memoryview), with
    ``__dlpack__`` (tensors of PyTorch and others, in host memory), or a NumPy array of a type of ml_dtypes. It must be
    contiguous in C order, and writable where the operation writes. Any shape: n elements count. The elements of both
    arrays have one type. Operations that reduce take the integers of 1, 4 and 8 bytes, float16, bfloat16, float32,
    float64, float8_e4m3fn, float8_e5m2, and complex for sums; the others move any type.

    All ranks call the same operation with the same counts, types, operator and root.
    """

    def _run(self, function: int, send: Any, recv: Any, op: int, root: int) -> R:
        raise NotImplementedError

    def _run_v(self, function: int, send: Any, recv: Any, op: int, root: int, *counts: Sequence[int] | None) -> R:
        raise NotImplementedError

    def all_reduce(self, send: Any, recv: Any = None, op: int = _SUM) -> R:
        """Reduces elementwise over all ranks; every rank gets the result. send: n elements. recv: n; None: in place.

        >>> import tutti, array
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.all_reduce(array.array("d", [1, 2]))
        array('d', [1.0, 2.0])
        >>> comm.close()
        """
        return self._run(_ALL_REDUCE, send, recv, op, 0)

    def reduce(self, send: Any, recv: Any = None, op: int = _SUM, root: int = 0) -> R:
        """Reduces to the root. send: n elements. recv: n at the root, None: in place; not looked at elsewhere.

        >>> import tutti, array
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.reduce(array.array("i", [4]), array.array("i", [0]), tutti.Op.MAX)
        array('i', [4])
        >>> comm.close()
        """
        return self._run(_REDUCE, send, recv, op, root)

    def broadcast(self, array: Any, root: int = 0) -> R:
        """Copies the root's n elements into the arrays of all.

        >>> import tutti
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.broadcast(b"from the root")
        b'from the root'
        >>> comm.close()
        """
        return self._run(_BROADCAST, array, None, _SUM, root)

    def all_gather(self, send: Any, recv: Any) -> R:
        """Collects the arrays of all ranks, in the order of ranks. send: n elements; None: this rank's block is in
        its place in recv. recv: size x n elements.

        >>> import tutti
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.all_gather(b"ab", bytearray(2))
        bytearray(b'ab')
        >>> comm.close()
        """
        return self._run(_ALL_GATHER, send, recv, _SUM, 0)

    def reduce_scatter(self, send: Any, recv: Any = None, op: int = _SUM) -> R:
        """Reduces over all ranks; each gets its block. send: size x n elements. recv: n; None: into this rank's block
        of send.

        >>> import tutti, array
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.reduce_scatter(array.array("f", [1, 2]), array.array("f", [0, 0]))
        array('f', [1.0, 2.0])
        >>> comm.close()
        """
        return self._run(_REDUCE_SCATTER, send, recv, op, 0)

    def gather(self, send: Any, recv: Any = None, root: int = 0) -> R:
        """Collects the arrays of all ranks at the root. send: n elements; None at the root: its block is in recv.
        recv: size x n elements at the root; not looked at elsewhere.

        >>> import tutti
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.gather(b"ab", bytearray(2))
        bytearray(b'ab')
        >>> comm.close()
        """
        return self._run(_GATHER, send, recv, _SUM, root)

    def scatter(self, send: Any, recv: Any = None, root: int = 0) -> R:
        """Distributes the root's blocks. send: size x n elements at the root; not looked at elsewhere. recv: n
        elements; None at the root: its block stays in its place in send.

        >>> import tutti
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.scatter(b"ab", bytearray(2))
        bytearray(b'ab')
        >>> comm.close()
        """
        return self._run(_SCATTER, send, recv, _SUM, root)

    def all_to_all(self, send: Any, recv: Any = None) -> R:
        """Block j of rank i becomes block i of rank j. send and recv: size x n elements. recv None: in place.

        >>> import tutti
        >>> comm, = tutti.Communicator.threads(1)
        >>> comm.all_to_all(b"ab", bytearray(2))
        bytearray(b'ab')
        >>> comm.close()
        """
        return self._run(_ALL_TO_ALL, send, recv, _SUM, 0)

    def send(self, array: Any, peer: int) -> R:
        """Sends n elements to a rank, which receives as many. Ranks that send to each other do so in a group.

        >>> import tutti
        >>> comm, = tutti.Communicator.threads(1)
        >>> got = bytearray(2)
        >>> with tutti.group():
        ...     _ = comm.send(b"ab", peer=0)
        ...     _ = comm.recv(got, peer=0)
        >>> got
        bytearray(b'ab')
        >>> comm.close()
        """
        return self._run(_SEND, array, None, _SUM, peer)

    def recv(self, array: Any, peer: int) -> R:
        """Receives n elements from a rank into the array.

        >>> import tutti
        >>> comm, = tutti.Communicator.threads(1)
        >>> with tutti.group():
        ...     _ = comm.send(b"ab", 0), comm.recv(bytearray(2), 0)
        >>> comm.close()
        """
        return self._run(_RECV, None, array, _SUM, peer)

    def all_gather_v(self, send: Any, recv: Any, counts: Sequence[int], displs: Sequence[int] | None = None) -> R:
        """As all_gather, with blocks of different sizes. send: counts[rank] elements. recv: block i, of counts[i]
        elements, begins at element displs[i]; None: one behind the other."""
        return self._run_v(_ALL_GATHER, send, recv, _SUM, 0, None, None, counts, displs)

    def reduce_scatter_v(self, send: Any, recv: Any, counts: Sequence[int], op: int = _SUM) -> R:
        """As reduce_scatter, with blocks of different sizes. send: sum(counts) elements, recv: counts[rank]."""
        return self._run_v(_REDUCE_SCATTER, send, recv, op, 0, None, None, counts, None)

    def gather_v(
        self,
        send: Any,
        recv: Any = None,
        counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None,
        root: int = 0,
    ) -> R:
        """As gather, with blocks of different sizes. recv, counts, displs: at the root, as all_gather_v."""
        return self._run_v(_GATHER, send, recv, _SUM, root, None, None, counts, displs)

    def scatter_v(
        self,
        send: Any,
        counts: Sequence[int] | None,
        recv: Any,
        displs: Sequence[int] | None = None,
        root: int = 0,
    ) -> R:
        """As scatter, with blocks of different sizes. send, counts, displs: at the root; block i, of counts[i]
        elements, begins at element displs[i]. recv: counts[rank] elements."""
        return self._run_v(_SCATTER, send, recv, _SUM, root, counts, displs, None, None)

    def all_to_all_v(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        send_displs: Sequence[int] | None = None,
        recv_displs: Sequence[int] | None = None,
    ) -> R:
        """As all_to_all, with blocks of different sizes: send_counts[j] elements go to rank j, recv_counts[i] come
        from rank i. Blocks begin at the elements displs; None: one behind the other."""
        counts = (send_counts, send_displs, recv_counts, recv_displs)
        return self._run_v(_ALL_TO_ALL, send, recv, _SUM, 0, *counts)


class Started(Operations[Request]):
    """The operations of a communicator, started and not waited for: each returns a Request."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def _run(self, function: int, send: Any, recv: Any, op: int, root: int) -> Request:
        request: Request = self._comm._call(function, send, recv, op, root, False)
        return request

    def _run_v(self, function: int, send: Any, recv: Any, op: int, root: int, *counts: Sequence[int] | None) -> Request:
        send_counts, send_displs, recv_counts, recv_displs = counts
        request: Request = self._comm._call_v(
            function, send, recv, op, root, False, send_counts, send_displs, recv_counts, recv_displs
        )
        return request


class Communicator(_fast.Comm, Operations[Any]):
    """A group of ranks, and this rank's place in it. Make one with `from_env`, `from_id` or `threads`.

    Its operations return the array that holds the result. They run in the order of their calls. Use a communicator
    from one thread at a time; `abort` may come from any thread. As a context manager it closes itself, and aborts
    where the block raises.

    >>> import tutti
    >>> with tutti.Communicator.from_id(tutti.unique_id(), rank=0, size=1) as comm:
    ...     comm.rank, comm.size
    (0, 1)
    """

    _owner = True
    _revoked = False

    def __init__(self, handle: int) -> None:
        rank, size = ctypes.c_int(), ctypes.c_int()
        pointer = ctypes.c_void_p(handle)
        _library.call("ncclCommUserRank", handle, "communicator", pointer, ctypes.byref(rank))
        _library.call("ncclCommCount", handle, "communicator", pointer, ctypes.byref(size))
        self._bind(handle, _library.new_stream(_library.device_of(handle)), rank.value, size.value)
        self._timeout = -1.0
        self._windows: dict[int, Any] = {}  # their memory, until they are closed: peers write into it

    # ---- Creation ----

    @classmethod
    def from_id(
        cls, id: bytes, rank: int, size: int, *, timeout: float | None = None, **config: int | str | None
    ) -> Communicator:
        """Rank `rank` of a new communicator of `size` ranks, which all have the id that one of them has made with
        `tutti.unique_id`. timeout: seconds until all have come. config: fields of ncclConfig_t, such as commName.

        >>> import tutti
        >>> tutti.Communicator.from_id(tutti.unique_id(), 0, 1, commName="example").close()
        """
        options = _library.make_config(config)
        by_value = _library.read_id(id, "from_id: pass what unique_id() has returned")
        rank, size = _library.as_int(rank, "from_id: rank"), _library.as_int(size, "from_id: size")
        begin = _library.function("ncclCommInitRankConfig")
        return cls(
            _library.create(
                lambda made: int(begin(made, size, by_value, rank, ctypes.byref(options))), 0, "from_id", timeout
            )
        )

    @classmethod
    def from_env(cls, *, timeout: float | None = 300.0, **config: int | str | None) -> Communicator:
        """The communicator of all processes that a launcher has started: torchrun, mpirun (Open MPI, MPICH, Intel
        MPI), srun, or variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand. Without any: one rank.

        >>> import tutti
        >>> tutti.Communicator.from_env().close()
        """
        job = _launch.find_job()
        return cls.from_id(_launch.exchange_id(job, timeout), job.rank, job.size, timeout=timeout, **config)

    @classmethod
    def threads(cls, size: int) -> list[Communicator]:
        """The `size` ranks of a communicator in this process, one for each thread that will use them. One thread can
        use them all inside of `tutti.group()`.

        >>> import tutti, array
        >>> comms = tutti.Communicator.threads(2)
        >>> x = [array.array("i", [1]), array.array("i", [2])]
        >>> with tutti.group():
        ...     _ = [comm.all_reduce(part) for comm, part in zip(comms, x)]
        >>> x[0][0], x[1][0]
        (3, 3)
        >>> for comm in comms: comm.close()
        """
        if _library.as_int(size, "threads: size") < 1:
            raise ValueError(f"threads: {size} ranks: must be at least 1")
        handles = (ctypes.c_void_p * size)()
        _library.call("ncclCommInitAll", 0, "threads", handles, size, None)
        return [cls(handle or 0) for handle in handles]

    @classmethod
    def join(
        cls, id: bytes, rank: int, size: int, *, timeout: float | None = None, **config: int | str | None
    ) -> Communicator:
        """A new rank of a communicator that grows to `size` ranks: the other side of `grow`, with its `grow_id`."""
        by_value = _library.read_id(id, "join: pass what grow_id() has returned")
        rank, size = _library.as_int(rank, "join: rank"), _library.as_int(size, "join: size")
        options = _library.make_config(config)
        begin = _library.function("ncclCommGrow")
        return cls(
            _library.create(
                lambda made: int(begin(None, size, ctypes.byref(by_value), rank, made, ctypes.byref(options))),
                0,
                "join",
                timeout,
            )
        )

    def _child(self, what: str, timeout: float | None, name: str, *args: Any) -> Communicator | None:
        # The library's function of that name; the place of the new handle in its arguments is marked by Ellipsis.
        begin = _library.function(name)

        def start(made: Any) -> int:
            return int(begin(ctypes.c_void_p(self._open(what)), *(made if a is ... else a for a in args)))

        handle = _library.create(start, self._open(what), what, timeout)
        return type(self)(handle) if handle else None

    def split(
        self, color: int | None, key: int = 0, *, timeout: float | None = None, **config: int | str | None
    ) -> Communicator | None:
        """A communicator of the ranks that pass the same color, in the order of (key, rank). color None: in none.

        >>> import tutti
        >>> with tutti.Communicator.from_env() as comm:
        ...     half = comm.split(color=comm.rank % 2)
        ...     half.close()
        """
        options = _library.make_config(config)
        chosen = -1 if color is None else _library.as_int(color, "split: color")
        key = _library.as_int(key, "split: key")
        if color is not None and chosen < 0:
            raise ValueError(f"split: color {color}: must be 0 or more; None: this rank is in no part")
        return self._child("split", timeout, "ncclCommSplit", chosen, key, ..., ctypes.byref(options))

    def shrink(
        self,
        exclude: Iterable[int],
        *,
        after_failure: bool = False,
        timeout: float | None = None,
        **config: int | str | None,
    ) -> Communicator:
        """A communicator without the ranks `exclude`; only the others call it. after_failure: the excluded ranks have
        died, or operations hang: they are ended first."""
        ranks = [_library.as_int(rank, "shrink: rank") for rank in exclude]
        options = _library.make_config(config)
        listed = (ctypes.c_int * max(1, len(ranks)))(*ranks)
        arguments = (listed, len(ranks), ..., ctypes.byref(options), int(after_failure))
        child = self._child("shrink", timeout, "ncclCommShrink", *arguments)
        assert child is not None
        return child

    def grow_id(self) -> bytes:
        """The id for one growth: one old rank makes it, and brings it to the new ranks, which `join` with it."""
        made = _library.UniqueIdBytes()
        handle = self._open("grow_id")
        _library.call("ncclCommGetUniqueId", handle, "grow_id", ctypes.c_void_p(handle), ctypes.byref(made))
        return bytes(made)

    def grow(self, size: int, *, timeout: float | None = None, **config: int | str | None) -> Communicator:
        """A communicator of `size` ranks: the old ones, which all call this, and new ones, which `join`."""
        options = _library.make_config(config)
        size = _library.as_int(size, "grow: size")
        child = self._child("grow", timeout, "ncclCommGrow", size, None, -1, ..., ctypes.byref(options))
        assert child is not None
        return child

    # ---- Properties ----

    @property
    def rank(self) -> int:
        """This rank, 0 to size - 1."""
        return self._rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._size

    @property
    def timeout(self) -> float | None:
        """Seconds after which an operation that is waited for raises TuttiTimeout; None: never. Only this rank's
        patience: the operation goes on."""
        return None if self._timeout < 0 else self._timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._timeout = -1.0 if seconds is None else max(0.0, seconds)

    @property
    def start(self) -> Started:
        """The same operations, not waited for: each returns a Request. They run one after the other, in the order of
        their calls; use `tutti.group()` for those that must run together."""
        return Started(self)

    @property
    def closed(self) -> bool:
        """Was it closed or aborted?"""
        return not self._handle

    def _open(self, what: str) -> int:
        if not self._handle:
            raise RuntimeError(f"{what}: the communicator is closed")
        return self._handle

    # ---- Operations ----

    def _run(self, function: int, send: Any, recv: Any, op: int, root: int) -> Any:
        return self._call(function, send, recv, op, root, True)

    def _run_v(self, function: int, send: Any, recv: Any, op: int, root: int, *counts: Sequence[int] | None) -> Any:
        send_counts, send_displs, recv_counts, recv_displs = counts
        return self._call_v(function, send, recv, op, root, True, send_counts, send_displs, recv_counts, recv_displs)

    def barrier(self) -> None:
        """Returns when all ranks have called it.

        >>> import tutti
        >>> with tutti.Communicator.from_env() as comm:
        ...     comm.barrier()
        """
        self._call(_ALL_REDUCE, bytearray(1), None, _MAX, 0, True)

    def premul_sum(self, factor: float, dtype: str = "float32") -> PremulSum:
        """An operator: every rank's elements times its `factor`, summed. dtype: the arrays' type, by NumPy's name.

        >>> import tutti, array
        >>> with tutti.Communicator.from_env() as comm, comm.premul_sum(0.5) as half:
        ...     comm.all_reduce(array.array("f", [3]), op=half)
        array('f', [1.5])
        """
        return PremulSum(self, factor, dtype)

    def user_op(self, function: UserFunction, *, commutes: bool = False) -> UserOp:
        """An operator of the program: function(incoming, inout, dtype) sets each element of `inout` to
        incoming (op) inout. Both are memoryviews of as many elements; dtype is NumPy's name of their type (bytes where
        Python has no format: bfloat16, fp8). The operation is associative. commutes: the order of ranks does not
        matter. All ranks make it; not every rank need call it, because one may combine for others. An exception in
        `function` is raised by `UserOp.free` on the rank that called it, and ends nothing.
        """
        return UserOp(self, function, commutes)

    def window(self, memory: Any) -> Window:
        """Memory of this rank that other ranks write into: a writable contiguous array, of any kind that operations
        take, or a number of bytes for new memory that peers can map. All ranks make their windows in the same order.

        >>> import tutti
        >>> with tutti.Communicator.from_env() as comm, comm.window(64) as window:
        ...     window.memory[:2] = b"ab"
        ...     window.put(window.memory[:2], peer=0, offset=32)
        ...     window.wait(peer=0)
        ...     bytes(window.memory[32:34])
        b'ab'
        """
        return Window(self, memory)

    # ---- End ----

    def close(self) -> None:
        """Waits for what this rank has started, and frees the communicator. Requests keep their results. Closed
        before: nothing happens."""
        if self._handle:
            try:
                self._queued("close", None, True)
            except TuttiUsageError as error:
                if not self._revoked or "was revoked" not in error.text:  # that `revoke` has ended it is no failure
                    raise
            handle = self._release()
            _library.call("ncclCommDestroy", handle, "close", ctypes.c_void_p(handle))
            self._windows.clear()

    def abort(self) -> None:
        """Ends all operations at once, also those that other threads wait for, and frees the communicator. Requests
        that were under way raise TuttiError; the other ranks get TuttiRemoteError."""
        if self._handle:
            self._ends(_INTERNAL_ERROR, "the communicator was aborted while the operation was under way")
            _library.abort(self._release())
            self._windows.clear()

    def revoke(self) -> None:
        """Ends all operations of this rank: requests that were under way raise TuttiUsageError. The communicator can
        be split, shrunk and closed afterwards."""
        handle = self._open("revoke")
        marked = self._ends(_INVALID_USAGE, "the communicator was revoked while the operation was under way")
        try:
            _library.call("ncclCommRevoke", handle, "revoke", ctypes.c_void_p(handle), 0)
        except BaseException:
            if marked:  # nothing was ended
                self._ends(0, "")
            raise
        self._revoked = True

    def check(self) -> None:
        """Raises the communicator's error, if another rank or the network has failed; waits for nothing."""
        state = ctypes.c_int()
        handle = self._open("check")
        _library.call("ncclCommGetAsyncError", handle, "check", ctypes.c_void_p(handle), ctypes.byref(state))
        _library.check(state.value, handle, "check")

    def diagnose(self) -> Any:
        """What the ranks of this machine do just now, and which one is waited for, as tuttiCommDiagnose has it.

        >>> import tutti
        >>> with tutti.Communicator.from_env() as comm:
        ...     comm.diagnose()["nranks"]
        1
        """
        return self._json("tuttiCommDiagnose", "diagnose")

    def flight_recorder(self) -> Any:
        """The last operations of this rank's communicators, as tuttiCommFlightRecorder has them."""
        return self._json("tuttiCommFlightRecorder", "flight_recorder")

    def _json(self, name: str, what: str) -> Any:
        text = ctypes.c_void_p()
        handle = self._open(what)
        _library.call(name, handle, what, ctypes.c_void_p(handle), ctypes.byref(text))
        try:
            return json.loads(ctypes.string_at(text.value or 0))
        finally:
            free = ctypes.CDLL(None).free
            free.argtypes = [ctypes.c_void_p]
            free(text)

    def _release(self) -> int:
        # The stream stays until the object goes: another thread may still be waiting for it.
        handle = self._handle
        self._bind(0, self._stream, self._rank, self._size)
        return handle

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        try:
            if self._handle:
                warnings.warn(f"{self!r} was not closed: it is aborted", ResourceWarning, source=self, stacklevel=2)
        finally:  # also where warnings are errors
            self.abort()
            if self._stream:
                _library.destroy_stream(self._stream)

    def __repr__(self) -> str:
        return f"<tutti.Communicator rank {self._rank} of {self._size}{'' if self._handle else ', closed'}>"


class group:
    """Operations inside of the block run together when it ends. Blocking ones return at once, and are complete behind
    the block; those of `comm.start` are waited for by their requests, behind it.

    >>> import tutti
    >>> comm, = tutti.Communicator.threads(1)
    >>> inbox = bytearray(3)
    >>> with tutti.group():
    ...     _ = comm.recv(inbox, peer=0)
    ...     _ = comm.send(b"abc", peer=0)
    >>> inbox
    bytearray(b'abc')
    >>> comm.close()
    """

    def __init__(self, timeout: float | None = None) -> None:
        self._timeout = timeout

    def __enter__(self) -> group:
        _fast.group_start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            requests = _fast.group_end()
        except Exception:
            if kind is None:
                raise
            return  # the block's own exception says more
        if kind is None:
            for request in requests:
                request.wait(self._timeout)
