"""The build back end: scikit-build-core, after the library's sources have been copied from the repository to native/.
A source distribution contains native/, and is built without the repository. A wheel that needs no more than glibc 2.28
is named so: manylinux_2_28."""

import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from typing import Any

from scikit_build_core import build as _build

HERE = pathlib.Path(__file__).resolve().parent
NEEDED = ["include", "src", "cmake", "CMakeLists.txt", "LICENSE"]
GLIBC = (2, 28)
GLIBC_LIBRARIES = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux.*\.so\.\d")


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


def _needs(library: pathlib.Path) -> list[str]:
    """What a shared library needs that not every system with GLIBC has."""
    env = {**os.environ, "LC_ALL": "C"}
    page = subprocess.run(["readelf", "-dVW", library], env=env, capture_output=True, text=True, check=True)
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", page.stdout)
    versions = re.findall(r"Name: (GLIBC_(\d+)\.(\d+))", page.stdout)
    others = [name for name in needed if not GLIBC_LIBRARIES.fullmatch(name)]
    return others + [name for name, major, minor in versions if (int(major), int(minor)) > GLIBC]


def _rename(wheel: pathlib.Path, old: str, new: str) -> pathlib.Path:
    """Replaces the platform in a wheel's name and in its metadata."""
    target = wheel.with_name(wheel.name.replace(old, new))
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        text = b""
        for entry in source.infolist():  # RECORD, which has the hashes of the others, is the last one
            data = source.read(entry)
            if entry.filename.endswith(".dist-info/WHEEL"):
                data = text = data.replace(old.encode(), new.encode())
            elif entry.filename.endswith(".dist-info/RECORD"):
                digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=")
                line = rb"(?m)^(\S+\.dist-info/WHEEL),.*$"
                data = re.sub(line, rb"\1,sha256=" + digest + b",%d" % len(text), data)
            made.writestr(entry, data)
    wheel.unlink()
    return target


def _name_platform(wheel: pathlib.Path) -> pathlib.Path:
    """Gives a wheel that runs with GLIBC that name; says what is against it."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if ".so" in name]
        try:
            needs = {need for name in files for need in _needs(pathlib.Path(archive.extract(name, folder)))}
        except (OSError, subprocess.CalledProcessError) as error:
            needs = {f"readelf, which tells ({error})"}
    machine = platform.machine()
    tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    if needs:
        print(f"tutti: the wheel is for systems like this one, not {tag}: it needs {', '.join(sorted(needs))}")
        return wheel
    usual = f"-linux_{machine}.whl"
    return _rename(wheel, f"linux_{machine}", tag) if wheel.name.endswith(usual) else wheel


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    _bring_sources()
    name = str(_build.build_wheel(directory, config_settings, metadata_directory))
    return _name_platform(pathlib.Path(directory) / name).name


def build_sdist(directory: str, config_settings: Any = None) -> str:
    _bring_sources()
    return str(_build.build_sdist(directory, config_settings))
