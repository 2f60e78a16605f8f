#!/usr/bin/env python3
"""predict.py: the explorer's predictions beside measured times, over hosts that lie far apart.

  bench/predict/predict.py measure [BUILD]   runs the perf programs over namespaces with wires (needs root); adds to the results
  bench/predict/predict.py fit [BUILD]       finds the machine's costs that explain some of the results best
  bench/predict/predict.py compare [BUILD]   predicts all results with these costs: tables and a picture
  bench/predict/predict.py replay [BUILD]    traces a job of four hosts, and predicts it from its trace
  bench/predict/predict.py far [BUILD]       the library's own choices, with the delay that it has seen, and without
  bench/predict/predict.py local [BUILD]     two ranks on this machine, by shared memory and by TCP: times, and what was predicted
  bench/predict/predict.py all [BUILD]

Results: BUILD/predict.json (one line for each run and round, in the order of measuring; medians of the rounds count). `measure` leaves
out what is there already, so it can be broken off. Costs: BUILD/predict.link. PREDICT_WIRES, PREDICT_HOSTS: only these, as
"1,0.1 10,5" (Gbit/s, ms) and "2 4". PREDICT_ROUNDS: how many rounds there shall be.
"""

import collections
import concurrent.futures
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

WIRES = [(10, 0.1), (1, 0.1), (25, 0.1), (10, 1), (1, 1), (25, 1), (10, 5), (1, 5), (25, 5)]  # Gbit/s, ms
HOSTS = [2, 4, 8]
PROGRAMS = {
    "allreduce": ("all_reduce_perf", ["ring", "tree", "rd", "oneshot"]),
    "allgather": ("all_gather_perf", ["ring", "pat", "oneshot"]),
    "reducescatter": ("reduce_scatter_perf", ["ring", "pat"]),
    "broadcast": ("broadcast_perf", ["ring", "tree", "oneshot"]),
    "alltoall": ("alltoall_perf", [""]),
}
LEAST, MOST, FACTOR = 8, 2 << 20, 8
ROUNDS = 3  # the same run takes another time an hour later

# Costs that are looked for, and where the search begins: microseconds (tutti-topo simulate --link).
COSTS = {"way": 6.0, "rouse": 3.8, "idle": 42.0, "wake": 1.6, "work": 2.7, "kib": 0.14, "own": 0.05, "sum": 0.4, "fetch": 8.8, "each": 3.0,
         "change": 9.3, "slice": 1350.0, "carry": 0.21, "carry_kib": 0.013}
FIT_FACTOR = 512


def fitted(case):
    """Is the case one of those that the costs are found with?"""
    return case["hosts"] != 4 and case["gbit"] == 10 and case["ms"] < 5


def parts(case):
    """What is run one behind the other: (first and last size, operations that are timed, those before, how often all of it). Connections
    have to warm up, and short times vary. Small messages in one direction alone take some microseconds each: when the ranks leave the
    barrier, which is the scheduler's choice, would decide what few of them take. (Both trees of eight make ranks wait for each other.)"""
    far = case["ms"] >= 5
    if case["coll"] == "broadcast":
        both = case["algo"] == "tree" and case["hosts"] > 4
        return [(LEAST, 32 << 10, 200 if both else 2000, 10, 1 if both and far else 4), (256 << 10, MOST, 20, 4, 1 if far else 3)]
    return [(LEAST, MOST, 5 if far else 10, 4 if far else 6, 1 if far else 2 if case["ms"] >= 1 else 3)]


# ---- measuring ----


def key(case):
    return (case["gbit"], case["ms"], case["hosts"], case["coll"], case["algo"])


def load_rounds(path):
    """All lines of each run, in the order of measuring."""
    runs = collections.OrderedDict()
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                try:
                    case = json.loads(line)
                except ValueError:  # the last one, when measuring was broken off
                    continue
                runs.setdefault(key(case), []).append(case)
    return runs


def load(path):
    """Each run with the medians of its rounds."""
    out = collections.OrderedDict()
    for name, rounds in load_rounds(path).items():
        us = {size: statistics.median_low(r["us"][size] for r in rounds) for size in rounds[0]["us"]}
        out[name] = dict(rounds[0], us=us)
    return out


