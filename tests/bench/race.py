"""Times stridec, onnxruntime and (where installed: .ci/setup --bench) OpenVINO on the ten models or others, in one race.

    python tests/bench/race.py [name...] [--case N] [--threads 2] [--rounds 7] [--seconds 0.5] [--json FILE] [--engines ...]
    python tests/bench/race.py architectures [name...]     (small ones, of tests/models/architectures.py)
    python tests/bench/race.py networks [name...]          (of published sizes, of tests/models/networks.py)
    python tests/bench/race.py FILE.onnx --dim batch=1..64 --shape image=1x3x224x224 --shape image=3x3x224x224

Engines are stridec, stridec-tuned (--mode max-autotune), onnxruntime and openvino, and, raced if named by --engines,
stridec-latency (--mode reduce-overhead), stridec-refit (--refit '*': all weights may be replaced), stridec-bf16 and
stridec-fp16 (--precision), openvino-bf16 and openvino-fp16 (its precision hint; bf16 is its default where the machine
has AMX). Each of stridec's is one library
for all cases of a model; its ratios are to each peer and to the better of them in that case. The last table says how
far each of them is from onnxruntime at most and in the mean, over the largest magnitude of an output.

Engines with -int8 or -int4 behind their names (stridec, onnxruntime, openvino) take what tests/bench/quantize.py makes of
the model: bytes by scales from the first cases, or weights of four bits. They race and are checked among themselves, and
the last table says how far they are from the model as it was.

Each engine runs in a process of its own and is stopped (SIGSTOP) while another is measured: idle thread pools that spin
would take the cores from their rivals. Engines take turns within a round, in an order that moves by one each round, so
that drifts of the machine (clock, which cores share a cache, neighbours) meet all of them; a ratio is the median over
rounds of the ratio of a round's medians. Outputs are compared with onnxruntime's: a wrong answer is never a fast one.
What other processes took from the machine during a measurement is shown, and warned about above 5 %.

NAME=FILE races another file for the model's cases, such as a quantised one that tests/bench/quantize.py made; there
--tolerance says what counts as equal, and --flag goes to the compiler. A FILE.onnx by itself is any other model: --dim
gives the ranges that it is compiled for, each --shape a case, the sizes of all inputs as in image=1x3x224x224,ids=1x128<30522
(integers are drawn below that number, or below 2). --tune-db says where stridec-tuned finds and
keeps what it measures: an empty file makes its compile times those of a cold cache.

OpenVINO is given the case's static shape, which is its best; the others serve every shape with what they loaded.
Two more run where --engines names them beside one of stridec's:

    fixed    stridec compiled for the case's sizes alone: what it costs to know sizes at run time alone
    peak     as many multiply-adds as the model's matrix products have, on registers alone (ninja -C build bench_peak):
             1 / ratio is the share of the machine's peak. Ratios by rounds stand below a case then, each with the
             nanoseconds that a value takes from one thread to another and back, before and after the round: of two cores
             that share a cache about 100, of others several times as many. Hosts of virtual machines move them.

Environment: stridec (the program, default build/stridec), build (for temporary files, default build).
"""

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import arguments  # noqa: E402
import models  # noqa: E402
import quantize  # noqa: E402
from architectures import ARCHITECTURES, RACES, arrays_of  # noqa: E402
from engines import (  # noqa: E402
    CHECKED,
    ENGINES,
    LIMITS,
    OURS,
    PEERS,
    alike,
    build_folder,
    check_engine,
    compile_for,
    engine_versions,
    hand_over,
    rivals,
    sizes_of,
    source_of,
    tolerance_of,
)
from networks import NETWORKS  # noqa: E402

FOREIGN_LIMIT = 0.05
CALIBRATING = 2  # cases that scales of bytes are taken from
TOLERANCE = 1e-4
# Networks that are made when they race, name: (function, --dim, sizes of the cases), by what names all of them.
MADE = {
    "architectures": {name: (made, dims, [cases[0], *RACES[name]]) for name, (made, dims, cases) in ARCHITECTURES.items()},
    "networks": NETWORKS,
}
ALL_MADE = {name: row for table in MADE.values() for name, row in table.items()}


