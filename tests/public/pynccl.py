"""pynccl.py WRAPPER LIBRARY: vLLM's or SGLang's pynccl_wrapper.py, unmodified, on CPU tensors: every function that it
binds is called by 2 and by 3 processes, and every result is checked. What the file imports of its project is stood in
for by the modules below."""

import ctypes
import importlib.util
import logging
import multiprocessing
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import ReduceOp

ctx = multiprocessing.get_context("fork")
COUNT = 1000
DTYPES = "int8 uint8 int32 int64 float16 float32 float64 bfloat16 float8_e4m3fn".split()


def stand_in(name: str, **contents: Any) -> None:
    """A module of the project, with what the wrapper takes from it."""
    module = types.ModuleType(name)
    module.__path__ = []  # type: ignore[attr-defined]
    module.__dict__.update(contents)
    sys.modules[name] = module


def load(path: str, library: str) -> Any:
    class Platform:
        @staticmethod
        def fp8_dtype() -> torch.dtype:
            return torch.float8_e4m3fn

        @staticmethod
        def is_rocm() -> bool:
            return False

    envs = types.ModuleType("vllm.envs")
    envs.VLLM_USE_NCCL_SYMM_MEM = True  # type: ignore[attr-defined]
    sys.modules["vllm.envs"] = envs
    find = lambda: library  # noqa: E731
    stand_in("vllm", envs=envs)
    stand_in("vllm.logger", init_logger=logging.getLogger)
    stand_in("vllm.platforms", current_platform=Platform)
    stand_in("vllm.utils", find_nccl_library=find, nccl_integrity_check=ctypes.CDLL)
    stand_in("vllm.utils.nccl", find_nccl_library=find)
    spec = importlib.util.spec_from_file_location("pynccl_wrapper", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynccl_wrapper"] = module
    spec.loader.exec_module(module)
    return module


def values(rank: int, dtype: torch.dtype, count: int = COUNT) -> torch.Tensor:
    """Small numbers, whose sums and products are exact in every type."""
    return (torch.arange(count) % 3 + 1 + rank).to(dtype)


def equal(have: torch.Tensor, want: torch.Tensor, what: str, rough: bool = False) -> None:
    have, want = have.double(), want.double()
    good = torch.allclose(have, want, rtol=0.02) if rough else torch.equal(have, want)
    assert good, f"{what}: {have[:6].tolist()} is not {want[:6].tolist()}"


class Rank:
    """One rank: the wrapper's library, whose bound functions are counted, and a communicator."""

    def __init__(self, module: Any, path: str, rank: int, size: int, ids: Any) -> None:
        self.m, self.rank, self.size, self.ids = module, rank, size, ids
        self.lib = module.NCCLLibrary(path)
        self.calls = dict.fromkeys(self.lib._funcs, 0)
        self.lib._funcs = {name: self.counted(name, f) for name, f in self.lib._funcs.items()}
        self.comm = self.lib.ncclCommInitRank(size, self.unique_id(), rank)

    def counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.calls[name] += 1
            return function(*args)

        return call

    def unique_id(self) -> Any:
        """Rank 0 makes an id, and the others get its bytes."""
        if self.rank == 0:
            made = self.lib.ncclGetUniqueId()
            for _ in range(self.size - 1):
                self.ids.put(bytes(made.internal))
            return made
        data = self.ids.get()
        if hasattr(self.lib, "unique_id_from_bytes"):
            return self.lib.unique_id_from_bytes(data)
        made = self.m.ncclUniqueId()
        ctypes.memmove(ctypes.addressof(made.internal), data, 128)
        return made

    def wait(self) -> None:
        assert self.lib.lib.tuttiStreamSynchronize(None) == 0

    def type(self, dtype: torch.dtype) -> int:
        return int(self.m.ncclDataTypeEnum.from_torch(dtype))

    def op(self, op: Any) -> int:
        return int(self.m.ncclRedOpTypeEnum.from_torch(op))


def expected(op: Any, size: int, dtype: torch.dtype) -> torch.Tensor:
    all_values = torch.stack([values(r, torch.float64) for r in range(size)])
    if op == ReduceOp.AVG:
        mean = all_values.sum(0) / size
        return mean if dtype.is_floating_point else mean.floor()
    return {
        ReduceOp.SUM: all_values.sum(0),
        ReduceOp.PRODUCT: all_values.prod(0),
        ReduceOp.MAX: all_values.amax(0),
        ReduceOp.MIN: all_values.amin(0),
    }[op]


def reductions(r: Rank) -> None:
    known = [d for d in DTYPES if d != "float8_e4m3fn" or hasattr(r.m.ncclDataTypeEnum, "ncclFloat8e4m3")]
    for dtype in (getattr(torch, name) for name in known):
        send, recv = values(r.rank, dtype), torch.zeros(COUNT, dtype=dtype)
        for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG):
            want, what = expected(op, r.size, dtype), f"{op} of {dtype}"
            rough = op == ReduceOp.AVG and dtype.is_floating_point
            args = (send.data_ptr(), recv.data_ptr(), COUNT, r.type(dtype), r.op(op))
            r.lib.ncclAllReduce(*args, r.comm, None)
            r.wait()
            equal(recv, want, f"all-reduce, {what}", rough and dtype != torch.float8_e4m3fn)
            if hasattr(r.lib, "ncclReduce"):
                recv.zero_()
                r.lib.ncclReduce(*args, 1, r.comm, None)
                r.wait()
                equal(recv, want if r.rank == 1 else torch.zeros(COUNT), f"reduce, {what}", rough)


