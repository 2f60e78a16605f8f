"""The programs of the package, and its distributions in clean virtual environments."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest
from ranks import on_processes

from tutti import bench

HERE = pathlib.Path(__file__).resolve().parent.parent


def run(*command: str | pathlib.Path, limit: float = 100, **env: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **env}, capture_output=True, text=True, timeout=limit
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_demo() -> None:
    page = run(sys.executable, "-m", "tutti.demo", "3")
    assert "3 processes" in page and "[6.0, 60.0]" in page and "TuttiUsageError" in page
    assert len(page.splitlines()) < 40


def test_example() -> None:
    code = (HERE.parent / "examples" / "12_python" / "average.py").read_text()
    outputs = on_processes(3, code)
    assert outputs[0].startswith("3 ranks: y = 3.0") or outputs[0].startswith("3 ranks: y = 2.9"), outputs


def test_bench(tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "times.svg"
    page = run(
        *(sys.executable, "-m", "tutti.bench", "-l", "tutti", "-o", "all_reduce", "broadcast", "-e", "8192"),
        *("--picture", picture),
    )
    assert "| all_reduce, us | 8 B | 256 B | 8 KiB | mean ratio |" in page
    assert picture.read_text().count("<polyline") == 2


def test_table_and_means() -> None:
    rows = [("tutti", "all_reduce", 8, 1.0), ("gloo", "all_reduce", 8, 4.0), ("gloo", "all_reduce", 64, 9.0)]
    text = bench.table([*rows, ("tutti", "all_reduce", 64, 1.0)], ["tutti", "gloo"])
    assert "| gloo | 4 | 9 | 6.00 |" in text
    assert bench.picture(rows).startswith("<svg")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    for module in ("build", "scikit_build_core"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    if os.environ.get("TUTTI_TEST_INSTALL") != "1":
        pytest.skip("builds the library anew, which takes minutes: TUTTI_TEST_INSTALL=1 runs it")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, HERE, limit=900)  # the wheel from the sdist
    return out


def test_sdist_has_the_sources(dist: pathlib.Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"native/include/nccl.h", "native/src/api/coll.c", "csrc/comm.c", "tutti/py.typed"} <= names


def test_wheel_is_complete(dist: pathlib.Path) -> None:
    (path,) = dist.glob("*.whl")
    assert "-cp310-abi3-linux_" in path.name
    names = zipfile.ZipFile(path).namelist()
    assert {"tutti/libnccl.so.2", "tutti/_fast.abi3.so", "tutti/py.typed", "tutti/_fast.pyi"} <= set(names)


def test_wheel_works_in_a_clean_environment(dist: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (path,) = dist.glob("*.whl")
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", path, PYTHONPATH="")
    page = run(python, "-m", "tutti.demo", PYTHONPATH="", PATH="/nonexistent")  # no compiler, no tools
    assert "2 processes" in page
