"""The engines that race.py times: how each is built, configured and run, which of them compare, and how closely.

Each answers with a function that runs the model and one that gives the outputs by name. It is given the paths of a race (the
"model" and, by their kinds, what was made of it; the "library", with %s for the engine's name; "sized", one of these, which says
how many multiply-adds there are) and a case's inputs by name. race.py --help says what the engines' names stand for.
"""

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import models  # noqa: E402


def build_folder():
    return os.environ.get("build", "build")


# ---- libraries ----


def compile_for(engine, files, flags, program, dims):
    """Seconds that it took."""
    command = [program, "compile", files[source_of(engine)], "-o", files["library"] % engine, *OURS.get(engine, [])]
    command += [*(["--dim", dims] if dims else []), *flags.flag, "--progress=none", "--quiet"]
    if engine == "stridec-tuned" and flags.tune_db:
        command += ["--tune-db", flags.tune_db]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start


def manifest_of(library):
    with open(library.removesuffix(".so") + ".json", encoding="utf-8") as file:
        return json.load(file)


def sizes_of(library, arrays):
    """{symbol: value} of a library for these inputs."""
    sizes = {}
    for value in manifest_of(library)["inputs"]:
        for dim, size in zip(value["shape"], arrays[value["name"]].shape):
            form = re.fullmatch(r"(?:(\d+)\*)?([A-Za-z_]\w*)", str(dim))
            if form:
                sizes[form[2]] = size // int(form[1] or 1)
    return sizes


def product_flops(library, arrays):
    """Of one run, in the kernels that templates for sums of products make."""
    names = {**sizes_of(library, arrays), "max": max, "min": min, "select": lambda c, a, b: a if c else b}
    kernels = [kernel for kernel in manifest_of(library)["kernels"] if re.match(r"\S+: ", kernel["schedule"])]
    return sum(kernel["launches"] * eval(kernel["flops"], {"__builtins__": {}}, names) for kernel in kernels)


# ---- running ----


def stridec_engine(files, arrays, threads, engine):
    import stridec

    model = stridec.Model(files["library"] % engine)
    context = model.context(threads=threads)
    inputs = [arrays[value.name] for value in model.inputs]
    run = context.prepare(*inputs)
    return run, lambda: dict(zip([value.name for value in model.outputs], context.run(*inputs)))


def peak_library():
    return os.path.abspath(os.path.join(build_folder(), "libbench_peak.so"))


def peak_engine(files, arrays, threads, _):
    loops = ctypes.CDLL(peak_library())
    flops = ctypes.c_int64(product_flops(files["sized"], arrays))
    return lambda: loops.bench_peak(ctypes.c_int32(threads), flops), dict


def hand_over():
    """Nanoseconds between two threads, while no engine runs."""
    measure = ctypes.CDLL(peak_library()).bench_hand_over
    measure.restype = ctypes.c_double
    return measure()


def onnxruntime_engine(files, arrays, threads, engine):
    session = models.reference_session(files[source_of(engine)], threads)
    names = [value.name for value in session.get_outputs()]
    given = models.feed(session, arrays)
    return lambda: session.run(None, given), lambda: dict(zip(names, session.run(None, given)))


def openvino_engine(files, arrays, threads, engine):
    import openvino

    core = openvino.Core()
    model = core.read_model(files[source_of(engine)])
    names = [value.get_any_name() for value in model.inputs]
    model.reshape({name: list(arrays[name].shape) for name in names})
    precision = {"bf16": "bf16", "fp16": "f16"}.get(engine.rpartition("-")[2], "f32")
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    for name in names:
        request.set_tensor(name, openvino.Tensor(np.require(arrays[name], requirements=["C", "W"]), shared_memory=True))

    def outputs():
        request.infer()
        return {value.get_any_name(): np.array(request.get_tensor(value).data) for value in model.outputs}

    return request.infer, outputs


# ---- names ----


OURS = {  # flags of compile
    "stridec": ["--mode", "default"],
    "stridec-tuned": ["--mode", "max-autotune"],
    "stridec-latency": ["--mode", "reduce-overhead"],
    "stridec-refit": ["--refit", "*"],
    "stridec-bf16": ["--precision", "bf16"],
    "stridec-fp16": ["--precision", "fp16"],
    "stridec-int8": ["--mode", "default"],
    "stridec-int4": ["--mode", "default"],
}
# What counts as equal where factors are rounded to 8 and 11 bits, through all layers of a network, and where a sum that lies
# between two bytes may become either.
NARROW = {"stridec-bf16": 0.02, "stridec-fp16": 0.0025, "stridec-int8": 0.1, "openvino-bf16": 0.02, "openvino-fp16": 0.0025}
QUANTISED = ("int8", "int4")
NARROWED = ("bf16", "fp16")
PEERS = {
    name + suffix: engine
    for name, engine, narrowed in (("onnxruntime", onnxruntime_engine, ()), ("openvino", openvino_engine, NARROWED))
    for suffix in ("", *(f"-{kind}" for kind in (*QUANTISED, *narrowed)))
}
LIMITS = {"fixed": stridec_engine, "peak": peak_engine}
ENGINES = {**{engine: stridec_engine for engine in OURS}, **PEERS, **LIMITS}
# Engines whose outputs are the expected ones, for those of the same source.
CHECKED = ("onnxruntime", "onnxruntime-int8", "onnxruntime-int4", "fixed")


def source_of(engine):
    """Which of the files the engine runs: the model or what was made of it."""
    kind = engine.rpartition("-")[2]
    return kind if kind in QUANTISED else "model"


def alike(engine, other):
    return source_of(engine) == source_of(other)


def rivals(ours, peer):
    """Whether the peer computes the same file, no narrower than ours does."""
    kind = peer.rpartition("-")[2]
    return alike(ours, peer) and (kind not in NARROWED or ours.endswith(kind))


def tolerance_of(engine, tolerance):
    return max(tolerance, NARROW.get(engine, 0))


def check_engine(parser, engine):
    if engine not in ENGINES:
        parser.error(f"argument --engines: no engine {engine}; there are {', '.join(ENGINES)}")
    package = engine.partition("-")[0]
    if engine in PEERS and not importlib.util.find_spec(package):
        parser.error(f"argument --engines: {package} is not installed in this Python environment")
    if engine == "peak" and not os.path.isfile(peak_library()):
        parser.error(f"argument --engines: peak needs {peak_library()}; 'ninja -C {build_folder()} bench_peak' builds it")


def engine_versions(engines, program):
    found = {}
    for engine in engines:
        if engine in OURS or engine == "fixed":
            found[engine] = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.partition("\n")[0]
        elif engine in PEERS:
            package = engine.partition("-")[0]
            found[engine] = f"{package} {importlib.metadata.version(package)}"
    return found