# ---- the race ----


def times_of(run, seconds):
    """Of runs until the seconds are over, of three at least, behind two that nobody counts."""
    for _ in range(2):
        run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def serve(engine, files, arrays, threads, pipe):
    """In the engine's process: answers each request (seconds) with the times of the runs that fit into them."""
    try:
        run, outputs = ENGINES[engine](files, arrays, threads, engine)
        np.savez(files["outputs"] % engine, **outputs())
        pipe.send("")
    except Exception as error:  # whatever stops an engine is its result
        pipe.send(f"{type(error).__name__}: {error}")
        return
    while (seconds := pipe.recv()) is not None:
        pipe.send(times_of(run, seconds))


def busy_ticks():
    """Of all processors together since boot: (busy, all)."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def own_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


class Racer:
    """An engine's process, stopped unless it is measured."""

    def __init__(self, engine, files, arrays, threads):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.engine, self.rounds, self.foreign = engine, [], []
        self.process = context.Process(target=serve, args=(engine, files, arrays, threads, theirs), daemon=True)
        self.process.start()
        theirs.close()
        try:
            self.error = self.pipe.recv()
        except EOFError:
            self.process.join()
            self.error = f"ended with status {self.process.exitcode}"
        if not self.error:
            self._signal(signal.SIGSTOP)

    def _signal(self, number):
        os.kill(self.process.pid, number)

    def measure(self, seconds):
        self._signal(signal.SIGCONT)
        busy, everything, own = *busy_ticks(), own_ticks(self.process.pid)
        self.pipe.send(seconds)
        self.rounds.append(self.pipe.recv())
        busy_after, everything_after = busy_ticks()
        mine = own_ticks(self.process.pid) - own
        self.foreign.append(max(0, busy_after - busy - mine) / max(1, everything_after - everything))
        self._signal(signal.SIGSTOP)

    def median(self):
        return statistics.median(time for times in self.rounds for time in times)

    def ratios(self, other):
        return [statistics.median(a) / statistics.median(b) for a, b in zip(self.rounds, other.rounds)]

    def ratio(self, other):
        return statistics.median(self.ratios(other))

    def end(self):
        if self.process.is_alive():
            self._signal(signal.SIGCONT)
            self.pipe.send(None)
            self.process.join(5)
            if self.process.is_alive():
                self.process.kill()


def race(files, arrays, flags):
    """One case, inputs by name: what the JSON holds of it."""
    racers = [Racer(engine, files, arrays, flags.threads) for engine in flags.engines]
    running = [racer for racer in racers if not racer.error]
    distances = []
    for number in range(flags.rounds):
        if "peak" in flags.engines:
            distances.append(hand_over())
        for racer in running[number % len(running) :] + running[: number % len(running)]:
            racer.measure(flags.seconds)
    if "peak" in flags.engines:
        distances.append(hand_over())
    for racer in racers:
        racer.end()
    result = {"engines": {}, "hand_over_nanoseconds": distances}
    for racer in racers:
        if racer.error:
            result["engines"][racer.engine] = {"error": racer.error}
            continue
        entry = {
            "median_seconds": racer.median(),
            "minimum_seconds": min(min(times) for times in racer.rounds),
            "runs": sum(map(len, racer.rounds)),
            "others_share": max(racer.foreign),
        }
        result["engines"][racer.engine] = entry
    for ours in running:
        if ours.engine not in OURS:
            continue
        entry = result["engines"][ours.engine]
        entry["ratios"] = {racer.engine: ours.ratio(racer) for racer in running if racer is not ours}
        if peak := next((racer for racer in running if racer.engine == "peak"), None):
            entry["ratios_to_peak"] = ours.ratios(peak)
        peers = [racer for racer in running if racer.engine in PEERS and rivals(ours.engine, racer.engine)]
        if better := min(peers, key=Racer.median, default=None):
            entry["ratios"]["better"] = ours.ratio(better)
        with np.load(files["outputs"] % ours.engine) as got:
            for other in running:
                if other.engine in OURS or other.engine == "peak":
                    continue
                with np.load(files["outputs"] % other.engine) as expected:
                    found = [models.differences(got[k], expected[k]) for k in expected]
                for what, part in ("differences", 0), ("mean_differences", 1):
                    entry.setdefault(what, {})[other.engine] = max((pair[part] for pair in found), default=0)
    return result


