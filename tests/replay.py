"""Compares what the compiler writes for 16 models with a golden file: kernels, schedules, memory plan, host program, manifest.

    python tests/replay.py [name...] [--update] [--against OLD_REPLAY]

Each model is compiled as far as text (no toolchain runs) for x86-64-v3 and x86-64-v4, for sm_90a, and for sm_90a in
fp16. A refactoring leaves every hash as it is. A change that alters texts is accepted by --update, which prints which
kernels of each model changed and the unified diff of the first; its commit says why that is not a loss.

The golden file holds hashes alone. Texts are kept in the cache under their hash, so that a later change can be shown as
a diff; where the cache lacks the old text, --against takes it from the replay program of another build folder.

Environment: build (the build folder, default build), STRIDEC_CACHE. The last line is "N passed, N failed".
"""

import argparse
import concurrent.futures
import difflib
import hashlib
import os
import subprocess
import sys
import zlib

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "golden", "replay.txt")
CACHE = os.path.join(os.environ.get("STRIDEC_CACHE", os.path.expanduser("~/.cache/stridec")), "replay")
SECONDS = 120  # for one model
DIFF_LINES = 60
DRAWN_BYTES = 4096

sys.path[:0] = [os.path.join(HERE, "models")]
from architectures import ARCHITECTURES  # noqa: E402
from models import MODELS  # noqa: E402

OTHERS = ["efficientnet", "swin", "yolo", "whisper", "experts", "quantised"]
RUNS = {
    "cpu": ["--cpu", "x86-64-v4,x86-64-v3"],
    "gpu": ["--gpu", "sm_90a"],
    "gpu-fp16": ["--gpu", "sm_90a", "--precision", "fp16"],
}


def light_model(name, folder):
    """A file of the light model whose described weights lie in a sparse file: DRAWN_BYTES of each are drawn, the rest is
    zero. Texts do not depend on the values of large weights, but equal weights would be merged."""
    model = onnx.load(os.path.join(HERE, "models", name + ".onnx"))
    path, data, offset = os.path.join(folder, name + ".onnx"), name + ".data", 0
    with open(os.path.join(folder, data), "wb") as file:
        for tensor in model.graph.initializer:
            if not tensor.doc_string.startswith("fill "):
                continue
            kind, *numbers = tensor.doc_string.split()[1:]
            count = int(np.prod(tuple(tensor.dims)))
            rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            first, second = (float(n) for n in numbers) if kind in ("normal", "uniform") else (0.0, 1.0)
            drawn = min(count, DRAWN_BYTES // 4)
            values = rng.random(drawn) * (second - first) + first if kind == "uniform" else rng.standard_normal(drawn) * second + first
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            file.seek(offset)
            file.write(values.astype(dtype).tobytes())
            size = count * dtype.itemsize
            tensor.doc_string = ""
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", data), ("offset", offset), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            offset += (size + 4095) // 4096 * 4096
        file.truncate(offset)
    onnx.save(model, path)
    return path, MODELS[name]["dims"]


def model_of(name, folder):
    """(path, --dim) of the model's file, made in the folder."""
    if name in MODELS:
        return light_model(name, folder)
    function, dims, _ = ARCHITECTURES[name]
    path = os.path.join(folder, name + ".onnx")
    onnx.save(function().model(), path)
    return path, dims


def texts_of(program, path, dims, flags):
    """{section: text}: the kernels of a target are one section."""
    done = subprocess.run([program, path, "--dim", dims, *flags], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    texts = {}
    for part in ("\n" + done.stdout).split("\n==== ")[1:]:
        name, _, text = part.partition("\n")
        if name.startswith("kernel "):
            name = "kernels " + name.split()[1]
        texts[name] = texts.get(name, "") + ("\f" if name in texts else "") + text
    return texts


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep(text):
    path = os.path.join(CACHE, digest(text))
    if not os.path.exists(path):
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".part", path)


def kept(key):
    try:
        with open(os.path.join(CACHE, key), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def unified(old, new, label):
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "before", "after", label, label, lineterm=""))
    more = [f"... {len(lines) - DIFF_LINES} more lines"] if len(lines) > DIFF_LINES else []
    return "\n".join(lines[:DIFF_LINES] + more)


def changes(section, old, new):
    """What changed between two texts of a section, as lines to print."""
    if old is None:
        return "the old text is not in the cache: --against OLD_BUILD/replay shows the difference"
    if not section.startswith("kernels "):
        return unified(old, new, section)
    before, after = old.split("\f"), new.split("\f")
    gone, added = [k for k in before if k not in set(after)], [k for k in after if k not in set(before)]
    names = [kernel.partition("\n")[0].removeprefix("// ") for kernel in added or gone]
    counts = f"{len(added)} of {len(after)} kernels changed, {len(before)} before: " + "; ".join(names)
    return counts + ("\n" + unified(gone[0], added[0], names[0]) if gone and added else "")


def golden():
    """{(model, run, section): hash}"""
    if not os.path.exists(GOLDEN):
        return {}
    rows = {}
    with open(GOLDEN, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                key, model, run, section = line.rstrip("\n").split(" ", 3)
                rows[model, run, section] = key
    return rows


def write_golden(rows):
    with open(GOLDEN + ".part", "w", encoding="utf-8") as file:
        file.write("# Hashes of what the compiler writes: tests/replay.py. Changed by --update alone.\n")
        for (model, run, section), key in sorted(rows.items()):
            file.write(f"{key} {model} {run} {section}\n")
    os.replace(GOLDEN + ".part", GOLDEN)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models (default: all)")
    parser.add_argument("--update", action="store_true", help="accept what changed")
    parser.add_argument("--against", metavar="OLD_REPLAY", help="the replay program that made the golden file")
    flags = parser.parse_args()
    names = flags.names or [*MODELS, *OTHERS]
    unknown = [name for name in names if name not in MODELS and name not in ARCHITECTURES]
    if unknown:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join([*MODELS, *OTHERS])}")
    program = os.path.join(os.environ.get("build", "build"), "replay")
    models = os.path.join(CACHE, "models")
    os.makedirs(models, exist_ok=True)
    rows, passed, failed = golden(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        files = {name: model_of(name, models) for name in names}
        jobs = {(name, run): pool.submit(texts_of, program, *files[name], RUNS[run]) for name in names for run in RUNS}
        for (name, run), job in jobs.items():
            expected = {section: key for (model, r, section), key in rows.items() if (model, r) == (name, run)}
            try:
                texts = job.result()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name} {run}: {error}")
                failed += 1
                continue
            for text in texts.values():
                keep(text)
            different = [s for s in {**expected, **texts} if s not in texts or expected.get(s) != digest(texts[s])]
            old_texts = texts_of(flags.against, *files[name], RUNS[run]) if different and flags.against else {}
            for section in different:
                if section not in expected:
                    print(f"{name} {run} {section}: new")
                    continue
                old = old_texts.get(section) if flags.against else kept(expected[section])
                print(f"{name} {run} {section}: {changes(section, old, texts.get(section, ''))}")
            if flags.update:
                rows = {key: value for key, value in rows.items() if key[:2] != (name, run)}
                rows.update({(name, run, section): digest(text) for section, text in texts.items()})
            good = flags.update or not different
            passed, failed = passed + good, failed + (not good)
    if flags.update:
        write_golden(rows)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
