"""A million operations leave nothing behind; many processes form one communicator."""

from __future__ import annotations

import gc
import os
import sys

import numpy as np
from ranks import finish, start_processes

import tutti

ROUNDS = 100_000  # of ten operations


def remains() -> dict[str, int]:
    """What this process has just now; memory in KiB, other things by number."""
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGESIZE") // 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "blocks": sys.getallocatedblocks(),
    }


def one_round(a: tutti.Communicator, b: tutti.Communicator, x: object, y: object, whole: object) -> None:
    with tutti.group():
        a.all_reduce(x)
        b.all_reduce(y)
    with tutti.group():
        a.broadcast(x, root=1)
        b.broadcast(y, root=1)
    with tutti.group():
        a.send(x, 1)
        b.recv(y, 0)
    with tutti.group():
        first, second = a.start.all_gather(x, whole), b.start.all_gather(y, whole)
    first.wait()
    second.wait()
    with tutti.group():
        a.start.all_reduce(x, op=tutti.Op.MAX)  # dropped before it is complete
        last = b.start.all_reduce(y, op=tutti.Op.MAX)
    last.wait()


def test_a_million_operations_leave_nothing() -> None:
    a, b = tutti.Communicator.threads(2)
    x, y, whole = np.zeros(2), np.zeros(2), np.zeros(4)
    for _ in range(ROUNDS // 50):
        one_round(a, b, x, y, whole)
    before = remains()
    later = []
    for count in (ROUNDS // 2, ROUNDS // 2 - ROUNDS // 50):
        for _ in range(count):
            one_round(a, b, x, y, whole)
        later.append(remains())
    after = later[1]
    after["memory"] = min(one["memory"] for one in later)  # once, the system may have pages of its own in it
    a.close()
    b.close()
    grown = {name: after[name] - before[name] for name in before}
    assert grown["files"] <= 0 and grown["threads"] <= 0, grown
    assert grown["memory"] < 1024 and grown["blocks"] < 200, grown  # a byte for each operation would be 1 MB


def test_64_processes() -> None:
    code = """
        import numpy as np, tutti
        with tutti.Communicator.from_env(timeout=120) as comm:
            print(comm.all_reduce(np.ones(3))[0])
    """
    ends = finish(start_processes(64, code), limit=150)
    assert [(status, out) for status, out, _ in ends] == [(0, "64.0\n")] * 64, [err for _, _, err in ends if err][:2]
