"""The back end "tutti" of torchcomms, for CPU tensors.

    comm = torchcomms.new_comm("tutti", torch.device("cpu"), name="main")

The installed package makes the name known to torchcomms, which loads this module. The C++ part is compiled then, with
the headers that ``TORCHCOMMS_INCLUDE`` names (``python -m tutti.torchcomms`` does it beforehand). docs/torch.md has
the rest.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from tutti.torch import _build

__all__ = ["build"]

_SOURCES = Path(__file__).parent / "csrc"
_PATH_VARIABLE = "TORCHCOMMS_BACKEND_LIB_PATH_TUTTI"  # where torchcomms finds the library
_HEADER = Path("comms/torchcomms/TorchCommBackend.hpp")


def _package() -> Path:
    spec = importlib.util.find_spec("torchcomms")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "libtorchcomms.so").is_file():
            return Path(place)
    raise RuntimeError("tutti: torchcomms is not installed: no package torchcomms with libtorchcomms.so")


def _headers() -> Path:
    named = os.environ.get("TORCHCOMMS_INCLUDE")
    places = [Path(named)] if named else [_package() / "include"]
    for place in places:
        if (place / _HEADER).is_file():
            return place.resolve()
    raise RuntimeError(
        f"tutti: there is no {_HEADER} in {', '.join(map(str, places))}; set TORCHCOMMS_INCLUDE to the folder that has "
        "it: a checkout of torchcomms of the installed version"
    )


def build() -> Path:
    """Compile the library unless that has been done. Gives its path."""
    package, headers = _package(), _headers()
    interface = sorted((headers / _HEADER.parent).glob("*.hpp"))
    return _build.compile_once(
        _build.Extension(
            "libtutti_torchcomms",
            _SOURCES / "extension.cpp",
            (*sorted(_SOURCES.iterdir()), *interface),
            ("-isystem", str(headers), f'-DTUTTI_LIBRARY_PATH="{_build.library()}"'),
            (f"-L{package}", f"-Wl,-rpath,{package}", "-ltorchcomms"),
        )
    )


if _PATH_VARIABLE not in os.environ:
    os.environ[_PATH_VARIABLE] = str(build())
