"""python -m tutti.demo [RANKS]: what the package does, on one page. RANKS (2): processes of this machine."""

from __future__ import annotations

import argparse
import array
import os
import sys
import time

import tutti

from ._spawn import spawn


class Page:
    """Prints what rank 0 has to say."""

    def __init__(self, comm: tutti.Communicator) -> None:
        self._quiet = comm.rank != 0

    def line(self, text: str = "") -> None:
        if not self._quiet:
            print(text, flush=True)


def numbers(*values: float) -> array.array[float]:
    return array.array("d", values)


def show_collectives(comm: tutti.Communicator, page: Page) -> None:
    me, size = comm.rank, comm.size
    page.line("operation        rank 0 passes        rank 0 gets")
    for name, op in (("SUM", tutti.Op.SUM), ("MAX", tutti.Op.MAX)):
        x = numbers(me + 1, 10 * (me + 1))
        before = list(x)
        comm.all_reduce(x, op=op)
        page.line(f"all_reduce {name}   {before!s:20} {list(x)}")
    gathered = comm.all_gather(numbers(me), numbers(*[-1] * size))
    page.line(f"all_gather       {[float(me)]!s:20} {list(gathered)}")
    mine = numbers(*[10 * me + to for to in range(size)])
    page.line(f"all_to_all       {list(mine)!s:20} {list(comm.all_to_all(mine, numbers(*[0] * size)))}")
    inbox = bytearray(8)
    with tutti.group():
        comm.send(b"rank %-3d" % me, (me + 1) % size)
        comm.recv(inbox, (me - 1) % size)
    page.line(f"send and recv    {'rank 0':20} {bytes(inbox).decode().rstrip()}")


def show_times(comm: tutti.Communicator, page: Page) -> None:
    page.line("\nall_reduce of     takes (this machine, just now)")
    for size, rounds in ((8, 500), (8 << 10, 200), (8 << 20, 5)):
        x = memoryview(tutti.alloc(size)).cast("d")
        comm.all_reduce(x)
        comm.barrier()
        start = time.perf_counter()
        for _ in range(rounds):
            comm.all_reduce(x)
        page.line(f"{size:>10} bytes {(time.perf_counter() - start) / rounds * 1e6:12.1f} us")


def show_errors(comm: tutti.Communicator, page: Page) -> None:
    page.line("\nWrong calls are exceptions:")
    try:
        comm.all_reduce(b"read-only")
    except BufferError as error:
        page.line(f"  BufferError: {error}")
    broken = comm.split(0)
    assert broken is not None
    try:
        broken.all_reduce(numbers(*[0] * (1 + comm.rank)))  # every rank another count
    except tutti.TuttiError as error:
        page.line(f"  {type(error).__name__}: {error}")
    broken.abort()


def rank_main() -> None:
    with tutti.Communicator.from_env(timeout=60) as comm:
        page = Page(comm)
        page.line(f"tutti: {comm.size} processes, interface of NCCL {'.'.join(map(str, tutti.version()))}\n")
        show_collectives(comm, page)
        show_times(comm, page)
        show_errors(comm, page)
        comm.barrier()
        page.line("\ndocs/python.md is the guide; help(tutti.Communicator) has every operation.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tutti.demo", description=__doc__)
    parser.add_argument("ranks", nargs="?", type=int, default=2, choices=range(2, 5), help="processes: 2 to 4")
    arguments = parser.parse_args()
    if "TUTTI_DEMO" in os.environ:
        rank_main()
        return 0
    return spawn("tutti.demo", arguments.ranks, [], TUTTI_DEMO="1", NCCL_DEBUG=os.environ.get("NCCL_DEBUG", "NONE"))


if __name__ == "__main__":
    sys.exit(main())
