"""Every collective, on every type that PyTorch has for it, against the same sums by plain torch."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import group, run

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
EIGHT_BITS = [torch.float8_e4m3fn, torch.float8_e5m2]
ALL = [torch.bool, *INTEGERS, *UNSIGNED, *FLOATS, *COMPLEX, *EIGHT_BITS]
Op = dist.ReduceOp


def sample(rank: int, dtype: torch.dtype, count: int = 6) -> torch.Tensor:
    """Give values whose sums and products are exact in every type."""
    values = (torch.arange(count) * 3 + rank) % 4
    if dtype.is_complex:
        return torch.complex(values.double(), values.double().flip(0)).to(dtype)
    return values.to(torch.float32).to(dtype)


def folded(op: Any, inputs: list[torch.Tensor]) -> torch.Tensor:
    """Give what the reduction must be."""
    dtype = inputs[0].dtype
    if dtype == torch.bool:
        wide = torch.stack([i.int() for i in inputs])
        if op == Op.BXOR:
            return (wide.sum(0) % 2).bool()
        return (wide.amin(0) if op in (Op.PRODUCT, Op.MIN, Op.BAND) else wide.amax(0)).bool()
    if dtype.is_complex:
        wide = torch.stack([i.to(torch.complex128) for i in inputs])
    elif dtype.is_floating_point:
        wide = torch.stack([i.double() for i in inputs])
    else:
        wide = torch.stack([i.long() for i in inputs])
    result = wide[0]
    for other in wide[1:]:
        if op in (Op.SUM, Op.AVG):
            result = result + other
        elif op == Op.PRODUCT:
            result = result * other
        elif op == Op.MIN:
            result = torch.minimum(result, other)
        elif op == Op.MAX:
            result = torch.maximum(result, other)
        elif op == Op.BAND:
            result = result & other
        elif op == Op.BOR:
            result = result | other
        else:
            result = result ^ other
    if op == Op.AVG:
        result = result / len(inputs) if result.dtype != torch.long else result // len(inputs)
    return result.to(dtype)


def same(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    """Compare bit by bit."""
    assert got.dtype == want.dtype, what
    raw = [t.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for t in (got, want)]
    assert torch.equal(raw[0], raw[1]), f"{what}: {got} is not {want}"


def ops_of(dtype: torch.dtype) -> list[Any]:
    """Give the reductions that a type has."""
    bits = [] if dtype.is_complex or dtype.is_floating_point else [Op.BAND, Op.BOR, Op.BXOR]
    order = [] if dtype.is_complex else [Op.PRODUCT, Op.MIN, Op.MAX]
    average = [] if dtype == torch.bool else [Op.AVG]
    return [Op.SUM, *order, *average, *bits]


def exact(dtype: torch.dtype, op: Any, size: int) -> bool:
    """Say whether the test's values give an exact result: a third is none, nor is a large product in 8 bits."""
    if op == Op.AVG:
        return size in (2, 4)
    return op != Op.PRODUCT or dtype not in EIGHT_BITS


