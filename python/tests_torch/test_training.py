"""DistributedDataParallel, FSDP2 and torchrun: the same numbers as with Gloo."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import group, run
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from launchers import finish

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_ddp.py"


def _network() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 7))


def _steps(model: torch.nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(5):
        loss = model(torch.randn(8, 20, generator=data)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _ddp(rank: int, size: int, path: str, backend: str) -> list[float]:
    with group(rank, size, path, backend):
        return _steps(DistributedDataParallel(_network(), bucket_cap_mb=1), rank)


def _sharded(mesh: DeviceMesh, **options: Any) -> Any:
    model = _network()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def _fsdp(rank: int, size: int, path: str, backend: str) -> list[float]:
    with group(rank, size, path, backend):
        return _steps(_sharded(init_device_mesh("cpu", (size,))), rank)


def _fsdp_memory(rank: int, size: int, path: str, backend: str) -> list[float]:
    with group(rank, size, path, backend):
        model = _sharded(init_device_mesh("cpu", (size,)))
        for module in model.modules():
            if hasattr(module, "set_allocate_memory_from_process_group_for_comm"):
                module.set_allocate_memory_from_process_group_for_comm(True)
        return _steps(model, rank)


def _fsdp_mixed(rank: int, size: int, path: str, backend: str) -> list[float]:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with group(rank, size, path, backend):
        return _steps(_sharded(init_device_mesh("cpu", (size,)), mp_policy=policy, reshard_after_forward=False), rank)


@pytest.mark.parametrize("kind", [_ddp, _fsdp, _fsdp_memory, _fsdp_mixed])
def test_same_losses(kind: Any) -> None:
    for size in (2, 3):
        ours, theirs = run(size, kind, "tutti"), run(size, kind, "gloo")
        for a, b in zip(ours, theirs, strict=True):
            assert a == pytest.approx(b, rel=1e-6), f"{kind.__name__} of {size} ranks"


def _hybrid(rank: int, size: int, path: str, backend: str) -> tuple[list[float], list[Any]]:
    """Shard on pairs and copy between them; add up gradients of two batches; limit their norm; take the state."""
    with group(rank, size, path, backend):
        model = _sharded(init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("copies", "shards")))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        data = torch.Generator().manual_seed(rank)
        norms = []
        for _ in range(3):
            optimizer.zero_grad()
            for last in (False, True):
                model.set_requires_gradient_sync(last)
                model(torch.randn(8, 20, generator=data)).square().mean().backward()
            norm: Any = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            norms.append(norm.full_tensor().item())
            optimizer.step()
        state = model.state_dict()
        assert all(isinstance(value, DTensor) for value in state.values())
        return norms, [state[name].full_tensor().tolist() for name in sorted(state)]


def test_hybrid_sharding() -> None:
    ours, theirs = run(4, _hybrid, "tutti"), run(4, _hybrid, "gloo")
    for a, b in zip(ours, theirs, strict=True):
        assert a[0] == pytest.approx(b[0], rel=1e-5) and min(a[0]) > 0.05
        for value, expected in zip(a[1], b[1], strict=True):
            torch.testing.assert_close(torch.tensor(value), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def torchrun_loss(*command: str, options: tuple[str, ...] = ()) -> tuple[float, str]:
    """Train on two processes of torchrun; give the loss and all output. The example is behind the command."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *command, str(EXAMPLE), *options]
    _, out, err = finish(torchrun, dict(os.environ), 180)
    found = re.search(r"loss (\d+\.\d+)", out)
    assert found, out + err
    return float(found[1]), out + err


def test_torchrun() -> None:
    losses = [torchrun_loss("--standalone", options=("--backend", b, "--steps", "20"))[0] for b in ("tutti", "gloo")]
    assert losses[0] == pytest.approx(losses[1], abs=2e-6)


def test_device_map() -> None:
    assert dist.Backend.backend_capability["tutti"] == ["cpu"]
