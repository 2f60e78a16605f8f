"""DTensor: every change of placement, gradients of it, operators, and tensor parallel training."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from ranks import VERSION, group, run
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed._tensor.common_dtensor import DTensorConverter, ModelArgs, Transformer

SHAPES: dict[int, tuple[int, ...]] = {3: (3,), 4: (2, 2)}  # of the mesh, by the number of ranks


def _mesh(size: int) -> DeviceMesh:
    return init_device_mesh("cpu", SHAPES[size])


def _placed(whole: torch.Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> Any:
    """Give a DTensor with this value. Of partial ones each rank has another part."""
    known = tuple(Replicate() if placement.is_partial() else placement for placement in placements)
    part = distribute_tensor(whole, mesh, known).to_local()
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    for dim, placement in enumerate(placements):
        if placement.is_partial():
            count = mesh.size(dim)
            first = coordinate[dim] == 0
            part = part - count * (count - 1) // 2 if first else torch.full_like(part, coordinate[dim])
    return DTensor.from_local(part, mesh, placements, shape=whole.shape, stride=whole.stride())


def _redistribute(rank: int, size: int, path: str) -> int:
    with group(rank, size, path):
        mesh, done = _mesh(size), 0
        each = [Replicate(), Shard(0), Shard(1), Partial("sum")]
        whole = torch.arange(5 * 7, dtype=torch.int64).reshape(5, 7)  # uneven shards
        for source in itertools.product(each, repeat=mesh.ndim):
            tensor = _placed(whole, mesh, source)
            for target in itertools.product(each[:3], repeat=mesh.ndim):
                moved, expected = tensor.redistribute(placements=target), distribute_tensor(whole, mesh, target)
                assert torch.equal(moved.to_local(), expected.to_local()), (source, target)
                assert torch.equal(moved.full_tensor(), whole), (source, target)
                done += 1
        return done


@pytest.mark.parametrize("size", SHAPES)
def test_redistribute(size: int) -> None:
    assert run(size, _redistribute) == [(4 * 3) ** len(SHAPES[size])] * size


def _gradients(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        mesh = _mesh(size)
        each: list[Placement] = [Replicate(), Shard(0), Shard(1)]
        torch.manual_seed(2)
        whole, weight = torch.randn(5, 7), torch.randn(5, 7)
        for source, target in itertools.product(itertools.product(each, repeat=mesh.ndim), repeat=2):
            tensor = distribute_tensor(whole, mesh, source).requires_grad_()
            moved = tensor.redistribute(placements=target) * distribute_tensor(weight, mesh, target)
            moved.sum().redistribute(placements=[Replicate()] * mesh.ndim).backward()
            assert torch.equal(tensor.grad.full_tensor(), weight), (source, target)


@pytest.mark.parametrize("size", SHAPES)
def test_gradients(size: int) -> None:
    run(size, _gradients)


OPERATORS: list[tuple[Any, tuple[tuple[int, ...], ...]]] = [
    (torch.mm, ((12, 24), (24, 36))),
    (torch.add, ((12, 24), (24,))),
    (torch.nn.functional.linear, ((12, 24), (36, 24), (36,))),
    (lambda x: torch.softmax(x, 1), ((12, 24),)),
    (lambda x: x.sum(0), ((12, 24),)),
    (lambda x: x.amax(1), ((12, 24),)),
    (lambda x: x.mean(), ((12, 24),)),
    (lambda x: x.transpose(0, 1).reshape(24 * 12), ((12, 24),)),
    (lambda x, y: torch.cat([x, y], 1), ((12, 24), (12, 24))),
    (lambda x, i: torch.nn.functional.embedding(i.abs().long() % 12, x), ((12, 24), (12,))),
]


def _operators(rank: int, size: int, path: str) -> int:
    with group(rank, size, path):
        mesh, done = init_device_mesh("cpu", (size,)), 0
        torch.manual_seed(3)
        for operator, shapes in OPERATORS:
            args = tuple(torch.randn(shape) for shape in shapes)
            expected = operator(*args)
            for placed, _ in DTensorConverter(mesh, args, {}):
                torch.testing.assert_close(operator(*placed).full_tensor(), expected)
                done += 1
        return done


@pytest.mark.skipif(VERSION < (2, 10), reason="PyTorch 2.9 finds no way to flatten the shards of an operator")
@pytest.mark.parametrize("size", SHAPES)
def test_operators(size: int) -> None:
    results = run(size, _operators)
    assert results == results[:1] * size and results[0] >= 40


def _transformer(rank: int, size: int, path: str, backend: str, sequence: bool) -> list[float]:
    with group(rank, size, path, backend):
        torch.manual_seed(4)
        model: Any = Transformer(ModelArgs(dropout_p=0.0, n_heads=4, weight_tying=False))
        mesh = init_device_mesh("cpu", (size,))
        model = Transformer.parallelize(model, mesh, sequence, local_output_for_attn=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        tokens = torch.randint(8, (2, 8))
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


@pytest.mark.parametrize("sequence", [False, True])
def test_transformer(sequence: bool) -> None:
    for size in (2, 4):
        ours, theirs = (run(size, _transformer, backend, sequence) for backend in ("tutti", "gloo"))
        assert ours[0] == pytest.approx(theirs[0], rel=1e-5) and ours[0][-1] < ours[0][0]
