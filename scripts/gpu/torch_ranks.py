"""torch_ranks.py RANKS NAME: PyTorch's back end "nccl" with so many processes on GPU 0: results, and a few times.

Which library that is, LD_PRELOAD says; NAME is for the lines.
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def expect(what, got, want):
    if not torch.equal(got.cpu(), want.cpu()):
        raise SystemExit(f"{what}: wrong")


def check_functions(rank, ranks):
    device = torch.device("cuda", 0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        mine = torch.arange(1000, device=device).remainder(7).to(dtype) + rank
        others = [(mine - rank + r).to(dtype) for r in range(ranks)]
        total = mine.clone()
        dist.all_reduce(total)
        expect(f"all_reduce {dtype}", total, sum(others[1:], others[0]))
        every = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(every, mine)
        expect(f"all_gather {dtype}", torch.cat(every), torch.cat(others))
        first = mine.clone()
        dist.broadcast(first, 0)
        expect(f"broadcast {dtype}", first, others[0])
        part = torch.empty(1000, dtype=dtype, device=device)
        dist.reduce_scatter(part, [mine.clone() for _ in range(ranks)])
        expect(f"reduce_scatter {dtype}", part, sum(others[1:], others[0]))
    dist.barrier()


def train(rank):
    """A step of training: all ranks have the same gradients."""
    torch.manual_seed(1)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(0), device_ids=[0])
    net(torch.full((8, 64), float(rank + 1), device="cuda:0")).sum().backward()
    mine = next(net.parameters()).grad
    first = mine.clone()
    dist.broadcast(first, 0)
    expect("gradients", mine, first)


def time_of(call, n):
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n * 1e6


def measure(rank, ranks, name):
    for floats, text in ((2, "8_B"), (16384, "64_KiB"), (1 << 24, "64_MiB")):
        buffer = torch.ones(floats, device="cuda:0")
        us = time_of(lambda b=buffer: dist.all_reduce(b), 50)
        if rank == 0:
            print(f"probe torch_{name}_all_reduce_{ranks}_ranks_{text} {us:.3f} us", flush=True)


def body(rank, ranks, name, path):
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=ranks)
    check_functions(rank, ranks)
    train(rank)
    measure(rank, ranks, name)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        count = int(sys.argv[1])
        mp.spawn(body, args=(count, sys.argv[2], os.path.join(folder, "meet")), nprocs=count)