# ---- what is printed ----


def milliseconds(entry):
    return "-" if "error" in entry else f"{entry['median_seconds'] * 1e3:.3f}"


def columns_of_ratios(engines):
    """(ours, other): those of a table with these engines; "better" of two peers or more."""
    ours, pairs = [e for e in engines if e in OURS], []
    for engine in ours:
        peers = [e for e in engines if e in PEERS and rivals(engine, e)]
        limits = [e for e in engines if e in LIMITS and alike(e, engine)]
        pairs += [(engine, other) for other in peers + ["better"] * (len(peers) > 1) + limits]
    return pairs + [(engine, "stridec") for engine in ours if engine != "stridec" and "stridec" in ours]


def head_of(ours, other):
    return (ours.removeprefix("stridec-") if ours != "stridec" else "default") + "/" + other


def print_case(label, result, engines, tolerance):
    entries = result["engines"]
    cells = [f"{milliseconds(entries[engine]):>20}" for engine in engines]
    for ours, other in columns_of_ratios(engines):
        ratio = entries[ours].get("ratios", {}).get(other)
        cells.append(f"{ratio:>21.2f}" if ratio else f"{'-':>21}")
    print(f"{label:60}" + "".join(cells))
    for engine in engines:
        entry = entries[engine]
        if "error" in entry:
            print(f"    {engine}: {entry['error']}")
        if ratios := entry.get("ratios_to_peak"):
            apart = [f"{value:.0f}" for value in result["hand_over_nanoseconds"]]
            rounds = [f"{ratio:.2f} ({before}, {after} ns)" for ratio, before, after in zip(ratios, apart, apart[1:])]
            print(f"    {head_of(engine, 'peak')} by rounds: {', '.join(rounds)}")
        for other in filter(lambda other: alike(engine, other), CHECKED):
            difference = entry.get("differences", {}).get(other, 0)
            if difference > tolerance_of(engine, tolerance):
                print(f"    WRONG: {engine} differs from {other} by {difference:.1e}")
            elif tolerance != TOLERANCE and engine in OURS and other in engines:
                print(f"    {engine} differs from {other} by {difference:.1e}")
        if entry.get("others_share", 0) > FOREIGN_LIMIT:
            print(f"    other processes took {entry['others_share']:.0%} of the machine while {engine} was measured")
    sys.stdout.flush()


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def machine():
    listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout
    facts = dict(re.findall(r"^([^:]+):\s+(.*)$", listing, re.M))
    keys = ["Model name", "CPU family", "Model", "CPU(s)", "Thread(s) per core", "L2 cache", "L3 cache", "Hypervisor vendor"]
    return {"kernel": platform.release(), **{key: facts[key] for key in keys if key in facts}}


def own_cases(parser, path, shapes):
    if not os.path.isfile(path):
        parser.error(f"there is no file {path}")
    if not shapes:
        parser.error(f"{path}: give a --shape INPUT=SIZES,... for each case")
    try:
        return list(models.file_cases(path, shapes))
    except ValueError as error:
        parser.error(str(error))


