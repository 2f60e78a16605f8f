"""nccl4py.py: NVIDIA's nccl4py on host memory: the functions of its bindings by 2 and by 3 processes with NumPy arrays,
every result checked; and its communicator (nccl.core), which goes through cuda-core and libcuda.so.1. The library is
the one that the loader finds (LD_LIBRARY_PATH)."""

import ctypes
import multiprocessing
import sys
from typing import Any

import numpy as np

ctx = multiprocessing.get_context("fork")
COUNT = 1000
FLOAT32, INT32, SUM, HOST = 7, 2, 0, 1


def at(array: Any) -> int:
    return int(array.ctypes.data)


def values(rank: int) -> Any:
    return (np.arange(COUNT) % 3 + 1 + rank).astype("f4")


class Rank:
    def __init__(self, rank: int, size: int, ids: Any) -> None:
        from nccl.bindings import nccl

        self.n, self.rank, self.size, self.ids = nccl, rank, size, ids
        self.lib = ctypes.CDLL(nccl.get_library_path())
        self.comm = nccl.comm_init_rank(size, self.unique_id(), rank)

    def unique_id(self) -> Any:
        made = self.n.get_unique_id() if self.rank == 0 else self.n.UniqueId()
        if self.rank == 0:
            for _ in range(self.size - 1):
                self.ids.put(ctypes.string_at(made.ptr, 128))
        else:
            ctypes.memmove(made.ptr, self.ids.get(), 128)
        return made

    def check(self, have: Any, want: Any, what: str) -> None:
        assert self.lib.tuttiStreamSynchronize(None) == 0
        assert np.array_equal(have, want), f"{what}: {have[:6]} is not {want[:6]}"


def collectives(r: Rank) -> None:
    n, c, size = r.n, r.comm, r.size
    send, recv, part = values(r.rank), np.zeros(COUNT * size, "f4"), np.zeros(COUNT, "f4")
    whole, total = np.concatenate([values(k) for k in range(size)]), sum(values(k) for k in range(size))
    n.all_reduce(at(send), at(part), COUNT, FLOAT32, SUM, c, 0)
    r.check(part, total, "all_reduce")
    n.reduce(at(send), at(part), COUNT, FLOAT32, 2, 1, c, 0)
    r.check(part, values(size - 1) if r.rank == 1 else total, "reduce, largest")
    n.all_gather(at(send), at(recv), COUNT, FLOAT32, c, 0)
    r.check(recv, whole, "all_gather")
    n.reduce_scatter(at(whole), at(part), COUNT, FLOAT32, SUM, c, 0)
    r.check(part, size * send, "reduce_scatter")
    n.broadcast(at(send), at(part), COUNT, FLOAT32, 1, c, 0)
    r.check(part, values(1), "broadcast")
    own = values(r.rank)
    n.bcast(at(own), COUNT, FLOAT32, 0, c, 0)
    r.check(own, values(0), "bcast")
    n.allto_all(at(whole), at(recv), COUNT, FLOAT32, c, 0)
    r.check(recv, np.tile(send, size), "allto_all")
    recv[:] = 0
    n.gather(at(send), at(recv), COUNT, FLOAT32, 0, c, 0)
    r.check(recv, whole if r.rank == 0 else np.zeros_like(whole), "gather")
    n.scatter(at(whole), at(part), COUNT, FLOAT32, 0, c, 0)
    r.check(part, send, "scatter")
    n.group_start()
    n.send(at(send), COUNT, FLOAT32, (r.rank + 1) % size, c, 0)
    n.recv(at(part), COUNT, FLOAT32, (r.rank - 1) % size, c, 0)
    n.group_end()
    r.check(part, values((r.rank - 1) % size), "send and recv")
    half = np.full(1, 0.5, "f4")
    op = n.red_op_create_pre_mul_sum(at(half), FLOAT32, HOST, c)
    n.all_reduce(at(send), at(part), COUNT, FLOAT32, op, c, 0)
    n.red_op_destroy(op, c)
    r.check(part, total / 2, "all_reduce, a half of each")


