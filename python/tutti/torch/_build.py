"""Compiles the C++ extension for the installed PyTorch, once, and loads it."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
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


def _command(target: Path) -> list[str]:
    from torch.utils.cpp_extension import include_paths, library_paths

    includes = [*include_paths(), sysconfig.get_paths()["include"], str(headers())]
    libraries = [f"-L{p}" for p in library_paths()]
    return [
        *_compiler(),
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-DTUTTI_TORCH_MODULE={_NAME}",
        *(arg for path in includes for arg in ("-isystem", path)),
        str(_SOURCES / "extension.cpp"),
        *("-o", str(target)),
        *libraries,
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", "-ldl", "-pthread"),
    ]


def _key() -> str:
    digest = hashlib.sha256()
    for part in (torch.__version__, str(torch.__file__), sys.version, importlib.machinery.EXTENSION_SUFFIXES[0]):
        digest.update(part.encode() + b"\0")
    for source in [*sorted(_SOURCES.iterdir()), headers() / "nccl.h", headers() / "tutti.h"]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def cache() -> Path:
    """Give the folder where compiled extensions are kept: TUTTI_CACHE, else ~/.cache/tutti."""
    named = os.environ.get("TUTTI_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if os.environ.get("TUTTI_CACHE") else Path(named) / "tutti"


def build() -> Path:
    """Compile the extension unless that has been done; other processes wait for the first one."""
    folder = cache() / f"torch-{torch.__version__}-{_key()}"
    target = folder / f"{_NAME}.so"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel gives it back when its process ends
        if not target.exists():
            draft = folder / f"{_NAME}.{os.getpid()}.so"
            done = subprocess.run(_command(draft), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                draft.unlink(missing_ok=True)
                raise RuntimeError(
                    f"tutti: the back end does not compile for PyTorch {torch.__version__}:\n"
                    f"{shlex.join(done.args)}\n{done.stderr[-4000:]}"
                )
            draft.rename(target)
    return target


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