def case_count(name, own):
    if name in own:
        return len(own[name][1])
    return len(ALL_MADE[name][2]) if name in ALL_MADE else models.case_count(name)


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="models (default: all ten), architectures, networks")
    parser.add_argument("--case", type=arguments.from_zero, help="this case alone, counted from 0 (default: those of cases.json)")
    parser.add_argument("--threads", type=arguments.count, default=2)
    parser.add_argument("--rounds", type=arguments.count, default=7)
    parser.add_argument("--seconds", type=arguments.positive, default=0.5, help="of each engine in each round")
    parser.add_argument("--engines", help="comma-separated (default: stridec,stridec-tuned and the peers that are installed)")
    parser.add_argument("--tune-db", metavar="FILE", help="of stridec-tuned (default: the user's)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="of the largest magnitude of an output")
    parser.add_argument("--dim", metavar="NAME=RANGE,...", default="", help="of a FILE.onnx, as for stridec compile")
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=SIZES,...", help="a case of a FILE.onnx")
    parser.add_argument("--flag", action="append", default=[], help="for stridec compile, as in --flag=--precision=bf16")
    flags = parser.parse_args()
    flags.files = dict(name.split("=", 1) for name in flags.names if "=" in name)
    flags.names = [name.split("=", 1)[0] for name in flags.names] or list(models.MODELS)
    for kind in set(MADE) & set(flags.names):
        flags.names = [name for name in flags.names if name != kind]
        if not set(MADE[kind]) & set(flags.names):
            flags.names += MADE[kind]
    installed = [name for name in PEERS if importlib.util.find_spec(name)]
    flags.engines = flags.engines.split(",") if flags.engines else ["stridec", "stridec-tuned", *installed]
    flags.own = {}  # by name: (file, cases, dims) of models that are not of the ten
    for at, name in enumerate(flags.names):
        if name.endswith(".onnx") and name not in flags.files:
            flags.names[at] = os.path.basename(name).removesuffix(".onnx")
            flags.own[flags.names[at]] = name, own_cases(parser, name, flags.shape), flags.dim
    if not flags.own and (flags.dim or flags.shape):
        parser.error("--dim and --shape are for a FILE.onnx; the ten models have theirs")
    for name in flags.names:
        if name not in flags.own:
            arguments.check_model(parser, name, ALL_MADE)
        arguments.check_case(parser, name, flags.case, case_count(name, flags.own))
    for engine in flags.engines:
        check_engine(parser, engine)
    flags.program = arguments.stridec_program(parser)
    if not set(OURS) & set(flags.engines) and set(LIMITS) & set(flags.engines):
        parser.error(f"{', '.join(LIMITS)} are compared with one of {', '.join(OURS)}: name one of these too")
    return flags


def make(name, folder):
    """(file, cases, dims) of a network with its seeded weights."""
    import onnx

    function, dims, sizes_of_cases = ALL_MADE[name]
    net = function()
    path = os.path.join(folder, name + ".onnx")
    onnx.save(net.model(), path)
    cases = []
    for number, sizes in enumerate(sizes_of_cases):
        arrays = arrays_of(net, dims, sizes, number)
        first = {}  # of the inputs with this shape
        for key, array in arrays.items():
            first.setdefault("x".join(map(str, array.shape)), key)
        cases.append((", ".join(f"{key} {shape}" for shape, key in first.items()), arrays))
    return path, cases, dims


def print_means(report, engines):
    for ours, other in columns_of_ratios(engines):
        ratios = [
            (case["engines"][ours]["ratios"][other], f"{name}, {case['case']}")
            for name, cases in report["models"].items()
            for case in cases
            if other in case["engines"][ours].get("ratios", {})
        ]
        if not ratios:
            continue
        mean, (worst, where) = geometric_mean([ratio for ratio, _ in ratios]), max(ratios)
        report.setdefault("geometric_means", {}).setdefault(ours, {})[other] = {"mean": mean, "worst": worst}
        print(f"{head_of(ours, other):26} geometric mean {mean:.3f} ({1 / mean:.2f}x as fast), worst {worst:.2f} ({where})")


def print_accuracy(report, engines):
    """Of each model, the worst case's."""
    ours = [engine for engine in engines if engine in OURS]
    if "onnxruntime" not in engines or not ours:
        return
    print(f"\n{'largest and mean difference from onnxruntime':60}" + "".join(f"{engine:>20}" for engine in ours))
    for name, cases in report["models"].items():
        cells = []
        for engine in ours:
            entries = [case["engines"][engine] for case in cases]
            pairs = [
                (entry["differences"]["onnxruntime"], entry["mean_differences"]["onnxruntime"])
                for entry in entries
                if "onnxruntime" in entry.get("differences", {})
            ]
            worst = " ".join(f"{max(parts):.1e}" for parts in zip(*pairs))
            cells.append(f"{worst or '-':>20}")
        print(f"{name:60}" + "".join(cells))


def main():
    flags = parse_flags()
    program, parent = flags.program, build_folder()
    report = {"machine": machine(), "threads": flags.threads, "versions": engine_versions(flags.engines, program)}
    report["models"], report["compile_seconds"] = {}, {}
    print("; ".join(f"{key} {value}" for key, value in report["machine"].items()))
    print(f"{', '.join(dict.fromkeys(report['versions'].values()))}; {flags.threads} threads, {flags.rounds} rounds\n")
    heads = [f"{engine + ' ms':>20}" for engine in flags.engines]
    heads += [f"{head_of(*pair):>21}" for pair in columns_of_ratios(flags.engines)]
    print(f"{'':60}" + "".join(heads))
    with open(os.path.join(models.FOLDER, "cases.json"), encoding="utf-8") as file:
        listed = json.load(file)
    failed = 0
    for name in flags.names:
        folder = tempfile.mkdtemp(prefix="race-", dir=parent if os.path.isdir(parent) else None)
        files = {"name": name, "library": os.path.join(folder, f"{name}-%s.so"), "outputs": os.path.join(folder, "%s.npz")}
        try:
            own, cases, dims = flags.own.get(name, (None, None, None))
            if name in ALL_MADE:
                own, cases, dims = make(name, folder)
            files["model"] = own or flags.files.get(name) or models.fill_model(name, folder)
            cases = cases or list(models.cases(name))
            for kind in sorted(set(map(source_of, flags.engines)) - {"model"}):
                files[kind] = os.path.join(folder, f"{kind}.onnx")
                quantize.quantise(kind, files["model"], files[kind], [arrays for _, arrays in cases[:CALIBRATING]])
            dims = dims if own else models.MODELS[name]["dims"]
            report["compile_seconds"][name] = {
                engine: compile_for(engine, files, flags, program, dims)
                for engine in flags.engines
                if engine in OURS
            }
            files["sized"] = next((files["library"] % engine for engine in flags.engines if engine in OURS), None)
            report["models"][name] = []
            for case, (label, arrays) in enumerate(cases):
                if case != flags.case if flags.case is not None else not own and case >= len(listed[name]):
                    continue
                if "fixed" in flags.engines:
                    sizes = sizes_of(files["sized"], arrays)
                    compile_for("fixed", files, flags, program, ",".join(f"{k}={v}" for k, v in sizes.items()))
                result = {"case": label, **race(files, arrays, flags)}
                report["models"][name].append(result)
                print_case(f"{name}, {label}", result, flags.engines, flags.tolerance)
                for engine, entry in result["engines"].items():
                    failed += "error" in entry or any(
                        entry.get("differences", {}).get(other, 0) > tolerance_of(engine, flags.tolerance)
                        for other in CHECKED
                        if alike(engine, other)
                    )
            seconds = report["compile_seconds"][name]
            print("    compiled in " + ", ".join(f"{value:.1f} s ({engine})" for engine, value in seconds.items()))
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"{name}: {' '.join(error.cmd)} ended with {error.returncode}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print()
    print_means(report, flags.engines)
    print_accuracy(report, flags.engines)
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