def memory(r: Rank) -> None:
    pointer, size = r.n.mem_alloc(1 << 16), 1 << 16
    array = np.frombuffer((ctypes.c_char * size).from_address(pointer), "f4")
    handle = r.n.comm_register(r.comm, pointer, size)
    window = r.n.comm_window_register(r.comm, pointer, size, 0)
    array[:COUNT] = values(r.rank)
    r.n.all_reduce(pointer, pointer, COUNT, FLOAT32, SUM, r.comm, 0)
    r.check(array[:COUNT], sum(values(k) for k in range(r.size)), "all_reduce in a window")
    assert r.n.win_get_user_ptr(r.comm, window) == pointer
    r.n.comm_window_deregister(r.comm, window)
    r.n.comm_deregister(r.comm, handle)
    del array
    r.n.mem_free(pointer)


def the_rest(r: Rank) -> None:
    n, c = r.n, r.comm
    assert n.get_version() == 23203 and "argument" in n.get_error_string(4)
    assert (n.comm_count(c), n.comm_user_rank(c), n.comm_get_async_error(c)) == (r.size, r.rank, 0)
    assert n.comm_query_properties(c).n_ranks == r.size
    assert "NCCL_DEBUG" in n.param_get_all_keys()
    n.comm_suspend(c, 1)
    n.comm_resume(c)
    assert n.comm_mem_stats(c, 3) > 0
    try:
        n.broadcast(0, 0, 4, FLOAT32, 99, c, 0)
        raise AssertionError("a root that does not exist was taken")
    except n.NCCLError as error:
        assert "invalid argument" in str(error), error
    assert "99" in n.get_last_error(c)
    n.comm_finalize(c)
    n.comm_destroy(c)
    n.comm_abort(n.comm_init_rank(r.size, r.unique_id(), r.rank))


def bindings(rank: int, size: int, ids: Any) -> None:
    r = Rank(rank, size, ids)
    for part in (collectives, memory, the_rest):
        part(r)
    if rank == 0:
        print(f"ok: nccl.bindings, {size} processes", flush=True)


def core(rank: int, size: int, ids: Any) -> None:
    """Its own buffers: an array of NumPy is on no device, and it refuses those."""
    import nccl.core as n

    made = n.get_unique_id() if rank == 0 else None
    for _ in range(size - 1 if rank == 0 else 0):
        ids.put(made.as_bytes)
    comm = n.Communicator.init(nranks=size, rank=rank, unique_id=made or n.UniqueId.from_bytes(ids.get()))
    buffer = n.mem_alloc(4 * 1024)
    array = np.frombuffer((ctypes.c_char * (4 * 1024)).from_address(int(buffer.handle)), "u1")
    array[:] = rank + 1
    comm.allreduce(buffer, buffer, n.SUM)
    assert ctypes.CDLL(str(n.get_version().libnccl.path)).tuttiStreamSynchronize(None) == 0
    assert (array == size * (size + 1) // 2).all(), array
    assert (comm.nranks, comm.rank, comm.get_last_error()) == (size, rank, "")
    half = comm.split(0, rank)
    assert half.nranks == size
    half.destroy()
    try:
        comm.allreduce(np.ones(4, "f4"), np.ones(4, "f4"), n.SUM)
        raise AssertionError("an array on no device was taken")
    except n.NcclInvalid as error:
        assert "device -1" in str(error), error
    del array
    n.mem_free(buffer)
    comm.destroy()
    if rank == 0:
        print(f"ok: nccl.core, {size} processes", flush=True)


def run(work: Any, size: int) -> bool:
    ids = ctx.SimpleQueue()
    ranks = [ctx.Process(target=work, args=(rank, size, ids)) for rank in range(size)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(120)
    late = [one.kill() for one in ranks if one.is_alive()]
    good = not late and all(one.exitcode == 0 for one in ranks)
    if not good:
        print(f"FAILED: {work.__name__}, {size} processes: exit codes {[one.exitcode for one in ranks]}")
    return good


if __name__ == "__main__":
    works = [bindings]
    try:
        import cuda.bindings
        import cuda.core  # noqa: F401

        works.append(core)
    except ImportError as error:
        print(f"left out: nccl.core needs cuda-core and cuda-bindings ({error})")
    sys.exit(not all(run(work, size) for work in works for size in (2, 3)))
