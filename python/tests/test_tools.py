"""The programs of the package."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

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
    assert "| all_reduce, us | ranks | 8 B | 256 B | 8 KiB | mean ratio |" in page
    assert picture.read_text().count("<polyline") == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--limit", "nan"], "--limit: needs a number of seconds above 0"),
        (["--limit", "-1"], "--limit: needs a number of seconds above 0"),
        (["--picture", "/nowhere/times.svg"], "--picture: no file can be made in /nowhere"),
        (["-n", "0"], "needs ranks >= 1"),
    ],
)
def test_wrong_options_of_bench(options: list[str], text: str, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", *options])
    with pytest.raises(SystemExit, match="2"):
        bench.main()
    assert text in capsys.readouterr().err


def test_table_and_means() -> None:
    rows = [
        *(("tutti", ranks, "all_reduce", size, 1.0) for ranks in (2, 4) for size in (8, 64)),
        *(("gloo", 2, "all_reduce", 8, 4.0), ("gloo", 2, "all_reduce", 64, 9.0), ("gloo", 4, "all_reduce", 8, 2.0)),
    ]
    text = bench.table(rows, ["tutti", "gloo"])
    assert "| gloo | 2 | 4 | 9 | 6.00 |" in text
    assert "| gloo | 4 | 2 |  | 2.00 |" in text
    long = bench.table(
        [("tutti", 2, "broadcast", size, took) for size, took in ((8, 0.1234), (64, 98765.4))], ["tutti"]
    )
    assert "| tutti | 2 | 0.123 | 98800 | 1.00 |" in long
    means = bench.summary(rows, ["tutti", "gloo"])
    assert "| time over tutti's | 2 ranks | 4 ranks | all |" in means
    assert "| gloo | 6.00 | 2.00 | 4.16 |" in means  # of three: the cube root of 72
    assert bench.picture(rows).count("<polyline") == 4
