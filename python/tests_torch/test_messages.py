"""Send and receive: tags, any source, both directions at once, messages that come before they are asked for."""

from __future__ import annotations

import datetime

import pytest
import torch
import torch.distributed as dist
from ranks import group, run


def _tags(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        order = [3, 0, 2, 1]
        if rank == 0:
            for tag in range(4):
                dist.send(torch.full((1000 * tag + 1,), float(tag)), 1, tag=tag)
        elif rank == 1:
            for tag in order:
                got = torch.zeros(1000 * tag + 1)
                dist.recv(got, 0, tag=tag)
                assert got.eq(tag).all()
        if rank == 0:  # of one tag, in the order of the calls
            for i in range(50):
                dist.send(torch.tensor([i]), 1, tag=i % 3)
        elif rank == 1:
            for tag in (2, 0, 1):
                for i in range(tag, 50, 3):
                    got = torch.zeros(1, dtype=torch.long)
                    dist.recv(got, 0, tag=tag)
                    assert got.item() == i


def test_tags() -> None:
    run(2, _tags)


def _crossed(rank: int, size: int, path: str) -> None:
    """Everybody receives from everybody before it sends, and large messages go both ways."""
    with group(rank, size, path):
        peers = [r for r in range(size) if r != rank]
        inputs = {r: torch.full((1 << 18,), float(rank * 10 + r)) for r in peers}
        outputs = {r: torch.zeros(1 << 18) for r in peers}
        receives = [dist.irecv(outputs[r], r, tag=5) for r in peers]
        sends = [dist.isend(inputs[r], r, tag=5) for r in peers]
        total = torch.ones(1)
        dist.all_reduce(total)  # beside the messages
        for work in [*sends, *receives]:
            assert work is not None
            work.wait()
        for r in peers:
            assert outputs[r].eq(r * 10 + rank).all()


def test_crossed() -> None:
    run(3, _crossed)


def _progress(rank: int, size: int, path: str) -> None:
    """A receive goes on while its rank is elsewhere, and a blocking send needs it."""
    with group(rank, size, path):
        data = torch.full((1 << 20,), 1.0 + rank)
        got = torch.zeros(1 << 20)
        if rank == 0:
            work = dist.irecv(got, 1)
            dist.barrier()
            assert work is not None
            work.wait()
            assert got.eq(2).all()
        else:
            dist.send(data, 0)
            dist.barrier()


def test_progress() -> None:
    run(2, _progress)


def _any_source(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        if rank == 0:
            seen = []
            for _ in range(2 * (size - 1)):
                got = torch.zeros(3)
                source = dist.recv(got, tag=9)
                assert got.eq(source).all()
                seen.append(source)
            assert sorted(seen) == sorted(2 * list(range(1, size)))
        else:
            for _ in range(2):
                dist.send(torch.full((3,), float(rank)), 0, tag=9)


def test_any_source() -> None:
    run(4, _any_source)


def _batch(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        right, left = (rank + 1) % size, (rank - 1) % size
        got = torch.zeros(7, 2).t()  # not contiguous
        ops = [
            dist.P2POp(dist.isend, torch.full((2, 7), float(rank)), right),
            dist.P2POp(dist.irecv, got, left),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert got.eq(left).all()


def test_batch() -> None:
    run(3, _batch)


def _wrong(rank: int, size: int, path: str) -> None:
    with group(rank, size, path):
        if rank == 0:
            dist.send(torch.ones(4), 1)
            dist.send(torch.ones(3), 1)
        else:
            with pytest.raises(RuntimeError, match=r"rank 0 with tag 0 has 16 bytes.* has 8"):
                dist.recv(torch.zeros(2), 0)
            got = torch.zeros(3)
            dist.recv(got, 0)  # the next one is whole
            assert got.eq(1).all()
            work = dist.irecv(got, 0, tag=77)
            assert work is not None
            with pytest.raises(RuntimeError, match="has not completed in"):
                work.wait(datetime.timedelta(milliseconds=200))
        dist.barrier()


def test_wrong() -> None:
    run(2, _wrong)