def make_wire(build):
    os.makedirs(build + "/bench", exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-o", build + "/bench/wire", ROOT + "/tests/netns/wire.c"], check=True)


def others():
    """Seconds that the ranks' cores, all but the last, have spent for others than this program and its children."""
    with open("/proc/stat") as f:
        cores = [line.split()[1:4] for line in f.readlines()[1:os.cpu_count()]]
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(int(t) for core in cores for t in core) / os.sysconf("SC_CLK_TCK") - sum(u.ru_utime + u.ru_stime for u in own)


def run_alone(command, env, tries=5):
    """Runs it again where others took more than a tenth of a processor meanwhile; the last time counts anyway."""
    for _ in range(tries):
        began, before = time.monotonic(), others()
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if others() - before < max(0.1 * (time.monotonic() - began), 0.05):
            break
    return done


def times_of(command, env, tries=5):
    """Microseconds by size, as a perf program prints them: lists of those of all cycles, in place and not."""
    done = run_alone(command, env, tries)
    if done.returncode != 0:
        sys.exit("predict.py: %s: %s%s" % (" ".join(command), done.stdout[-2000:], done.stderr[-2000:]))
    times = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        word = line.split()
        if word and word[0].isdigit() and int(word[0]) > 0:
            times[word[0]] += [float(word[5]), float(word[9])]
    return times


def run_program(build, case, variables=(), tries=5):
    """Microseconds by size: the median of all times, in place and not; of two, the smaller, since what else runs only adds."""
    command = [ROOT + "/tests/netns/run.sh", "-H", str(case["hosts"]), "-r", "1", "-s", "300",
               "-w", "%g,%g,%d" % (case["gbit"], case["ms"], os.cpu_count() - 1)]
    command += ["-e", "NCCL_HOST_SPIN_US=0"]  # ranks that share cores
    if case["algo"]:
        command += ["-e", "NCCL_ALGO=" + case["algo"]]
    for variable in variables:
        command += ["-e", variable]
    command += [build + "/bin/" + PROGRAMS[case["coll"]][0], "-f", str(FACTOR), "-c", "0", "-a", "3"]
    times = {}
    for part in parts(case):
        options = [word for option, number in zip(("-b", "-e", "-n", "-w", "-N"), part) for word in (option, str(number))]
        times.update(times_of(command + options, dict(os.environ, TUTTI_WIRE=build + "/bench/wire"), tries))
    return {size: statistics.median_low(values) for size, values in times.items()}


def chosen(name, default, read):
    return [read(w) for w in os.environ[name].split()] if os.environ.get(name) else default


def cases():
    for gbit, ms in chosen("PREDICT_WIRES", WIRES, lambda w: tuple(float(x) for x in w.split(","))):
        for hosts in chosen("PREDICT_HOSTS", HOSTS, int):
            for coll, (_, algos) in PROGRAMS.items():
                for algo in algos:
                    yield {"gbit": float(gbit), "ms": float(ms), "hosts": hosts, "coll": coll, "algo": algo}


def measure(build):
    make_wire(build)
    path = build + "/predict.json"
    done = load_rounds(path)
    for number in range(int(os.environ.get("PREDICT_ROUNDS") or ROUNDS)):
        for case in cases():
            if len(done.get(key(case), [])) > number:
                continue
            case["us"] = run_program(build, case)
            done.setdefault(key(case), []).append(case)
            with open(path, "a") as f:
                f.write(json.dumps(case) + "\n")


# ---- predicting ----


def link_text(costs):
    return ",".join("%s=%.4g" % c for c in costs.items())


def predicted_by(build, options, algo):
    """Microseconds by size."""
    command = [build + "/bin/tutti-topo", "simulate", "--measured", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **algo_variable(algo)))
    if done.returncode != 0:
        sys.exit("predict.py: %s: %s" % (" ".join(command), done.stderr))
    return {w[0]: float(w[3]) for w in (line.split() for line in done.stdout.splitlines()) if w and w[0] != "#"}


def algo_variable(algo):
    return {"NCCL_ALGO": algo} if algo else {}


