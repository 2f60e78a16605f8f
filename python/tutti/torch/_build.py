"""Compiles C++ extensions for the installed PyTorch, once, and loads the one of torch.distributed."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

from tutti._library import find_library

_SOURCES = Path(__file__).parent / "csrc"
_NAME = "_tutti_torch"
_OLDEST = (2, 9)
_TESTED = "2.13"
_loaded: ModuleType | None = None


def library() -> Path:
    """Find Tutti's library: the package's (tutti._library)."""
    return Path(find_library()).resolve()


def headers() -> Path:
    """Find nccl.h and tutti.h: TUTTI_INCLUDE, else those of the package, else those beside the library."""
    named = os.environ.get("TUTTI_INCLUDE")
    package = Path(__file__).parents[1]
    places = [Path(named)] if named else [package / "include", package.parents[1] / "include"]
    if not named:
        places.append(library().parents[1] / "include")
    for place in places:
        if (place / "tutti.h").is_file():
            return place.resolve()
    raise RuntimeError(
        f"tutti: there is no tutti.h in {', '.join(map(str, places))}; set TUTTI_INCLUDE to the folder that has it"
    )


def _compiler() -> list[str]:
    named = os.environ.get("CXX")
    command = shlex.split(named) if named else next(([c] for c in ("c++", "g++", "clang++") if shutil.which(c)), [])
    if not command or shutil.which(command[0]) is None:
        raise RuntimeError(
            "tutti: the back end for PyTorch must be compiled once, and there is no C++ compiler: "
            f"{named or 'c++, g++ and clang++'} not found. Install one (Debian: apt-get install g++), or set CXX"
        )
    return command


@dataclasses.dataclass(frozen=True)
class Extension:
    """What is compiled: a source with all others, the files that it depends on, and arguments of the compiler."""

    name: str
    source: Path
    files: tuple[Path, ...]
    before: tuple[str, ...] = ()  # arguments before the source
    behind: tuple[str, ...] = ()


def _command(made: Extension, target: Path) -> list[str]:
    from torch.utils.cpp_extension import include_paths, library_paths

    includes = [*include_paths(), sysconfig.get_paths()["include"], str(headers())]
    return [
        *_compiler(),
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *made.before,
        *(arg for path in includes for arg in ("-isystem", path)),
        str(made.source),
        *("-o", str(target)),
        *(f"-L{p}" for p in library_paths()),
        *made.behind,
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ldl", "-pthread"),
    ]


def _key(made: Extension) -> str:
    digest = hashlib.sha256()
    parts = (torch.__version__, str(torch.__file__), sys.version, importlib.machinery.EXTENSION_SUFFIXES[0])
    for part in (*parts, *made.before, *made.behind):
        digest.update(part.encode() + b"\0")
    for source in [*sources(), *made.files, headers() / "nccl.h", headers() / "tutti.h"]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def sources() -> tuple[Path, ...]:
    """Name the sources of the back end."""
    return tuple(sorted(_SOURCES.iterdir()))


def cache() -> Path:
    """Give the folder where compiled extensions are kept: TUTTI_CACHE, else ~/.cache/tutti."""
    named = os.environ.get("TUTTI_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if os.environ.get("TUTTI_CACHE") else Path(named) / "tutti"


def _advice() -> str:
    """Say what to do, where this PyTorch is another than the one that tests run with."""
    if torch.__version__.startswith(_TESTED + "."):
        return ""
    return f". It is tested with PyTorch {_TESTED}: install that one (pip install 'torch=={_TESTED}.*')"


def check_version(version: str) -> None:
    """Raise RuntimeError when this version of PyTorch is too old."""
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise RuntimeError(f"tutti: the back end needs PyTorch {oldest} or newer, and this is {version}")


def compile_once(made: Extension) -> Path:
    """Compile an extension unless that has been done; other processes wait for the first one. Gives its path."""
    check_version(torch.__version__)
    folder = cache() / f"torch-{torch.__version__}-{_key(made)}"
    target = folder / f"{made.name}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel gives it back when its process ends
        if not target.exists():
            draft = folder / f"{made.name}.{os.getpid()}.so"
            done = subprocess.run(_command(made, draft), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                draft.unlink(missing_ok=True)
                raise RuntimeError(
                    f"tutti: the back end does not compile for PyTorch {torch.__version__}{_advice()}:\n"
                    f"{shlex.join(done.args)}\n{done.stderr[-4000:]}"
                )
            draft.rename(target)
    return target


def build() -> Path:
    """Compile the extension unless that has been done. Gives its path."""
    module = f"-DTUTTI_TORCH_MODULE={_NAME}"
    return compile_once(Extension(_NAME, _SOURCES / "extension.cpp", (), (module,), ("-ltorch_python",)))


def extension() -> ModuleType:
    """Load the extension, which opens the library."""
    global _loaded
    if _loaded is None:
        path = build()
        spec = importlib.util.spec_from_file_location(_NAME, path)
        if spec is None or spec.loader is None:
            raise RuntimeError(f"tutti: {path} is no extension module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.open_library(str(library()))
        _loaded = module
    return _loaded
