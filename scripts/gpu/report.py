"""RESULTS.md: the results of gpu_session as tables."""

SIMULATED = "**On the driver for tests, which interprets the kernels: no figure on this page is a GPU's.**"

# Bytes that a call must read and write, in buffers of S bytes, where all N ranks are on one GPU.
TRAFFIC = {
    "all_reduce": lambda n, s: 2 * n * s,
    "alltoall": lambda n, s: 2 * n * s,
    "all_gather": lambda n, s: (n + 1) * s,
    "reduce_scatter": lambda n, s: (n + 1) * s,
}


def number(value):
    return f"{value:.4g}"


def size(value):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= unit and value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value} B"


def table(head, rows):
    """Lines of a table, with an empty one behind."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def figures(stage, kind):
    return [(c["label"], f) for c in stage["commands"] for f in c["figures"] if f["kind"] == kind]


def driver_line(driver):
    names = ", ".join(f"{d['name']} ({d['multiprocessors']} SMs, {d['major']}.{d['minor']})" for d in driver["devices"])
    return f"Driver {driver['library']} {driver['version'] // 1000}.{driver['version'] % 1000 // 10}: {names}."


def overview(results):
    rows = [(name, s["tells"].replace("|", "\\|"), s["status"], number(s["seconds"]), s.get("why", ""))
            for name, s in results["stages"].items()]
    return table(("stage", "tells", "status", "s", ""), rows)


def tests_table(results):
    rows = [(name, label, f["passed"], len(f["failed"]), ", ".join(f["failed"]))
            for name, s in results["stages"].items() for label, f in figures(s, "tests")]
    return ["## Tests", "", *table(("stage", "program", "passed", "failed", "which"), rows)] if rows else []


def probes_table(results):
    rows = [(f["name"], number(f["value"]), f["unit"] if f["unit"] != "yes=1" else "1: yes")
            for s in results["stages"].values() for _, f in figures(s, "probe")]
    return ["## Probes", "", *table(("what", "value", "unit"), rows)] if rows else []


def copy_rate(results):
    rates = [f["value"] for s in results["stages"].values() for _, f in figures(s, "probe")
             if f["name"] == "copy_on_the_device"]
    return rates[0] if rates else None


def share(f, results):
    """How much of the copy rate a call of ranks on one GPU has reached."""
    rate, traffic = copy_rate(results), TRAFFIC.get(f["program"])
    if rate is None or traffic is None or len(results["driver"]["devices"]) != 1 or f["us"] <= 0:
        return ""
    return f"{100 * traffic(f['ranks'], f['bytes']) / f['us'] / 1000 / rate:.0f} %"


def perf_tables(results):
    out = []
    for name, s in results["stages"].items():
        rows = [(f["program"], f["ranks"], f["how"], f["type"], f["op"], size(f["bytes"]), number(f["us"]),
                 number(f["busbw"]), share(f, results), f["wrong"]) for _, f in figures(s, "perf")]
        if rows:
            head = ("program", "ranks", "in", "type", "op", "size", "µs", "busbw GB/s", "of the copy rate", "wrong")
            out += [f"## {name}: {s['tells']}", "", *table(head, rows)]
    return out


def titled(results, line):
    """A heading says on which driver its table was made, wherever it is read."""
    return f"{line} (driver for tests)" if results["driver"]["simulated"] and line.startswith("## ") else line


def texts(results):
    out = []
    for name, s in results["stages"].items():
        said = [f["text"] for _, f in figures(s, "line")]
        if said:
            out += [f"## {name}", "", "```", *said, "```", ""]
    return out


def end(code):
    words = {None: "was ended at its limit", "not started": "was not started", "not understood": "was not understood"}
    return words.get(code, f"ended with {code}")


def failures(results):
    out = []
    for name, s in results["stages"].items():
        for c in s["commands"]:
            if "tail" in c:
                out += [f"## {name}: {c['label']} {end(c['code'])}", "", f"`{c['command']}`", "", "```",
                        c["tail"].rstrip().replace("```", "'''"), "```", ""]
    return out


def render(results):
    driver = results["driver"]
    head = ["# A session on a GPU" if not driver["simulated"] else "# A session on the driver for tests", "",
            *([SIMULATED, ""] if driver["simulated"] else []),
            f"{driver_line(driver)} Library {results['library']}. Made by `scripts/gpu_session`.", ""]
    parts = (overview, tests_table, probes_table, perf_tables, failures, texts)
    return "\n".join(head + [titled(results, line) for part in parts for line in part(results)])
