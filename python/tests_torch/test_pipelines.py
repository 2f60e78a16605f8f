"""PyTorch's pipeline schedules: the same losses and gradients as with Gloo, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.pipelining as pipelining
from ranks import VERSION, group, run

MICROBATCHES = 8


def _stages(kind: Any, rank: int, size: int) -> tuple[list[int], int]:
    """Give the numbers of the rank's stages, and how many there are in all."""
    if kind in (pipelining.ScheduleGPipe, pipelining.Schedule1F1B):
        return [rank], size
    if kind in (pipelining.ScheduleZBVZeroBubble, pipelining.ScheduleDualPipeV):
        return [rank, 2 * size - 1 - rank], 2 * size
    return [rank, rank + size], 2 * size


def _train(rank: int, size: int, path: str, backend: str, kind: Any) -> list[list[float]]:
    with group(rank, size, path, backend):
        mine, count = _stages(kind, rank, size)
        torch.manual_seed(1)
        layers = [torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.Tanh()) for _ in range(count)]
        data, target = torch.randn(4 * MICROBATCHES, 12), torch.randn(4 * MICROBATCHES, 12)
        stages = [pipelining.PipelineStage(layers[n], n, count, torch.device("cpu")) for n in mine]
        schedule = kind(stages[0] if count == size else stages, MICROBATCHES, loss_fn=torch.nn.MSELoss())
        results = []
        for _ in range(2):
            losses: list[torch.Tensor] = []
            given = (data,) if 0 in mine else ()
            schedule.step(*given, target=target if count - 1 in mine else None, losses=losses)
            assert len(losses) == (MICROBATCHES if count - 1 in mine else 0)
            results.append([loss.item() for loss in losses])
            for n in mine:
                for parameter in layers[n].parameters():
                    assert parameter.grad is not None
                    results.append(parameter.grad.flatten().tolist())
                    with torch.no_grad():
                        parameter -= parameter.grad
                    parameter.grad = None
        return results


@pytest.mark.skipif(
    VERSION < (2, 10), reason="PyTorch 2.9 sends 8 bytes where a stage receives 4; Gloo ends the process"
)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "name", ["GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]
)
def test_pipeline(name: str, size: int) -> None:
    kind = getattr(pipelining, "Schedule" + name)
    ours, theirs = (run(size, _train, backend, kind) for backend in ("tutti", "gloo"))
    assert ours == theirs
    assert sum(len(result[0]) for result in ours) == MICROBATCHES
