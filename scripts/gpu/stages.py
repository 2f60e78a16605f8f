"""The stages of gpu_session, in the order of their worth: commands, limits of time, and what is read from outputs."""

import functools
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

from gpu import arguments, ask

FINISHED = ("passed", "failed", "timeout", "skipped")
RANKS = (1, 2, 4, 8)
SLOWER = 20  # limits on the driver for tests, which guard against hangs alone


class Command:
    """One command of a stage, and its own limit of time, if it has one.

    parse(output, folder): the figures in its output, or in a file that it wrote there.
    """

    def __init__(self, label, argv, parse=None, env=None, seconds=None):
        self.seconds = seconds
        self.label, self.argv, self.parse, self.env = label, [str(a) for a in argv], parse or nothing, env or {}

    def text(self):
        words = [f"{k}={shlex.quote(v)}" for k, v in self.env.items()]
        return " ".join(words + [shlex.quote(Path(a).name if a.startswith("/") else a) for a in self.argv])


class Stage:
    """commands(session): what to run. lacks(session): why it cannot be run here, or None. planted: by --extra."""

    def __init__(self, name, seconds, tells, commands, lacks=None, planted=False):
        self.planted = planted
        self.name, self.seconds, self.tells, self.commands = name, seconds, tells, commands
        self.lacks = lacks or (lambda session: None)


# ---- What is read from outputs ----


def nothing(text, folder):
    return []


def lines(text, folder):
    return [{"kind": "line", "text": line} for line in text.splitlines() if line.strip()]


def probes(text, folder):
    found = re.findall(r"^probe (\S+) ([0-9.]+) (\S+)$", text, re.M)
    return [{"kind": "probe", "name": n, "value": float(v), "unit": u} for n, v, u in found]


def tests(text, folder):
    ends = re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (\w+)$", text, re.M)
    ran = re.findall(r"^\[==+\] (\d+) test\(s\) run\.$", text, re.M)
    passed = [n for end, n in ends if end == "OK"]
    failed = sorted({n for end, n in ends if end == "FAILED"})
    return [{"kind": "tests", "passed": len(passed), "failed": failed}] if ends or ran else []


def tests_and_probes(text, folder):
    return tests(text, folder) + probes(text, folder)


def perf_rows(name, how, ranks):
    """Reads the file of -J."""

    def parse(text, folder):
        path = folder / "perf.json"
        try:
            rows = json.loads(path.read_text())["results"]
        except (OSError, ValueError):
            return []
        path.unlink()
        return [{"kind": "perf", "program": name, "how": how, "ranks": ranks, "type": r["type"], "op": r["redop"],
                 "bytes": r["size"], "us": r["out_of_place"]["time"], "busbw": r["out_of_place"]["bus_bw"],
                 "wrong": sum(int(r[k].get("nwrong") or 0) for k in ("out_of_place", "in_place"))}
                for r in rows]

    return parse


# ---- Commands ----


def by_lines(argv):
    """The command, whose output comes line by line: what a program has said when it is ended is not lost."""
    return ["stdbuf", "-oL", *argv] if shutil.which("stdbuf") else argv


def test(name, small="", modes=None, parse=tests):
    """A test program. On the driver for tests: tests of that name alone, in the mode that `modes` names."""

    def commands(session):
        argv = [session.build / "tests" / name]
        env = {}
        if session.simulated:
            argv += [small] if small else []
            env = {modes: ""} if modes else {}
        return [Command(name, by_lines(argv), parse, env)]

    return commands


def kernels(session):
    return test("tests_cuda_kernels_test")(session) + test("tests_cuda_perf_data_test")(session)


def perf(session, program, how, ranks, options):
    """A perf program with its ranks in one thread (group), in threads, in processes, or in one thread with a graph."""
    flag = {"group": ["-g"], "threads": ["-t"], "processes": ["-P"], "graph": ["-g"]}[how]
    argv = [session.build / "bin" / f"{program}_perf", *flag, ranks, *options, "-T", "30", "-J",
            session.work / "perf.json"]
    return Command(f"{program} {how} {ranks}", argv, perf_rows(program, how, ranks))


