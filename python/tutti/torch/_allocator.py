"""Large CPU tensors in memory that peers map. docs/torch.md has the page for users."""

from __future__ import annotations

import os
from pathlib import Path

from tutti.torch import _build

LEAST = 1 << 18
VARIABLE = "TUTTI_TORCH_SHARED_ALLOCATOR"


def wanted() -> bool:
    """Say whether the variable asks for the allocator."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def _memory() -> int:
    """Bytes that this process can have: the machine's, or its control group's where that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def use_shared_allocator(least: int = LEAST, cache: int | None = None) -> None:
    """Put CPU tensors that are made from now on into memory that peers map, where they have `least` bytes or more.

    Operations on them copy once less. Freed memory is used again: up to `cache` bytes of it are kept (None: an eighth
    of the machine's memory), the rest goes back to the system. Holds for the whole process, until it ends; a later call
    changes the numbers. ``TUTTI_TORCH_SHARED_ALLOCATOR=1`` does the same when the back end is loaded. Any thread.
    """
    if least < 1 or (cache is not None and cache < 0):
        raise ValueError(f"tutti: least is {least}, but must be at least 1; cache is {cache}, but must be at least 0")
    _build.extension().use_shared_allocator(least, _memory() // 8 if cache is None else cache)


def empty_cache() -> None:
    """Give the memory of freed tensors back to the system, and try again where it has refused memory."""
    _build.extension().empty_cache()


def allocator_stats() -> dict[str, int]:
    """Give the allocator's figures; empty where it is not in use. In bytes, but for the first and the last one.

    segments: pieces of memory that peers map; mapped: their size; used: of tensors; cached: of freed tensors, with
    pages; held: of freed tensors that forked children may still see; refused: 1 where the system gave no memory.
    """
    stats: dict[str, int] = _build.extension().allocator_stats()
    return stats