def movements(r: Rank) -> None:
    kind, each = r.type(torch.float32), COUNT
    whole = torch.cat([values(k, torch.float32) for k in range(r.size)])
    send, recv = values(r.rank, torch.float32), torch.zeros(each * r.size)
    if hasattr(r.lib, "ncclAllGather"):
        r.lib.ncclAllGather(send.data_ptr(), recv.data_ptr(), each, kind, r.comm, None)
        r.wait()
        equal(recv, whole, "all-gather")
    if hasattr(r.lib, "ncclReduceScatter"):
        part = torch.zeros(each)
        r.lib.ncclReduceScatter(whole.data_ptr(), part.data_ptr(), each, kind, r.op(ReduceOp.SUM), r.comm, None)
        r.wait()
        equal(part, r.size * values(r.rank, torch.float32), "reduce-scatter")
    if hasattr(r.lib, "ncclBroadcast"):
        copy = torch.zeros(each)
        r.lib.ncclBroadcast(send.data_ptr(), copy.data_ptr(), each, kind, 1, r.comm, None)
        r.wait()
        equal(copy, values(1, torch.float32), "broadcast")
    if hasattr(r.lib, "ncclSend"):
        messages(r, send, kind)


def messages(r: Rank, send: torch.Tensor, kind: int) -> None:
    right, left, got = (r.rank + 1) % r.size, (r.rank - 1) % r.size, torch.zeros(COUNT)
    if hasattr(r.lib, "ncclGroupStart"):
        r.lib.ncclGroupStart()
        r.lib.ncclSend(send.data_ptr(), COUNT, kind, right, r.comm, None)
        r.lib.ncclRecv(got.data_ptr(), COUNT, kind, left, r.comm, None)
        r.lib.ncclGroupEnd()
    elif r.rank % 2 == 0:
        r.lib.ncclSend(send.data_ptr(), COUNT, kind, right, r.comm, None)
        r.lib.ncclRecv(got.data_ptr(), COUNT, kind, left, r.comm, None)
    else:
        r.lib.ncclRecv(got.data_ptr(), COUNT, kind, left, r.comm, None)
        r.lib.ncclSend(send.data_ptr(), COUNT, kind, right, r.comm, None)
    r.wait()
    equal(got, values(left, torch.float32), "send and receive")


