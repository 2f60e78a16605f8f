"""Large CPU tensors in memory that peers map: use_shared_allocator()."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import group, run
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import tutti.torch
from tutti.torch import allocator_stats

MIB = 1 << 20


def _tensor(mib: float, value: float = 1.0) -> torch.Tensor:
    return torch.full((int(mib * MIB) // 4,), float(value))


def _mapped(tensor: torch.Tensor) -> bool:
    """Say whether the tensor's memory is shared: of a mapping that peers can have."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= tensor.data_ptr() < end:
                return "tutti-mem" in line and line.split()[1] == "rw-s"
    return False


def _alone(rank: int, size: int, path: str, function: Callable[[], Any], args: dict[str, Any]) -> Any:
    tutti.torch.use_shared_allocator(**args)
    return function()


def _run_alone(function: Callable[[], Any], **args: Any) -> Any:
    """Run the function in a process of its own: the allocator is the whole process's."""
    return run(1, _alone, function, args)[0]


# ---- What lies where ----


def _places() -> None:
    small, large = _tensor(0.125), _tensor(0.25)
    assert not _mapped(small)
    assert _mapped(large)
    assert large.data_ptr() % 64 == 0
    assert torch.empty(0).numel() == 0
    grown = _tensor(0.125)
    grown.resize_(MIB)
    assert _mapped(grown)
    assert bool((grown[: MIB // 32] == 1).all())
    shrunk = large.resize_(10)
    assert bool((shrunk == 1).all())
    storage = torch.UntypedStorage(2 * MIB)
    storage.resize_(3 * MIB)
    storage.resize_(0)
    assert storage.nbytes() == 0
    assert _mapped(large.clone().resize_(MIB))
    assert allocator_stats()["refused"] == 0


def test_places() -> None:
    _run_alone(_places)


def test_arguments() -> None:
    with pytest.raises(ValueError, match="least is 0"):
        tutti.torch.use_shared_allocator(0)
    with pytest.raises(ValueError, match="cache is -1"):
        tutti.torch.use_shared_allocator(cache=-1)


# ---- Freed memory ----


def _reuse() -> None:
    first = _tensor(8)
    keep, place = _tensor(1), first.data_ptr()
    del first
    stats = allocator_stats()
    assert stats["cached"] == 8 * MIB
    assert stats["used"] == MIB
    second = _tensor(8)
    assert second.data_ptr() == place
    del second
    parts = [_tensor(2, i) for i in range(4)]  # of the same 8 MiB
    assert all(place <= part.data_ptr() < place + 8 * MIB for part in parts)
    assert [float(part.mean()) for part in parts] == [0, 1, 2, 3]
    del parts[1:3]
    joined = _tensor(4)  # the two in the middle have become one
    assert joined.data_ptr() == place + 2 * MIB
    assert [float(part.mean()) for part in parts] == [0, 3]
    assert float(keep.mean()) == 1
    del parts, joined, keep
    stats = allocator_stats()
    assert stats["used"] == 0
    assert stats["segments"] == 1
    tutti.torch.empty_cache()
    stats = allocator_stats()
    assert stats["cached"] == stats["mapped"] == stats["segments"] == 0
    assert float(_tensor(1, 5).mean()) == 5


def test_freed_memory_is_used_again() -> None:
    _run_alone(_reuse)


def _resident() -> int:
    with open("/proc/self/smaps", encoding="utf-8") as maps:
        lines = maps.readlines()
    heads = [number for number, line in enumerate(lines) if "tutti-mem" in line]
    return sum(
        int(next(line for line in lines[number:] if line.startswith("Rss:")).split()[1]) << 10 for number in heads
    )


def _bounded() -> None:
    keep = _tensor(1)
    tensors = [_tensor(4) for _ in range(8)]
    assert _resident() >= 33 * MIB
    first = tensors[0].data_ptr()
    for i in range(8):  # the last ones stay
        tensors[i] = torch.empty(0)
    assert allocator_stats()["cached"] <= 10 * MIB
    assert _resident() <= 11 * MIB
    assert float(torch.zeros(MIB).sum()) == 0
    del keep
    assert first > 0


def test_cache_is_bounded() -> None:
    _run_alone(_bounded, cache=10 * MIB)


def _large() -> None:
    one = _tensor(100, 1)  # more than a segment has
    two = _tensor(70, 2)
    assert _mapped(one)
    assert _mapped(two)
    assert float(one.mean()) == 1
    assert float(two.mean()) == 2
    assert allocator_stats()["segments"] == 2


def test_large_tensors() -> None:
    _run_alone(_large)


def _threads() -> None:
    wrong = []

    def work(number: int) -> None:
        mine: list[tuple[torch.Tensor, float]] = []
        for i in range(60):
            value = float(number * 1000 + i)
            mine.append((_tensor(1 + (i * 7 + number) % 4, value), value))
            if len(mine) > 3:
                tensor, expected = mine.pop(i % 3)
                if bool((tensor != expected).any()):
                    wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert allocator_stats()["used"] == 0


def test_threads() -> None:
    _run_alone(_threads)


# ---- Where the system gives no memory ----


def _no_descriptors() -> None:
    import resource

    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, old[1]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first, second = torch.ones(MIB), torch.ones(MIB)
    resource.setrlimit(resource.RLIMIT_NOFILE, old)
    assert ["peers can map" in str(one.message) for one in said] == [True]
    assert not _mapped(first)
    assert not _mapped(second)
    assert float(first.sum() + second.sum()) == 2 * MIB
    assert allocator_stats()["refused"] == 1
    tutti.torch.empty_cache()
    assert _mapped(torch.ones(MIB))
    del first


def test_no_memory_that_peers_can_map() -> None:
    _run_alone(_no_descriptors)


# ---- Forked children ----


def _fork(function: Callable[[], bool]) -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        good = False
        try:
            good = function()
        finally:
            os._exit(0 if good else 1)
    return child


def _wait(child: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _children() -> None:
    data, other = _tensor(4, 3), _tensor(2, 4)

    def change() -> bool:
        nonlocal other
        good = not _mapped(data) and bool((data == 3).all()) and bool((other == 4).all())
        data.fill_(9)
        del other
        own = _tensor(4, 8)  # the child's own
        return good and _mapped(own) and bool((data == 9).all()) and bool((own == 8).all())

    _wait(_fork(change))
    assert bool((data == 3).all())
    assert bool((other == 4).all())


def test_child_has_its_own_copy() -> None:
    _run_alone(_children)


def _freed_meanwhile() -> None:
    """A child goes on with a tensor that its parent frees."""
    ready, done = os.pipe(), os.pipe()
    data = [_tensor(4, 3)]
    before = _tensor(1)

    def look() -> bool:
        os.read(ready[0], 1)
        return bool((data[0] == 3).all())

    child = _fork(look)
    other = _fork(lambda: os.read(done[0], 1) == b"x")
    later = _tensor(2)
    del later
    assert allocator_stats()["held"] == 0  # no child has seen it
    data.clear()
    assert allocator_stats()["held"] == 4 * MIB
    again = [_tensor(4, 7) for _ in range(4)]  # nothing of it comes where the child looks
    os.write(ready[1], b"x")
    _wait(child)
    _tensor(1)
    assert allocator_stats()["held"] == 4 * MIB
    os.write(done[1], b"x")
    _wait(other)
    fresh = _tensor(1)
    assert allocator_stats()["held"] == 0
    assert [float(tensor.mean()) for tensor in [*again, before, fresh]] == [7, 7, 7, 7, 1, 1]


def test_parent_frees_what_a_child_sees() -> None:
    _run_alone(_freed_meanwhile)


def _programs() -> None:
    """A child that runs another program holds nothing."""
    data = _tensor(4)
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, preexec_fn=lambda: None)
    del data
    end = time.monotonic() + 10
    while allocator_stats()["held"] > 0 and time.monotonic() < end:
        _tensor(1)
    held = allocator_stats()["held"]
    program.communicate(b"\n")
    assert program.returncode == 0
    assert held == 0


def test_programs_hold_nothing() -> None:
    _run_alone(_programs)


def _forks() -> None:
    """Children that have ended keep no descriptor, though no large tensor is freed."""
    data = _tensor(1)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    _wait(_fork(lambda: True))
    before = descriptors()
    for _ in range(20):
        _wait(_fork(lambda: True))
    assert descriptors() == before
    assert bool((data == 1).all())


def test_forks_keep_no_descriptors() -> None:
    _run_alone(_forks)


class _Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.rows = torch.arange(4 * MIB, dtype=torch.float32).reshape(8, -1)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index].clone().add_(1)  # 2 MiB, sent through shared memory


def _loader() -> None:
    rows = _Rows()
    for context in ("fork", "spawn"):
        loader = DataLoader(rows, batch_size=2, num_workers=2, multiprocessing_context=context)
        got = torch.cat(list(loader))
        assert bool((got == rows.rows + 1).all())
    shared = _tensor(2, 5).share_memory_()
    _wait(_fork(lambda: bool(shared.fill_(6)[0] == 6)))
    assert bool((shared == 6).all())


def test_data_loader() -> None:
    _run_alone(_loader)


def _ranks_of_a_parent() -> None:
    """Ranks that are forked where the allocator is in use."""
    tensor = _tensor(2, 2)
    totals = run(2, _sum_of, tensor)
    assert totals == [4.0, 4.0]
    assert bool((tensor == 2).all())


def _sum_of(rank: int, size: int, path: str, tensor: torch.Tensor) -> float:
    with group(rank, size, path):
        dist.all_reduce(tensor)
        assert _mapped(_tensor(1))
        return float(tensor.mean())


def test_forked_ranks() -> None:
    _run_alone(_ranks_of_a_parent)


# ---- Process groups ----


def _collectives(rank: int, size: int, path: str) -> None:
    tutti.torch.use_shared_allocator()
    kept = []
    with group(rank, size, path):
        for mib in (1, 3, 70, 1):
            tensor = _tensor(mib, rank + 1)
            dist.all_reduce(tensor)
            assert bool((tensor == size * (size + 1) / 2).all()), mib
            parts = [torch.empty_like(tensor) for _ in range(size)]
            dist.all_gather(parts, tensor + rank)
            assert [float(part.mean()) - float(tensor[0]) for part in parts] == list(range(size))
            kept.append(tensor)
        tutti.torch.empty_cache()  # peers must not use the memory that has gone
        again = _tensor(70, rank)
        dist.all_reduce(again)
        assert bool((again == size * (size - 1) / 2).all())
        kept.append(again)
    assert [float(tensor[0]) for tensor in kept[:4]] == [size * (size + 1) / 2] * 4
    del kept[0]  # after the group


def test_collectives() -> None:
    run(3, _collectives)


def _losses(rank: int, size: int, path: str, shared: bool) -> list[float]:
    if shared:
        tutti.torch.use_shared_allocator()
    with group(rank, size, path):
        torch.manual_seed(3)
        layers = [torch.nn.Linear(600, 700), torch.nn.ReLU(), torch.nn.Linear(700, 600)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.Generator().manual_seed(rank)
        losses = []
        for _ in range(4):
            loss = model(torch.randn(8, 600, generator=data)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert (allocator_stats().get("used", 0) > 4 * MIB) == shared
        return losses


def test_training() -> None:
    assert run(2, _losses, True) == run(2, _losses, False)


def _files() -> set[str]:
    """Name the files of memory for peers that this process maps: its own and its peers'."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return {line.split()[4] for line in maps if "tutti-mem" in line}


def _map_each_other(rank: int, size: int, path: str) -> list[int]:
    with group(rank, size, path):
        dist.all_reduce(_tensor(8))
        plain = len(_files())
        tutti.torch.use_shared_allocator()
        tensor = _tensor(8)
        own = len(_files())
        dist.all_reduce(tensor)
        peers = len(_files())
        for mib in (3, 30, 8):  # other places of the same segment
            tensor = _tensor(mib)
            dist.all_reduce(tensor)
        return [plain, own, peers, len(_files())]


def test_peers_map_the_memory() -> None:
    assert run(2, _map_each_other) == [[0, 1, 2, 2]] * 2


# ---- Whole programs ----

PROGRAM = """
import atexit, torch, tutti.torch
keep = torch.ones(1 << 20)
assert tutti.torch.allocator_stats().get("used", 0) == {used}
class Late:
    def __init__(self): self.tensor = torch.ones(1 << 20)
    def __del__(self): self.tensor = None
late = Late()
late.itself = late
atexit.register(lambda: keep.add_(1))
print("end")
"""


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_variable_and_end_of_the_process(value: str) -> None:
    environment = {**os.environ, "TUTTI_TORCH_SHARED_ALLOCATOR": value}
    program = PROGRAM.format(used=4 * MIB if value == "1" else 0)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
