"""The build back end: scikit-build-core, after the library's sources have been copied from the repository to native/.
A source distribution contains native/, and is built without the repository."""

import pathlib
import shutil
from typing import Any

from scikit_build_core import build as _build

HERE = pathlib.Path(__file__).resolve().parent
NEEDED = ["include", "src", "cmake", "CMakeLists.txt", "LICENSE"]


def _bring_sources() -> None:
    root = HERE.parent
    if not (root / "src" / "LEVELS").exists():
        return  # a source distribution
    native = HERE / "native"
    shutil.rmtree(native, ignore_errors=True)
    native.mkdir()
    for name in NEEDED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, native / name, ignore=shutil.ignore_patterns("*_test.c", "__pycache__"))
        else:
            shutil.copy2(source, native / name)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    _bring_sources()
    return list(_build.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    _bring_sources()
    return list(_build.get_requires_for_build_sdist(config_settings))


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    _bring_sources()
    return str(_build.build_wheel(directory, config_settings, metadata_directory))


def build_sdist(directory: str, config_settings: Any = None) -> str:
    _bring_sources()
    return str(_build.build_sdist(directory, config_settings))