def predict(build, case, costs, factor):
    out = {}
    link = "gbit=%g,ms=%g,cores=%d,%s" % (case["gbit"], case["ms"], os.cpu_count() - 1, link_text(costs))
    for first, last, operations, _, _ in parts(case):
        out.update(predicted_by(build, ["-N", str(case["hosts"]), "-n", str(operations), "--coll", case["coll"], "-b", str(first),
                                        "-e", str(last), "-f", str(factor), "--link", link], case["algo"]))
    return out


def errors_of(build, runs, costs, factor=FACTOR):
    """(run, size, measured, predicted) of every size."""
    out, runs = [], list(runs)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        predictions = list(pool.map(lambda case: predict(build, case, costs, factor), runs))
    for case, predicted in zip(runs, predictions):
        out += [(case, size, us, predicted[size]) for size, us in case["us"].items() if size in predicted]
    return out


def share(values, part):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def relative(error):
    return abs(error[3] / error[2] - 1)


def score(build, runs, costs):
    errors = [min(relative(e), 1) for e in errors_of(build, runs, costs, FIT_FACTOR)]
    return statistics.mean(errors) + share(errors, 0.5) + share(errors, 0.9) / 2


def fit(build, rounds=8):
    """Changes one cost at a time, and keeps what explains the runs better."""
    runs = [case for case in load(build + "/predict.json").values() if fitted(case)]
    if not runs:
        sys.exit("predict.py: none of the runs that costs are found with has been measured: 2 or 8 hosts")
    costs, step = dict(COSTS), 0.4
    best = score(build, runs, costs)
    for _ in range(rounds):
        before = best
        for name in COSTS:
            for factor in (1 - step, 1 + step):
                other = dict(costs, **{name: costs[name] * factor})
                now = score(build, runs, other)
                if now < best:
                    best, costs = now, other
                    break
        step *= 1 if best < before else 0.6
    with open(build + "/predict.link", "w") as f:
        f.write(link_text(costs) + "\n")
    print("%d runs: %s" % (len(runs), link_text(costs)))


# ---- comparing ----


def row(name, errors):
    r = [relative(e) for e in errors]
    return "| %s | %d | %.1f %% | %.1f %% |" % (name, len(r), 100 * share(r, 0.5), 100 * share(r, 0.9))


def tables(errors):
    yield "| | times | median error | 90th percentile |"
    yield "|---|---|---|---|"
    yield row("all", errors)
    for what, of in (("%g Gbit/s, %g ms", lambda e: (e[0]["gbit"], e[0]["ms"])), ("%d hosts", lambda e: (e[0]["hosts"],)),
                     ("%s", lambda e: (e[0]["coll"],)), ("%s B", lambda e: (int(e[1]),))):
        for value in sorted({of(e) for e in errors}):
            yield row(what % value, [e for e in errors if of(e) == value])


def repeated(build):
    """How far the first two rounds of the same runs differ: [(run, size, first, second)]."""
    twice = [r for r in load_rounds(build + "/predict.json").values() if len(r) > 1]
    return [(r[0], size, us, r[1]["us"][size]) for r in twice for size, us in r[0]["us"].items()]


def choices(errors):
    """(cases, those where the algorithm that is predicted fastest takes at most 1.05 times as long as the fastest)."""
    by_case = collections.defaultdict(list)
    for case, size, measured, predicted in errors:
        by_case[key(case)[:4] + (size,)].append((predicted, measured))
    several = [c for c in by_case.values() if len(c) > 1]
    return len(several), sum(min(c)[1] <= 1.05 * min(m for _, m in c) for c in several)


