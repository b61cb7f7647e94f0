"""Times models and matrix products in several precisions on 1, 2, 4, 8, ... threads, outputs compared with fp32's.

    python tests/bench/threads.py [name|name=FILE ...] [--products] [--threads 1,2,4,8,16] [--precisions fp32,bf16] ...

NAME is one of the ten models (tests/models), its first case unless --case says another; NAME=FILE another file for it, such
as one that tests/bench/quantize.py made, which runs as it is. --products: matrix products MxNxK (--sizes) with constant
weights, of floats in each precision and of u8 by s8, with the kernel that the compiler chose and what it reaches. Every row
is one library; each time is the median of what fits into --seconds. What --flag says goes to the compiler.

Environment: stridec (the program, default build/stridec), build (for temporary files, default build).
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import arguments  # noqa: E402
import models  # noqa: E402
import race  # noqa: E402

SIZES = "2048x2048x2048,512x768x3072,512x3072x768,128x768x768,128x3072x768,37x768x768,16x768x768,1x768x3072,33x70x129"
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def compiled(path, library, precision, dims, flags):
    command = [flags.program, "compile", path, "-o", library, "--precision", precision, "--progress=none", "--quiet", *flags.flag]
    subprocess.run(command + (["--dim", dims] if dims else []), check=True)
    return library


def measured(library, inputs, flags):
    """Seconds by number of threads, and the outputs, which are the same for each."""
    import stridec

    model = stridec.Model(library)
    arrays = [inputs[value.name] for value in model.inputs]
    times, outputs = [], None
    for threads in flags.threads:
        context = model.context(threads=threads)
        times.append(statistics.median(race.times_of(context.prepare(*arrays), flags.seconds)))
        found = [np.array(array) for array in context.run(*arrays)]
        if outputs is not None and any(x.tobytes() != y.tobytes() for x, y in zip(outputs, found)):
            sys.exit(f"{library}: other outputs on {threads} threads")
        outputs = found
    return times, outputs


def difference(outputs, expected):
    pairs = [models.differences(x, y) for x, y in zip(outputs, expected)]
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


def product_model(path, m, n, k, integers):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(n + k)
    weight = rng.integers(-127, 128, (k, n)).astype(np.int8) if integers else rng.standard_normal((k, n), np.float32)
    kinds = (TensorProto.UINT8, TensorProto.INT32) if integers else (TensorProto.FLOAT, TensorProto.FLOAT)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger" if integers else "MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", kinds[0], ["m", k])],
        [helper.make_tensor_value_info("y", kinds[1], ["m", n])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    shape = (m, k)
    x = rng.integers(0, 256, shape).astype(np.uint8) if integers else rng.standard_normal(shape, np.float32)
    return {"x": x}, weight


def kernels_of(library):
    with open(library.removesuffix(".so") + ".json", encoding="utf-8") as file:
        return [kernel["schedule"].split(":")[0] for kernel in json.load(file)["kernels"]]


def products(folder, flags, report):
    print(f"{'product':20}{'precision':>10}" + "".join(f"{f'{t} GFLOP/s':>14}" for t in flags.threads) + "  kernel")
    for size in flags.sizes:
        (m, n, k), expected = map(int, size.split("x")), None
        for precision in [*flags.precisions, "u8s8"]:
            path, library = os.path.join(folder, "product.onnx"), os.path.join(folder, f"{size}-{precision}.so")
            integers = precision == "u8s8"
            inputs, weight = product_model(path, m, n, k, integers)
            # The middle of the range is what the schedule is made for.
            compiled(path, library, "fp32" if integers else precision, f"m=1..{2 * m - 1}", flags)
            times, outputs = measured(library, inputs, flags)
            if integers:  # sums of whole numbers, which f64 holds
                expected = [(inputs["x"].astype(np.float64) @ weight.astype(np.float64)).astype(np.int32)]
            elif precision == "fp32":
                expected = outputs
            rates = [2e-9 * m * n * k / seconds for seconds in times]
            if integers and difference(outputs, expected)[0] > 0:
                sys.exit(f"{size} of bytes: wrong sums")
            away = "" if integers or expected is None else f"  from fp32 {difference(outputs, expected)[0]:.1e}"
            kernel = " ".join(kernels_of(library))
            print(f"{size:20}{precision:>10}" + "".join(f"{rate:14.1f}" for rate in rates) + f"  {kernel}{away}", flush=True)
            report["products"].append({"size": size, "precision": precision, "kernel": kernel, "seconds": times})


def model_rows(name, file, folder, flags, report):
    path = file or models.fill_model(name, folder)
    label, inputs = list(models.cases(name))[flags.case]
    for precision in ["fp32"] if file else flags.precisions:
        library = compiled(path, os.path.join(folder, f"{name}-{precision}.so"), precision, models.MODELS[name]["dims"], flags)
        times, outputs = measured(library, inputs, flags)
        shown = os.path.basename(file) if file else precision
        if file is None and precision == "fp32":
            report["expected"][name] = outputs
        away = difference(outputs, report["expected"][name]) if name in report["expected"] else None
        text = f"{away[0]:12.1e}{away[1]:10.1e}" if away else ""
        print(f"{name + ', ' + label:44}{shown:>16}" + "".join(f"{s * 1e3:10.2f}" for s in times) + text, flush=True)
        report["models"].append({"model": name, "case": label, "precision": shown, "seconds": times, "difference": away})
        os.remove(library)


def thread_counts(text):
    """Of a list as in 1,2,4: those for which this machine has the cores."""
    cores = len(os.sched_getaffinity(0))
    counts = [number for number in map(arguments.count, text.split(",")) if number <= cores]
    if not counts:
        raise argparse.ArgumentTypeError(f"this machine has {cores} cores, fewer than each of {text}")
    return counts


def product_size(text):
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a size of a product, as in 512x768x3072")
    return text


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--products", action="store_true")
    parser.add_argument("--sizes", metavar="MxNxK,...", type=lambda text: list(map(product_size, text.split(","))), default=SIZES)
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--threads", type=thread_counts, default="1,2,4,8,16")
    parser.add_argument("--case", type=arguments.from_zero, default=0)
    parser.add_argument("--seconds", type=arguments.positive, default=0.5)
    parser.add_argument("--flag", action="append", default=[], help="for stridec compile, as in --flag=--cpu=x86-64-v4")
    parser.add_argument("--json", metavar="FILE")
    flags = parser.parse_args()
    flags.precisions = flags.precisions.split(",")
    for precision in flags.precisions:
        if precision not in PRECISIONS:
            parser.error(f"argument --precisions: no precision {precision}; there are {', '.join(PRECISIONS)}")
    if not flags.names and not flags.products:
        parser.error("name a model or more, or give --products")
    arguments.check_models(parser, [name.partition("=")[0] for name in flags.names], flags.case)
    flags.program = arguments.stridec_program(parser)
    return flags


def main():
    flags = parse_flags()
    parent = os.environ.get("build", "build")
    folder = tempfile.mkdtemp(prefix="threads-", dir=parent if os.path.isdir(parent) else None)
    report = {"threads": flags.threads, "products": [], "models": [], "expected": {}}
    try:
        if flags.products:
            products(folder, flags, report)
        if flags.names:
            heads = "".join(f"{f'{t} thr ms':>10}" for t in flags.threads)
            print(f"{'model':44}{'precision':>16}{heads}{'from fp32':>12}{'mean':>10}")
        for name in flags.names:
            name, _, file = name.partition("=")
            model_rows(name, file or None, folder, flags, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if flags.json:
        del report["expected"]
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
