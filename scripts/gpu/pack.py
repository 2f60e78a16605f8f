"""gpu_session --pack: copies what a session needs of a build to a folder, for a machine that cannot build."""

import re
import shutil
import subprocess
from pathlib import Path

from gpu.arguments import fail

MARK = ".gpu_session-pack"  # the file that says that a folder may be emptied
PROGRAMS = ("bin/*_perf", "tests/tests_cuda_*_test", "tests/cudasim_*_test", "lib/libnccl.so*", "lib/cudasim/libcuda.so.1")
SYSTEM = re.compile(r"(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))[-.]")


def needed(program):
    """Libraries of a program that other machines may lack: all but the C library's."""
    said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", said, re.M)
    return {path for name, path in found if not SYSTEM.match(name) and "libnccl" not in name}


def wrong(build, to, sources):
    """Why the folder must not be emptied, or None. All three paths are resolved."""
    if to == build or to in build.parents or build in to.parents:
        return "it is the build, or one of them is inside the other"
    if to == sources or to in sources.parents:
        return "the sources are there"
    if to.exists() and not to.is_dir():
        return "it is a file"
    if to.is_dir() and any(to.iterdir()) and not (to / MARK).is_file():
        return f"it is not empty, and has no {MARK}, the mark of --pack"
    return None


def begin(to):
    """An empty folder, which a later --pack may empty again, even where this one does not come to its end."""
    if to.exists():
        shutil.rmtree(to)
    to.mkdir(parents=True)
    (to / MARK).write_text("Made by gpu_session --pack; the next one empties this folder.\n")


def copy(build, to):
    files = [f for pattern in PROGRAMS for f in sorted(build.glob(pattern)) if f.is_file()]
    strip = shutil.which("strip")
    libraries = set()
    for f in files:
        target = to / f.relative_to(build)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(f, target)
        if strip:
            subprocess.run([strip, str(target)], check=False)
        libraries |= needed(f)
    (to / "lib/deps").mkdir(parents=True, exist_ok=True)
    for path in sorted(libraries):
        shutil.copy2(path, to / "lib/deps")
    total = sum(f.stat().st_size for f in to.rglob("*") if f.is_file())
    print(f"{to}: {len(files)} files, {len(libraries)} libraries, {total / (1 << 20):.0f} MiB")


def pack(build, value, sources):
    """Empties the folder `value`, if it may be emptied, and fills it. Returns the status."""
    to = Path(value).resolve()
    try:
        why = wrong(build, to, sources)
        if why:
            fail("--pack", value, why, "a folder that is new, empty, or made by --pack")
        begin(to)
        copy(build, to)
    except OSError as error:
        fail("--pack", value, error, "a folder to write to, and ldd")
    return 0
