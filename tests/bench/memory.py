"""Compares the memory that a run takes beyond the weights: stridec's and onnxruntime's, for the ten models.

    python tests/bench/memory.py [name...] [--case N] [--threads 2] [--limit 0.8] [--json FILE]

Each engine loads the model in a process of its own and runs it. What counts is by how much anonymous memory (RssAnon of
/proc/self/status) grows from before the first run to after the third: activations, scratch and outputs, in pages that were
touched. Weights are not among it: stridec maps them, and onnxruntime is told to keep them out of the arena that activations
come from. It also runs without its memory patterns, which take as much again from the second run on. Before the first run
the C library gives back what loading has freed, where activations would go unseen, and from then on keeps everything, so
that what is there at the end is the peak. Beside it stands what stridec's context says of itself.

NAME=FILE measures another file for the model's cases. A ratio above --limit is a failure.
Environment: stridec (the program, default build/stridec), build (for temporary files, default build).
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import arguments  # noqa: E402
import models  # noqa: E402

RUNS = 3

# Of the C library: nothing goes back to the system by itself, and no allocation has a mapping of its own.
KEEP = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_MAX_": "0"}


def anonymous_bytes():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def stridec_run(path, arrays, threads):
    import stridec

    context = stridec.Model(path).context(threads=threads)
    return lambda: context.run(arrays), context.memory


def onnxruntime_run(path, arrays, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = models.feed(session, arrays)
    return lambda: session.run(None, given), dict


ENGINES = {"stridec": stridec_run, "onnxruntime": onnxruntime_run}


def measure(engine, path, name, case, threads):
    """In a process of its own: {"bytes": grown by, ...}."""
    arrays = dict(enumerate(models.cases(name)))[case][1]
    run, facts = ENGINES[engine](path, arrays, threads)
    ctypes.CDLL(None).malloc_trim(0)
    before = anonymous_bytes()
    for _ in range(RUNS):
        run()
    return {"bytes": anonymous_bytes() - before, **facts()}


def in_child(*arguments):
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **KEEP})
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def megabytes(value):
    return f"{value / 1e6:10.2f}"


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="models (default: all ten)")
    parser.add_argument("--case", type=arguments.from_zero, help="this case alone, counted from 0 (default: those of cases.json)")
    parser.add_argument("--threads", type=arguments.count, default=2)
    parser.add_argument("--limit", type=arguments.positive, default=0.8, help="of stridec's memory over onnxruntime's")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        return flags
    flags.files = dict(name.split("=", 1) for name in flags.names if "=" in name)
    flags.names = [name.split("=", 1)[0] for name in flags.names] or list(models.MODELS)
    arguments.check_models(parser, flags.names, flags.case)
    flags.program = arguments.stridec_program(parser)
    return flags


def main():
    flags = parse_flags()
    if flags.child:
        engine, path, name, case, threads = flags.child
        print(json.dumps(measure(engine, path, name, int(case), int(threads))))
        return 0
    program, parent = flags.program, os.environ.get("build", "build")
    with open(os.path.join(models.FOLDER, "cases.json"), encoding="utf-8") as file:
        listed = json.load(file)
    report, passed, failed = [], 0, 0
    print(f"{'MB beyond the weights':48}{'stridec':>10}{'its context':>13}{'onnxruntime':>13}{'ratio':>8}")
    for name in flags.names:
        folder = tempfile.mkdtemp(prefix="memory-", dir=parent if os.path.isdir(parent) else None)
        try:
            model = flags.files.get(name) or models.fill_model(name, folder)
            library = os.path.join(folder, name + ".so")
            subprocess.run([program, "compile", model, "-o", library, "--dim", models.MODELS[name]["dims"],
                            "--progress=none", "--quiet"], check=True)  # fmt: skip
            for case, (label, _) in enumerate(models.cases(name)):
                if case != flags.case if flags.case is not None else case >= len(listed[name]):
                    continue
                ours = in_child("stridec", library, name, case, flags.threads)
                theirs = in_child("onnxruntime", model, name, case, flags.threads)
                row = {"model": name, "case": label, "stridec": ours, "onnxruntime": theirs}
                report.append(row)
                if "error" in ours or "error" in theirs:
                    failed += 1
                    print(f"{name}, {label}: {ours.get('error', theirs.get('error'))}")
                    continue
                row["ratio"] = ours["bytes"] / max(theirs["bytes"], 1)
                good = row["ratio"] <= flags.limit
                passed, failed = passed + good, failed + (not good)
                says = ours["arena_bytes"] + ours["scratch_bytes"] + ours["staging_bytes"] + ours["state_bytes"]
                print(f"{name + ', ' + label:48}{megabytes(ours['bytes'])}{megabytes(says):>13}"
                      f"{megabytes(theirs['bytes']):>13}{row['ratio']:8.2f}{'' if good else '  above the limit'}", flush=True)  # fmt: skip
        except subprocess.CalledProcessError as error:
            failed += 1
            print(f"{name}: {' '.join(error.cmd)} ended with {error.returncode}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