def sweep(session, program, how, some):
    """Small sizes, then large ones, for each number of ranks."""
    small = ["-b", "8", "-e", "64K", "-f", "8", "-n", "100", "-w", "10"]
    large = ["-b", "1M", "-e", "1G", "-f", "4", "-n", "10", "-w", "2"]
    if session.simulated:
        some, small, large = some[:2], ["-b", "8", "-e", "64", "-f", "8", "-n", "2"], ["-b", "4K", "-e", "4K", "-n", "1"]
    if how == "graph":
        small, large = small + ["-G", "10"], large + ["-G", "2"]
    return [perf(session, program, how, n, size) for n in some for size in (small, large)]


def sweeps(how, some):
    return lambda session: sweep(session, "all_reduce", how, some)


def collectives(session):
    names = ("all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce", "gather", "scatter", "sendrecv",
             "hypercube", "alltoallv")
    size = ["-b", "256", "-e", "256", "-n", "1"] if session.simulated else \
        ["-b", "8K", "-e", "512M", "-f", "256", "-n", "10", "-w", "2"]
    if session.simulated:
        return [perf(session, n, "group", 2, size) for n in names]
    return [perf(session, n, how, 4, size) for how in ("group", "processes") for n in names]


def types(session):
    size = ["-b", "256", "-e", "256"] if session.simulated else ["-b", "1000008", "-e", "1000008"]
    return [perf(session, program, "group", 3, [*size, "-n", "1", "-d", "all", "-o", "all"])
            for program in ("all_reduce", "reduce_scatter")][:1 if session.simulated else 2]


def smoke(session):
    most = "64" if session.simulated else "4M"
    return [perf(session, "all_reduce", how, 2, ["-b", "8", "-e", most, "-f", "8", "-n", "2"])
            for how in ("group", "processes")]


def machine(session):
    show = "cat /proc/driver/nvidia/version; nvidia-smi; nvidia-smi -q -d CLOCK; nproc; uname -a; " \
           "for t in nvcc ptxas ncu compute-sanitizer; do command -v $t; done; true"
    return [Command("machine", ["sh", "-c", f"{{ {show}; }} 2>/dev/null"], lines)]


def calibrate(session):
    """The tests of the driver for tests, on the real one: does it do what that one says a driver does?"""
    names = ("words", "stream", "capture", "ipc", "memory", "context")
    return [Command(n, by_lines([session.build / "tests" / f"cudasim_{n}_test"]), tests, seconds=20) for n in names]


def sanitizer(session):
    one = [session.build / "tests/tests_cuda_kernels_test", "test_steps"]
    return [Command(tool, ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *one], tests)
            for tool in ("memcheck", "racecheck")]


def counters(session):
    argv = ["ncu", "--clock-control", "none", "--target-processes", "all", "-k", "regex:combine", "-c", "4", "--csv",
            "--section", "SpeedOfLight", "--section", "Occupancy", session.build / "bin/all_reduce_perf", "-g", "4",
            "-b", "256M", "-e", "256M", "-n", "1", "-w", "0", "-c", "0"]
    return [Command("ncu", argv, lambda text, folder: lines("\n".join(
        x for x in text.splitlines() if x.startswith('"')), folder))]


# ---- PyTorch and NVIDIA's NCCL ----


