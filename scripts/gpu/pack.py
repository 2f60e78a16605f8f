"""gpu_session --pack: copies what a session needs of a build to a folder, for a machine that cannot build."""

import re
import shutil
import subprocess

PROGRAMS = ("bin/*_perf", "tests/tests_cuda_*_test", "tests/cudasim_*_test", "lib/libnccl.so*", "lib/cudasim/libcuda.so.1")
SYSTEM = re.compile(r"(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))[-.]")


def needed(program):
    """Libraries of a program that other machines may lack: all but the C library's."""
    said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", said, re.M)
    return {path for name, path in found if not SYSTEM.match(name) and "libnccl" not in name}


def pack(build, to):
    files = [f for pattern in PROGRAMS for f in sorted(build.glob(pattern)) if f.is_file()]
    if not files:
        print(f"{build}: nothing is built there")
        return 1
    shutil.rmtree(to, ignore_errors=True)
    libraries = set()
    for f in files:
        target = to / f.relative_to(build)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(f, target)
        subprocess.run(["strip", str(target)], check=False)
        libraries |= needed(f)
    (to / "lib/deps").mkdir(parents=True, exist_ok=True)
    for path in sorted(libraries):
        shutil.copy2(path, to / "lib/deps")
    total = sum(f.stat().st_size for f in to.rglob("*") if f.is_file())
    print(f"{to}: {len(files)} files, {len(libraries)} libraries, {total / (1 << 20):.0f} MiB")
    return 0