def windows(r: Rank) -> None:
    if not hasattr(r.lib, "ncclCommWindowRegister"):
        return
    size, pointer = 1 << 16, ctypes.c_void_p()
    if hasattr(r.lib, "ncclMemAlloc"):
        pointer.value = r.lib.ncclMemAlloc(size)
    else:
        assert r.lib.lib.ncclMemAlloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    assert pointer.value is not None
    window = r.lib.ncclCommWindowRegister(r.comm, pointer, size, 1)
    assert window.value
    memory = torch.frombuffer((ctypes.c_char * size).from_address(pointer.value), dtype=torch.float32)
    memory[:COUNT] = values(r.rank, torch.float32)
    kind, op = r.type(torch.float32), r.op(ReduceOp.SUM)
    r.lib.ncclAllReduce(pointer, pointer, COUNT, kind, op, r.comm, None)
    r.wait()
    equal(memory[:COUNT], expected(ReduceOp.SUM, r.size, torch.float32), "all-reduce in a window")
    r.lib.ncclCommWindowDeregister(r.comm, window)
    del memory
    if hasattr(r.lib, "ncclMemFree"):
        r.lib.ncclMemFree(pointer.value)
    else:
        assert r.lib.lib.ncclMemFree(pointer) == 0


def the_rest(r: Rank) -> None:
    assert r.lib.ncclGetVersion() == "2.32.3", r.lib.ncclGetVersion()
    if hasattr(r.lib, "ncclGetRawVersion"):
        assert r.lib.ncclGetRawVersion() == 23203
    assert "argument" in r.lib.ncclGetErrorString(4)
    x = torch.ones(4)
    try:
        r.lib.ncclAllReduce(x.data_ptr(), x.data_ptr(), 4, 99, 0, r.comm, None)
        raise AssertionError("a type that does not exist was taken")
    except RuntimeError as error:
        assert "invalid argument" in str(error), error
    if hasattr(r.lib, "ncclCommSuspend"):
        r.lib.ncclCommSuspend(r.comm, 1)
        r.lib.ncclCommResume(r.comm)
    if "ncclCommQueryProperties" in r.calls:
        assert r.lib.has_symbol("ncclCommQueryProperties") and not r.lib.has_symbol("ncclNothing")
        p = r.m.ncclCommProperties()
        p.size, p.magic, p.version = ctypes.sizeof(p), 0xCAFEBEEF, r.m.NCCL_COMM_PROPERTIES_LAYOUT_VERSION
        r.lib.NCCL_CHECK(r.lib._funcs["ncclCommQueryProperties"](r.comm, ctypes.byref(p)))
        assert (p.rank, p.nRanks, p.deviceApiSupport, p.multimemSupport) == (r.rank, r.size, False, False)


def others(r: Rank) -> None:
    """Communicators that are made and ended in other ways."""
    kind, op, x = r.type(torch.int32), r.op(ReduceOp.SUM), torch.ones(1, dtype=torch.int32)
    if hasattr(r.lib, "ncclCommInitRankConfig"):
        comm = r.lib.ncclCommInitRankConfig(r.size, r.unique_id(), r.rank)
        r.lib.ncclAllReduce(x.data_ptr(), x.data_ptr(), 1, kind, op, comm, None)
        r.wait()
        assert x.item() == r.size
        r.lib.ncclCommDestroy(comm)
    if hasattr(r.lib, "ncclCommAbort"):
        r.lib.ncclCommAbort(r.lib.ncclCommInitRank(r.size, r.unique_id(), r.rank))
    r.lib.ncclCommDestroy(r.comm)


def work(module: Any, path: str, rank: int, size: int, ids: Any) -> None:
    torch.set_num_threads(1)
    r = Rank(module, path, rank, size, ids)
    for part in (reductions, movements, windows, the_rest, others):
        part(r)
    left_out = [name for name, calls in r.calls.items() if calls == 0 and not (name == "ncclGetUniqueId" and rank)]
    assert not left_out, f"never called: {', '.join(left_out)}"
    if rank == 0:
        print(f"ok: {size} processes, {len(r.calls)} functions, {sum(r.calls.values())} calls", flush=True)


def main() -> int:
    wrapper, library = sys.argv[1:]
    module = load(wrapper, library)
    for size in (2, 3):
        ids = ctx.SimpleQueue()
        ranks = [ctx.Process(target=work, args=(module, library, rank, size, ids)) for rank in range(size)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join(120)
        late = [one.kill() for one in ranks if one.is_alive()]
        if late or any(one.exitcode != 0 for one in ranks):
            print(f"FAILED: {size} processes of {wrapper}: exit codes {[one.exitcode for one in ranks]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