@functools.lru_cache(maxsize=None)
def find_torch(session):
    """The Python that has PyTorch with CUDA, or None; and why none could be asked, if that is so."""
    silent = []
    for python in ("python3", sys.executable):
        answer = ask.ask([python, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"], session.env,
                         session.left() - 1)
        if answer.code == 0:
            return python, ""
        silent += [f"{python}: {answer.why}"] if answer.code is None else []
    return None, "; ".join(silent)


def lacks_torch(session):
    python, silent = (None, "") if session.simulated else find_torch(session)
    return None if python else f"no PyTorch with CUDA ({silent})" if silent else "no PyTorch with CUDA"


def torch(session):
    python, program = find_torch(session)[0], Path(__file__).parent / "torch_ranks.py"
    ours = {"LD_PRELOAD": str(session.build / "lib/libnccl.so.2")}
    return [Command("torch, Tutti, 2 ranks", [python, program, "2", "Tutti"], probes, ours),
            Command("torch, Tutti, 1 rank", [python, program, "1", "Tutti"], probes, ours),
            Command("torch, NCCL, 1 rank", [python, program, "1", "NCCL"], probes)]


def lacks_tool(name):
    return lambda session: f"no {name}" if session.simulated or not shutil.which(name) else None


def only_real(session):
    return "a real driver is asked" if session.simulated else None


# ---- The list ----


def all_stages():
    return [
        Stage("machine", 20, "which machine, driver and tools", machine),
        Stage("smoke", 40, "two ranks on the GPU, in one process and in two: right at all?", smoke),
        Stage("kernels", 60, "each kernel against the host's bits", kernels),
        Stage("litmus", 60, "order of memory between kernels, streams, the host, processes",
              test("tests_cuda_litmus_test", modes="CUDA_LITMUS_MODE")),
        Stage("probes", 60, "times of the driver's calls, and what waits for what",
              test("tests_cuda_probe_test", parse=tests_and_probes)),
        Stage("perf_group", 90, "all-reduce, ranks in one thread", sweeps("group", RANKS)),
        Stage("perf_processes", 90, "all-reduce, ranks in processes", sweeps("processes", RANKS[1:])),
        Stage("test_comm", 90, "communicators: all functions, threads, processes, graphs, aborts, deaths",
              test("tests_cuda_comm_test", "test_two", "CUDA_COMM_MODE")),
        Stage("test_ipc", 90, "memory between processes", test("tests_cuda_ipc_test", "test_two", "CUDA_IPC_MODE")),
        Stage("test_step", 40, "an all-reduce of the kernels alone", test("cudasim_kernels_step_test", "test_stop")),
        Stage("test_plan", 90, "every algorithm as stream work",
              test("tests_cuda_plan_test", "test_one_rank", "CUDA_PLAN_MODE")),
        Stage("test_capture", 90, "every algorithm in graphs",
              test("tests_cuda_capture_test", "test_refused", "CUDA_CAPTURE_MODE")),
        Stage("test_capture_ipc", 90, "graphs of ranks in several processes, each with its own",
              test("tests_cuda_capture_ipc_test", "test_times", "CUDA_CAPTURE_MODE")),
        Stage("test_capture_net", 90, "graphs of ranks that seem to be on several machines",
              test("tests_cuda_capture_net_test", "test_streams", "CUDA_CAPTURE_MODE")),
        Stage("perf_threads", 60, "all-reduce, ranks in threads", sweeps("threads", RANKS[1:])),
        Stage("perf_graph", 60, "all-reduce in graphs", sweeps("graph", RANKS)),
        Stage("collectives", 90, "the other functions, 4 ranks", collectives),
        Stage("types", 60, "all types and operations on device memory", types),
        Stage("torch", 90, "PyTorch with this library; NCCL where one rank has a GPU", torch, lacks_torch),
        Stage("sanitizer", 90, "compute-sanitizer: accesses and races of kernels", sanitizer,
              lacks_tool("compute-sanitizer")),
        Stage("counters", 60, "ncu: how near a reduction is to the GPU's limits", counters, lacks_tool("ncu")),
        Stage("calibrate", 60, "does the driver for tests do as the driver does?", calibrate, only_real),
    ]


def extra(texts, known):
    """The stages of --extra; known: names that others have."""
    return [Stage(name, seconds, command,
                  lambda session, c=command: [Command("extra", ["sh", "-c", c], tests_and_probes)], planted=True)
            for name, seconds, command in arguments.extra(texts, known)]
