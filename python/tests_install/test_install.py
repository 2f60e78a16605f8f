"""The source distribution and the wheel: built as a user builds them, installed where nothing else is."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent.parent
MANYLINUX = "manylinux_2_28_x86_64"


def run(*command: str | pathlib.Path, limit: float = 100, status: int = 0, **env: str) -> str:
    """Runs a command in this environment, or in `env` alone where there is any; what it has said. One that takes too
    long is ended with all that it has started."""
    words = [str(word) for word in command]
    out, all_of_it = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        words, env=env or None, stdout=out, stderr=all_of_it, text=True, cwd="/", start_new_session=True
    ) as process:
        try:
            page, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == status, page
    return page


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A source distribution, and the wheel that pip makes of it where it is to install it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", out, HERE)
    (source,) = out.glob("*.tar.gz")
    options = ("-v", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", out)
    page = run(sys.executable, "-m", "pip", "wheel", *options, source, limit=900)
    (out / "page").write_text(page)
    return out


@pytest.fixture(scope="module")
def wheel(dist: pathlib.Path) -> pathlib.Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The interpreter of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--no-index", "--no-deps", wheel, PATH=os.environ["PATH"])
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def only_numpy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder from which this interpreter's NumPy can be imported, and nothing else."""
    folder = tmp_path_factory.mktemp("numpy")
    installed = pathlib.Path(np.__file__).parent
    for part in (installed, installed.with_name("numpy.libs")):
        if part.exists():
            (folder / part.name).symlink_to(part)
    return folder


def test_sdist_has_the_sources(dist: pathlib.Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"native/include/nccl.h", "native/src/api/coll.c", "csrc/comm.c", "tutti/py.typed"} <= names
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]


def test_wheel_is_complete(wheel: pathlib.Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"tutti/libnccl.so.2", "tutti/_fast.abi3.so", "tutti/py.typed", "tutti/_fast.pyi"} <= set(names)
    assert {"tutti/include/tutti.h", "tutti_autoload.py", "tutti/torch/csrc/extension.cpp"} <= set(names)


def test_wheel_is_for_older_systems(dist: pathlib.Path, wheel: pathlib.Path) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("older versions of glibc's functions are chosen on x86-64 alone (manylinux/glibc.h)")
    against = re.search(r"tutti: the wheel is for systems like this one, .*", (dist / "page").read_text())
    if against:
        pytest.skip(against[0])
    assert wheel.name.endswith(f"-cp310-abi3-{MANYLINUX}.whl")
    if importlib.util.find_spec("auditwheel") is None:
        pytest.skip("auditwheel is not installed")
    page = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    found = re.search(r'following platform tag: "manylinux_(\d+)_(\d+)_x86_64"', page)
    assert found and (int(found[1]), int(found[2])) <= (2, 28), page


def test_demo_without_anything(python: pathlib.Path) -> None:
    page = run(python, "-m", "tutti.demo", PATH="/nonexistent")  # no compiler, no tools, no NumPy
    assert "2 processes" in page


def test_numpy_without_a_compiler(python: pathlib.Path, only_numpy: pathlib.Path) -> None:
    code = """if True:
        import shutil, threading, numpy as np, tutti
        assert shutil.which("cc") is shutil.which("gcc") is shutil.which("clang") is None
        def work(comm):
            x = np.arange(1000.0) + comm.rank
            with comm:
                assert (comm.all_reduce(x) == 3 * np.arange(1000.0) + 3).all()
                y = np.empty((3, 2), "i4")
                comm.all_gather(np.array([comm.rank, 7], "i4"), y)
                assert (y == [[0, 7], [1, 7], [2, 7]]).all()
                done.append(comm.rank)
        done = []
        threads = [threading.Thread(target=work, args=(comm,)) for comm in tutti.Communicator.threads(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(sorted(done), tutti.__file__)
    """
    page = run(python, "-c", code, PATH="/nonexistent", PYTHONPATH=str(only_numpy))
    assert page.startswith(f"[0, 1, 2] {python.parent.parent}"), page


def test_bench_with_numpy_alone(python: pathlib.Path, only_numpy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    sizes = ("-n", "2", "-e", "256", "-o", "all_reduce", "broadcast", "--picture", tmp_path / "times.svg")
    page = run(python, "-m", "tutti.bench", *sizes, PATH="/nonexistent", PYTHONPATH=str(only_numpy))
    assert "all_reduce" in page and "broadcast" in page, page
    assert (tmp_path / "times.svg").read_text().startswith("<svg")


def test_torch(python: pathlib.Path) -> None:
    """The first use of PyTorch's back end, by this interpreter's PyTorch with the wheel's files. What is compiled here
    is what tests/torch.sh compiles: one of the two finds it done."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    code = f"""if True:
        import torch, torch.distributed as dist
        dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
        x = torch.arange(3.0)
        dist.all_reduce(x)
        assert x.tolist() == [0, 1, 2]
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
        dist.destroy_process_group()
        import tutti.torch
        assert tutti.torch.__file__.startswith({str(packages)!r}), tutti.torch.__file__
        libraries = {{line.split()[-1] for line in open("/proc/self/maps") if "libnccl.so.2" in line}}
        assert {str(packages / "tutti/libnccl.so.2")!r} in libraries, libraries
        print(backend.name(), tutti.torch.build())
    """
    cache = os.environ["TUTTI_CACHE"]
    places = {"PYTHONPATH": str(packages), "TUTTI_CACHE": cache}
    usual = {"PATH": os.environ["PATH"], "CXX": os.environ.get("CXX", "")}
    command = (sys.executable, "-c", code)
    page = run(*command, limit=900, status=0, **places, **usual)
    assert f"tutti {cache}/torch-" in page, page


def test_torch_is_not_there(python: pathlib.Path) -> None:
    page = run(python, "-c", "import tutti.torch", status=1, PATH="/nonexistent")
    assert "ImportError: tutti.torch needs PyTorch" in page and "pip install torch" in page


def test_removed(python: pathlib.Path) -> None:
    page = run(python, "-m", "pip", "uninstall", "-y", "tutti", PATH="/nonexistent")
    assert "Successfully uninstalled" in page
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    assert not list(packages.glob("*tutti*"))