def picture(errors, path):
    """Predicted over measured, one point for each time; both axes logarithmic, from 1 µs to 10 s."""
    import math
    width, margin, decades = 580, 66, 7
    at = lambda us: margin + (width - 2 * margin) * min(max(math.log10(us), 0), decades) / decades
    colours = {"allreduce": "#1f5fa8", "allgather": "#c0392b", "reducescatter": "#7d3c98", "broadcast": "#1e8449", "alltoall": "#b9770e"}
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">' % (width, width),
           '<rect width="100%" height="100%" fill="white"/>']
    for d in range(decades + 1):
        x, label = at(10 ** d), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"][d]
        out += ['<path d="M%.1f %d V%d M%d %.1f H%d" stroke="#ddd" fill="none"/>' % (x, margin, width - margin, margin, width - x, width - margin),
                '<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (x, width - margin + 16, label),
                '<text x="%d" y="%.1f" text-anchor="end">%s</text>' % (margin - 4, width - x + 4, label)]
    out.append('<path d="M%d %d L%d %d" stroke="#888"/>' % (margin, width - margin, width - margin, margin))
    for coll, colour in colours.items():
        points = "".join("M%.1f %.1fh0" % (at(e[2]), width - at(e[3])) for e in errors if e[0]["coll"] == coll)
        out.append('<path d="%s" stroke="%s" stroke-width="4" stroke-linecap="round" stroke-opacity="0.5"/>' % (points, colour))
    for i, (coll, colour) in enumerate(colours.items()):
        out.append('<text x="%d" y="%d" fill="%s">%s</text>' % (margin + 8, margin + 16 + 15 * i, colour, coll))
    out += ['<text x="%d" y="%d" text-anchor="middle">measured</text>' % (width // 2, width - 10),
            '<text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %d)">predicted</text>' % (width // 2, width // 2), "</svg>"]
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def known_costs(build):
    if not os.path.exists(build + "/predict.link"):
        sys.exit("predict.py: %s/predict.link is missing: `predict.py fit` writes it, after `measure`" % build)
    with open(build + "/predict.link") as f:
        return {name: float(value) for name, value in (c.split("=") for c in f.read().strip().split(","))}


def replay(build):
    """A job of four hosts on wires of 10 Gbit/s and 1 ms, with the library's own choice of algorithms."""
    make_wire(build)
    with tempfile.TemporaryDirectory() as traces:
        for coll in ("allreduce", "allgather", "reducescatter", "alltoall"):
            case = {"gbit": 10.0, "ms": 1.0, "hosts": 4, "coll": coll, "algo": ""}
            run_program(build, case, ("NCCL_PROFILER_PLUGIN=trace", "TUTTI_TRACE_DIR=" + traces))
        job = build + "/predict-job.csv"
        files = [os.path.join(traces, name) for name in sorted(os.listdir(traces)) if name.endswith(".json")]
        subprocess.run([build + "/bin/tutti-trace", "workload", "-o", job, *files], check=True)
    link = "gbit=10,ms=1,cores=%d,%s" % (os.cpu_count() - 1, link_text(known_costs(build)))
    subprocess.run([build + "/bin/tutti-topo", "simulate", "--measured", "-N", "4", "--link", link, "--workload", job], check=True)


def far(build):
    """Rounds of runs with and without, one behind the other: what else runs meets both."""
    make_wire(build)
    sizes = [str(LEAST * FACTOR**i) for i in (2, 4, 5, 6)]
    print("| Gbit/s, ms | hosts | |" + "".join(" %s B |" % size for size in sizes) + "\n|---|---|---|" + "---|" * len(sizes))
    for gbit, ms in chosen("PREDICT_WIRES", [(10, 1), (10, 5)], lambda w: tuple(float(x) for x in w.split(","))):
        for hosts in chosen("PREDICT_HOSTS", [4, 8], int):
            for coll in ("allreduce", "allgather", "reducescatter", "broadcast"):
                case = {"gbit": gbit, "ms": ms, "hosts": hosts, "coll": coll, "algo": ""}
                rounds = [[run_program(build, case, ("TUTTI_NET_DELAY=%d" % us,), 1) for us in (0, -1)] for _ in range(ROUNDS)]
                cells = []
                for size in sizes:
                    before, after = (statistics.median(r[i][size] for r in rounds) for i in (0, 1))
                    cells.append("%.2f → %.2f, × %.1f" % (before / 1e3, after / 1e3, before / after))
                print("| %g, %g | %d | %s | %s |" % (gbit, ms, hosts, coll, " | ".join(cells)), flush=True)


def line_of(build, figures):
    """Measures the machine's figures into a file. Picoseconds for a cache line from core to core; 0: too much else runs."""
    done = subprocess.run([build + "/bin/tutti-tune", "--machine", "--output", figures], capture_output=True)
    if done.returncode != 0:
        return 0
    with open(figures) as f:
        return next(int(line.split("=")[1]) for line in f if line.startswith("line_ps"))


def times_beside_figures(build, figures, command, env):
    """Times of a run during which the machine did not change: a virtual one may be moved to other cores, where lines take five times as
    long."""
    for _ in range(20):
        before = line_of(build, figures)
        times = times_of(command, env)
        if before > 0 and 2 / 3 < line_of(build, figures) / before < 3 / 2:
            return {size: statistics.median_low(us) for size, us in times.items()}
    sys.exit("predict.py: this machine's figures change all the time")


def local(build):
    """Two ranks on this machine. No costs are found: the tool has its own, for this machine's figures."""
    figures = build + "/predict.figures"
    os.environ["NCCL_HOST_FIGURES"] = figures
    for name, ranks, where in (("shared memory", [], ["--ranks", "2"]),
                               ("TCP", [ROOT + "/tests/netns/run.sh", "-H", "2", "-r", "1", "-f", "0"], ["-N", "2"])):
        errors = []
        for coll, (program, algos) in PROGRAMS.items():
            for algo in algos + (["direct"] if not ranks and coll != "alltoall" else []):
                for first, last, operations in (("8", "32K", "200"), ("256K", "16M", "20")):
                    sizes = ["-b", first, "-e", last, "-f", "8", "-n", operations]
                    command = ranks + [build + "/bin/" + program, *sizes, "-c", "0", "-a", "3", "-w", "10", "-N", "3"]
                    measured = times_beside_figures(build, figures, command + ([] if ranks else ["-P", "2"]),
                                                    dict(os.environ, **algo_variable(algo)))
                    predicted = predicted_by(build, [*where, *sizes, "--coll", coll], algo)
                    errors += [({"coll": coll, "algo": algo}, size, us, predicted[size]) for size, us in measured.items() if size in predicted]
        print("\nTwo ranks, %s:\n\n| | times | median error | 90th percentile |\n|---|---|---|---|" % name)
        print("\n".join([row("all", errors)] + [row(c, [e for e in errors if e[0]["coll"] == c]) for c in PROGRAMS]))
        with open(build + "/predict-%s.csv" % name.split()[-1].lower(), "w") as f:
            f.writelines("%s,%s,%s,%.2f,%.2f\n" % (e[0]["coll"], e[0]["algo"], *e[1:]) for e in errors)


def compare(build):
    costs = known_costs(build)
    errors = errors_of(build, load(build + "/predict.json").values(), costs)
    others = [e for e in errors if not fitted(e[0])]
    if not others or len(others) == len(errors):
        sys.exit("predict.py: too few runs have been measured")
    print("Costs: `%s`\n" % link_text(costs))
    print("%d times that the costs were found with: median %.1f %%, 90th percentile %.1f %%. The others:\n"
          % (len(errors) - len(others), *(100 * share([relative(e) for e in errors if fitted(e[0])], p) for p in (0.5, 0.9))))
    print("\n".join(tables(others)))
    cases, good = choices(errors)
    print("\nThe algorithm predicted fastest is the fastest, or within 5 %% of it, in %d of %d cases (%.1f %%)."
          % (good, cases, 100 * good / max(cases, 1)))
    again = repeated(build)
    if again:
        print("\nThe second round beside the first:\n\n| | times | median difference | 90th percentile |\n|---|---|---|---|")
        print("\n".join([row("all", again)] + [row(c, [e for e in again if e[0]["coll"] == c]) for c in PROGRAMS]))
    picture(errors, build + "/predict.svg")
    with open(build + "/predict.csv", "w") as f:
        f.write("gbit,ms,hosts,coll,algo,bytes,measured_us,predicted_us\n")
        for case, size, measured, predicted in errors:
            f.write("%g,%g,%d,%s,%s,%s,%.2f,%.2f\n" % (*key(case), size, measured, predicted))


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    build = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else ROOT + "/build")
    steps = {"measure": [measure], "fit": [fit], "compare": [compare], "replay": [replay], "far": [far], "local": [local],
             "all": [measure, fit, compare, replay, local]}
    if what not in steps or len(sys.argv) > 3:
        sys.exit(__doc__)
    for step in steps[what]:
        step(build)


if __name__ == "__main__":
    main()