def _reductions(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for dtype in ALL:
            inputs = [sample(r, dtype) for r in range(size)]
            for op in ops_of(dtype):
                if not exact(dtype, op, size):
                    continue
                want = folded(op, inputs)
                what = f"{op} of {dtype}"
                got = inputs[rank].clone()
                dist.all_reduce(got, op=op)
                same(got, want, f"all_reduce {what}")
                wide = torch.zeros(6, 2, dtype=torch.float32).to(dtype)
                strided = wide[:, 0]
                strided.copy_(inputs[rank])
                dist.all_reduce(strided, op=op)
                same(strided, want, f"all_reduce strided {what}")
                assert not wide[:, 1].to(torch.complex64).any(), f"{what}: elements between were written"
                for root in (0, size - 1):
                    got = inputs[rank].clone()
                    dist.reduce(got, root, op=op)
                    if rank == root:
                        same(got, want, f"reduce to {root} {what}")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_reductions(size: int) -> None:
    run(size, _reductions)


def _reduce_scatters(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for dtype in ALL:
            inputs = [sample(r, dtype, 4 * size) for r in range(size)]
            for op in ops_of(dtype):
                if not exact(dtype, op, size):
                    continue
                want = folded(op, inputs)
                what = f"{op} of {dtype}"
                got = torch.zeros(4).to(dtype)
                dist.reduce_scatter_tensor(got, inputs[rank], op=op)
                same(got, want[4 * rank : 4 * rank + 4], f"reduce_scatter_tensor {what}")
                got = torch.zeros(4).to(dtype)
                dist.reduce_scatter(got, list(inputs[rank].split(4)), op=op)
                same(got, want[4 * rank : 4 * rank + 4], f"reduce_scatter {what}")
                sizes = [2 + r for r in range(size)]
                start = sum(sizes[:rank])
                got = torch.zeros(sizes[rank]).to(dtype)
                dist.reduce_scatter(got, list(inputs[rank][: sum(sizes)].split(sizes)), op=op)
                same(got, want[start : start + sizes[rank]], f"reduce_scatter of unequal sizes {what}")


def test_reduce_scatters() -> None:
    run(3, _reduce_scatters)


def _copies(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for dtype in ALL:
            inputs = [sample(r, dtype) for r in range(size)]
            got = inputs[rank].clone()
            dist.broadcast(got, size - 1)
            same(got, inputs[-1], "broadcast")
            outs = [torch.zeros(6).to(dtype) for _ in range(size)]
            dist.all_gather(outs, inputs[rank])
            for r in range(size):
                same(outs[r], inputs[r], "all_gather")
            flat = torch.zeros(6 * size).to(dtype)
            dist.all_gather_into_tensor(flat, inputs[rank])
            same(flat, torch.cat(inputs), "all_gather_into_tensor")
            outs = [torch.zeros(6).to(dtype) for _ in range(size)]
            dist.gather(inputs[rank], outs if rank == 1 else None, dst=1)
            for r in range(size):
                same(outs[r], inputs[r] if rank == 1 else torch.zeros(6).to(dtype), "gather")
            got = torch.zeros(6).to(dtype)
            dist.scatter(got, inputs if rank == 0 else None, src=0)
            same(got, inputs[rank], "scatter")
            flat = torch.zeros(2 * size).to(dtype)
            dist.all_to_all_single(flat, sample(rank, dtype, 2 * size))
            same(
                flat,
                torch.cat([sample(r, dtype, 2 * size)[2 * rank : 2 * rank + 2] for r in range(size)]),
                "all_to_all",
            )


def test_copies() -> None:
    run(3, _copies)


def _uneven(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        counts = [[(i + 2 * j) % 4 for j in range(size)] for i in range(size)]  # zeros among them
        rows = torch.full((sum(counts[rank]), 2), float(rank))
        got = torch.zeros(sum(counts[r][rank] for r in range(size)), 2)
        dist.all_to_all_single(got, rows, [counts[r][rank] for r in range(size)], counts[rank])
        want = torch.cat([torch.full((counts[r][rank], 2), float(r)) for r in range(size)])
        same(got, want, "uneven all_to_all_single")
        outs = [torch.zeros(counts[r][rank], 3) for r in range(size)]
        dist.all_to_all(outs, [torch.full((counts[rank][r], 3), float(rank)) for r in range(size)])
        for r in range(size):
            same(outs[r], torch.full((counts[r][rank], 3), float(r)), "all_to_all")
        outs = [torch.zeros(r + 1) for r in range(size)]
        dist.all_gather(outs, torch.full((rank + 1,), float(rank)))
        for r in range(size):
            same(outs[r], torch.full((r + 1,), float(r)), "all_gather of unequal sizes")


def test_uneven() -> None:
    run(3, _uneven)


def _layouts(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        column = torch.full((4, 3), float(rank)).t()[1]  # one element in three
        dist.broadcast(column, 1)
        same(column, torch.ones(4), "broadcast of a column")
        outs = [torch.zeros(2, 3).t() for _ in range(size)]
        dist.all_gather(outs, torch.arange(6.0).reshape(2, 3).t() + rank)
        for r in range(size):
            same(outs[r], torch.arange(6.0).reshape(2, 3).t() + r, "all_gather of transposed")
        conj = torch.full((3,), complex(rank, 1)).conj()
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).broadcast(conj, 1).wait()
        assert torch.equal(conj, torch.full((3,), 1 - 1j)), conj
        empty = torch.zeros(0, 5)
        for call in (dist.all_reduce, lambda t: dist.broadcast(t, 0), lambda t: dist.reduce(t, 0)):
            call(empty)
        dist.all_gather([torch.zeros(0) for _ in range(size)], torch.zeros(0))
        dist.all_to_all_single(torch.zeros(0), torch.zeros(0))
        scalar = torch.tensor(float(rank))
        dist.all_reduce(scalar)
        assert scalar == sum(range(size))
        parameter = torch.nn.Parameter(torch.full((2, 2), float(rank)).t())
        dist.broadcast(parameter, 0)
        assert not parameter.any()


def test_layouts() -> None:
    run(3, _layouts)


def _special(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        for dtype in FLOATS:
            scaled = torch.full((3,), 2.0, dtype=dtype)
            dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
            same(scaled, torch.full((3,), float(size), dtype=dtype), "PREMUL_SUM")
        indices = torch.tensor([[rank, rank + 1]])
        sparse = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0]), (size + 1,))
        dist.all_reduce(sparse)
        want = torch.zeros(size + 1)
        for r in range(size):
            want[r] += 1
            want[r + 1] += 2
        same(sparse.to_dense(), want, "sparse all_reduce")
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
        assert [o["rank"] for o in objects] == list(range(size))
        box = [f"from {rank}"]
        dist.broadcast_object_list(box, 1)
        assert box == ["from 1"]
        parts: list[Any] = [None]
        dist.scatter_object_list(parts, list(range(size)) if rank == 0 else None, 0)
        assert parts == [rank]


def test_special() -> None:
    run(3, _special)


def _refused(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        cases: list[tuple[str, Any]] = [
            ("BAND", lambda: dist.all_reduce(torch.ones(2), op=Op.BAND)),
            ("BXOR", lambda: dist.reduce_scatter_tensor(torch.ones(1), torch.ones(size), op=Op.BXOR)),
            ("MAX", lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), op=Op.MAX)),
            ("AVG", lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), op=Op.AVG)),
            ("3 ", lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2))),
            ("Float8_e4m3fnuz", lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fnuz))),
        ]
        for text, call in cases:
            with pytest.raises((RuntimeError, ValueError), match=text):
                call()
        total = torch.ones(1)
        dist.all_reduce(total)  # nothing is broken
        assert total == size


