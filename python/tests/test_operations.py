"""Every operation, type and form, against values computed here."""

from __future__ import annotations

import array
import gc
import operator
import weakref
from functools import reduce
from typing import Any

import numpy as np
import pytest
from ranks import on_processes, on_threads

import tutti

N = 3
NUMBERS = ["i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]  # of ml_dtypes
MOVED = ["i2", "?", "c8", "c16", "M8[s]", "S5", "f8,i4"]
FOLD: dict[tutti.Op, Any] = {
    tutti.Op.SUM: operator.add,
    tutti.Op.PROD: operator.mul,
    tutti.Op.MAX: np.maximum,
    tutti.Op.MIN: np.minimum,
}


def type_of(name: str) -> Any:
    """Give the type; skips the test where that is one of ml_dtypes, and this is not installed."""
    return getattr(pytest.importorskip("ml_dtypes"), name) if name in NARROW else name


def values(rank: int, dtype: Any, count: int = 5) -> Any:
    """Small whole numbers: exact in every type."""
    return (np.arange(count) % 3 + rank % 2 + 1).astype(dtype)


@pytest.mark.parametrize("dtype", [*NUMBERS, *NARROW])
@pytest.mark.parametrize("op", list(FOLD))
def test_all_reduce(dtype: Any, op: tutti.Op) -> None:
    dtype = type_of(dtype)

    def work(comm: tutti.Communicator) -> Any:
        send, recv = values(comm.rank, dtype), np.zeros(5, dtype)
        assert comm.all_reduce(send, recv, op) is recv
        assert (send == values(comm.rank, dtype)).all()
        assert comm.all_reduce(send, op=op) is send
        assert (send == recv).all()
        return recv

    expected = reduce(FOLD[op], [values(rank, dtype) for rank in range(N)])
    for got in on_threads(N, work):
        assert got.dtype == expected.dtype
        assert (got == expected).all()


def test_bitwise_and_logical() -> None:
    bits = [0b0111, 0b0110, 0b1100]
    truth = [[True, False, True], [True, False, True], [True, False, False]]
    Op = tutti.Op

    def work(comm: tutti.Communicator) -> Any:
        def bitwise(op: tutti.Op) -> int:
            return int(comm.all_reduce(np.array([bits[comm.rank]], "i4"), op=op)[0])

        def logical(op: tutti.Op) -> Any:
            return comm.all_reduce(np.array(truth[comm.rank]), op=op).tolist()

        with pytest.raises(tutti.TuttiArgumentError):
            comm.all_reduce(np.ones(1, "f4"), op=Op.BIT_OR)
        with pytest.raises(TypeError, match="truth values take"):
            comm.all_reduce(np.ones(1, "?"))
        assert [bitwise(op) for op in (Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR)] == [0b0100, 0b1111, 0b1101]
        assert logical(Op.LOGICAL_AND) == logical(Op.MIN) == [True, False, False]
        assert logical(Op.LOGICAL_OR) == logical(Op.MAX) == [True, False, True]
        assert logical(Op.LOGICAL_XOR) == [True, False, False]

    on_threads(N, work)


def test_average_and_scaled_sum() -> None:
    def work(comm: tutti.Communicator) -> Any:
        x = np.full(4, comm.rank * 3, "f4")
        y = np.full(4, comm.rank + 1, "f8")
        with comm.premul_sum(0.5, "float64") as half:
            return comm.all_reduce(x, op=tutti.Op.AVG)[0], comm.all_reduce(y, op=half)[0]

    assert on_threads(N, work) == [(3, 3)] * N


def test_scaled_sum_of_a_narrow_type() -> None:
    narrow = type_of("bfloat16")

    def work(comm: tutti.Communicator) -> Any:
        with comm.premul_sum(2, "bfloat16") as double:
            return comm.all_reduce(np.full(4, comm.rank + 1, narrow), op=double)[0]

    assert on_threads(N, work) == [12] * N


def test_user_operation() -> None:
    def later(incoming: memoryview, inout: memoryview, dtype: str) -> None:
        assert dtype == "int64"  # a product of matrices of one element: keeps the order of the ranks
        for i, value in enumerate(incoming):
            inout[i] = value * 10 ** len(str(inout[i])) + inout[i]

    def work(comm: tutti.Communicator) -> Any:
        with comm.user_op(later) as op:
            joined = int(comm.all_reduce(np.array([comm.rank + 1], "i8"), op=op)[0])
        try:
            with comm.user_op(lambda a, b, c: 1 // 0, commutes=True) as op:
                comm.all_reduce(np.ones(2), op=op)
        except ZeroDivisionError:
            return joined, True
        return joined, False

    try:
        results = on_threads(N, work)
        assert [joined for joined, _ in results] == [123] * N
        assert any(raised for _, raised in results)
    except NotImplementedError as error:
        pytest.skip(str(error))


def test_a_user_operation_stays_as_long_as_its_calls() -> None:
    def add(incoming: memoryview, inout: memoryview, dtype: str) -> None:
        inout[0] += incoming[0]

    a, b = tutti.Communicator.threads(2)
    x, y = np.array([1.0]), np.array([2.0])
    one = a.user_op(add, commutes=True)
    lives = weakref.ref(one._callback)
    first = a.start.all_reduce(x, op=one)
    del one
    gc.collect()
    assert lives() is not None  # the library will call it
    second = b.start.all_reduce(y, op=b.user_op(add, commutes=True))
    assert first.wait(10)[0] == second.wait(10)[0] == 3
    gc.collect()
    assert lives() is None
    a.close()
    b.close()


def test_complex_is_summed() -> None:
    def work(comm: tutti.Communicator) -> Any:
        with pytest.raises(TypeError, match="complex numbers can be summed"):
            comm.all_reduce(np.ones(2, "c8"), op=tutti.Op.MAX)
        return comm.all_reduce(np.full(2, comm.rank + 1j, "c16"))[1]

    assert on_threads(N, work) == [3 + 3j] * N


@pytest.mark.parametrize("dtype", [*NUMBERS, *NARROW, *MOVED])
def test_data_moves(dtype: Any) -> None:
    dtype = type_of(dtype)

    def data(rank: int, count: int) -> Any:
        raw = np.arange(count * np.dtype(dtype).itemsize, dtype="u1") % 2 + 2 * (rank % 50)
        return (raw % 2).view(dtype) if dtype == "?" else raw.view(dtype)

    def same(got: Any, want: Any) -> None:
        assert got.tobytes() == want.tobytes()

    def work(comm: tutti.Communicator) -> None:
        me = comm.rank
        same(comm.broadcast(data(me, 4), root=1), data(1, 4))
        same(comm.all_gather(data(me, 2), np.empty(2 * N, dtype)), np.concatenate([data(r, 2) for r in range(N)]))
        inside = np.zeros(2 * N, dtype)
        inside[2 * me : 2 * me + 2] = data(me, 2)
        same(comm.all_gather(None, inside), np.concatenate([data(r, 2) for r in range(N)]))
        got = comm.gather(data(me, 2), np.empty(2 * N, dtype) if me == 2 else None, root=2)
        if me == 2:
            same(got, np.concatenate([data(r, 2) for r in range(N)]))
        else:
            assert got is None
        same(comm.scatter(data(0, 2 * N) if me == 0 else None, np.empty(2, dtype)), data(0, 2 * N)[2 * me : 2 * me + 2])
        want = np.concatenate([data(r, 2 * N)[2 * me : 2 * me + 2] for r in range(N)])
        same(comm.all_to_all(data(me, 2 * N), np.empty(2 * N, dtype)), want)
        same(comm.all_to_all(data(me, 2 * N)), want)
        inbox = np.empty(3, dtype)
        with tutti.group():
            comm.send(data(me, 3), (me + 1) % N)
            comm.recv(inbox, (me - 1) % N)
        same(inbox, data((me - 1) % N, 3))

    on_threads(N, work)


def test_reduce_and_reduce_scatter() -> None:
    def work(comm: tutti.Communicator) -> Any:
        x = np.arange(2 * N, dtype="i8") + comm.rank
        at_root = comm.reduce(x, np.zeros_like(x) if comm.rank == 1 else None, tutti.Op.MAX, root=1)
        assert (comm.rank == 1) == (at_root is not None)
        if comm.rank == 1:
            assert (at_root == np.arange(2 * N) + N - 1).all()
        block = comm.reduce_scatter(x, np.zeros(2, "i8"))
        assert (block == (N * np.arange(2 * N) + 3)[2 * comm.rank : 2 * comm.rank + 2]).all()
        comm.reduce_scatter(x)
        assert (x[2 * comm.rank : 2 * comm.rank + 2] == block).all()
        return True

    assert on_threads(N, work) == [True] * N


def test_other_arrays() -> None:
    def work(comm: tutti.Communicator) -> None:
        assert comm.all_reduce(array.array("q", [2]))[0] == 2 * N
        assert comm.broadcast(bytearray(b"abc"), 0) == b"abc"
        shaped = comm.all_reduce(np.ones((2, 3, 4), "f4"))
        assert shaped.shape == (2, 3, 4) and (shaped == N).all()
        assert (comm.all_reduce(np.ones(5)[1:3]) == N).all()
        assert comm.all_reduce(np.ones(0)).size == 0
        assert comm.all_reduce(np.ones((), "i4")) == N

    on_threads(N, work)


def test_tensors() -> None:
    torch = pytest.importorskip("torch")

    def work(comm: tutti.Communicator) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.float8_e4m3fn):
            x = torch.ones(4).to(dtype)
            assert comm.all_reduce(x) is x
            assert (x.float() == N).all()
        assert (comm.all_gather(torch.tensor([comm.rank]), np.zeros(N, "i8")) == np.arange(N)).all()
        with pytest.raises(BufferError, match="not contiguous"):
            comm.all_reduce(torch.ones(4, 4).t())
        with pytest.raises(BufferError, match="gradient"):
            comm.all_reduce(torch.ones(4, requires_grad=True))

    on_threads(N, work)


def test_v_forms() -> None:
    counts, total = [1, 0, 3], 4

    def work(comm: tutti.Communicator) -> None:
        me = comm.rank
        own = np.full(counts[me], me, "f4")
        got = comm.all_gather_v(own, np.full(total, -1, "f4"), counts)
        assert got.tolist() == [0, 2, 2, 2]
        got = comm.all_gather_v(own, np.full(6, -1, "f4"), counts, [5, 0, 1])
        assert got.tolist() == [-1, 2, 2, 2, -1, 0]
        got = comm.gather_v(own, np.full(total, -1, "f4") if me == 1 else None, counts if me == 1 else None, root=1)
        assert got is None if me != 1 else got.tolist() == [0, 2, 2, 2]
        whole = np.arange(total, dtype="f4") if me == 0 else None
        got = comm.scatter_v(whole, counts if me == 0 else None, np.full(counts[me], -1, "f4"))
        assert got.tolist() == [[0], [], [1, 2, 3]][me]
        got = comm.reduce_scatter_v(np.arange(total, dtype="f4"), np.zeros(counts[me], "f4"), counts)
        assert got.tolist() == [[0], [], [3, 6, 9]][me]
        send_counts = [me + to for to in range(N)]
        recv_counts = [source + me for source in range(N)]
        send = np.concatenate([np.full(me + to, 10 * me + to) for to in range(N)])
        got = comm.all_to_all_v(send, send_counts, np.zeros(sum(recv_counts), send.dtype), recv_counts)
        assert got.tolist() == [10 * source + me for source in range(N) for _ in range(source + me)]

    try:
        on_threads(N, work)
    except NotImplementedError as error:
        pytest.skip(str(error))


def test_processes() -> None:
    outputs = on_processes(
        2,
        """
        import numpy as np, tutti
        with tutti.Communicator.from_env(timeout=30) as comm:
            for count in (1, 1000, 1 << 20):
                x = np.full(count, comm.rank + 1, "f4")
                assert (comm.all_reduce(x) == 3).all()
            comm.barrier()
            print("rank", comm.rank, "of", comm.size)
        """,
    )
    assert outputs == ["rank 0 of 2\n", "rank 1 of 2\n"]