def test_refused() -> None:
    run(2, _refused)


def _asynchronous(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        tensors = [torch.full((1 << (i % 14),), float(rank + i)) for i in range(60)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        for i in reversed(range(60)):
            works[i].wait()
            assert works[i].is_completed() and works[i].is_success()
            assert torch.equal(tensors[i], torch.full_like(tensors[i], sum(range(size)) + size * i))
        seen: list[float] = []
        one = torch.ones(3)
        future = dist.all_reduce(one, async_op=True).get_future().then(lambda f: seen.append(float(f.value()[0][0])))
        future.wait()
        assert seen == [float(size)]
        for _ in range(20):
            dist.all_reduce(torch.ones(5000), async_op=True)  # forgotten at once
        if rank == 0:
            late = torch.ones(1 << 20)
            work = dist.all_reduce(late, async_op=True)
            dist.barrier()
            work.wait()
        else:
            late = torch.ones(1 << 20)
            work = dist.all_reduce(late, async_op=True)
            dist.barrier()
            while not work.is_completed():
                pass
        assert late.eq(size).all()


def test_asynchronous() -> None:
    run(3, _asynchronous)


def _synchronous(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        pg = dist.distributed_c10d._get_default_group()
        options = dist.AllreduceOptions()
        options.asyncOp = False
        for profiled in (False, True):
            for n in (2, 1 << 20):  # at once, and not
                columns = torch.full((n, 2), float(rank))[:, 1]
                with torch.profiler.profile() if profiled else contextlib.nullcontext():
                    assert pg.allreduce([columns], options) is None  # complete: PyTorch waits for nothing
                assert columns.eq(sum(range(size))).all()
        late = torch.ones(1 << 20)
        work = pg.allreduce([late])
        one = torch.ones(1)
        assert pg.allreduce([one], options) is None and one == size  # behind the asynchronous one
        assert late.eq(size).all() and work.is_completed()


def test_synchronous() -> None:
    run(3, _synchronous)


def _lists(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        inputs = [torch.full((2,), float(2 * rank + i)) for i in range(2)]
        outputs = [[torch.empty(2) for _ in range(2 * size)] for _ in range(2)]
        value = backend.allgather(outputs, inputs).get_future().wait()
        assert [[int(t[0]) for t in part] for part in value] == [list(range(2 * size))] * 2
        same = torch.full((3,), float(rank + 1))
        backend.allreduce_coalesced([same, same]).wait()  # named twice, reduced once
        assert same.eq(size * (size + 1) / 2).all()


def test_lists() -> None:
    run(3, _lists)


def _profile(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            dist.all_reduce(torch.ones(5, 7))
            dist.all_gather_into_tensor(torch.empty(size * 3), torch.ones(3))
            dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(torch.ones(2))
        shapes = {event.name: event.input_shapes for event in profile.function_events}
        assert shapes["tutti:all_reduce"] == [[5, 7]]
        assert shapes["tutti:all_gather_into_tensor"] == [[3]]
        assert shapes["tutti:send" if rank == 0 else "tutti:recvAnySource"] == [[2]]


def test_profile() -> None:
    run(2, _profile)
