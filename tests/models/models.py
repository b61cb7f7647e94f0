"""The ten models: what they are given, and the ranges they are compiled for. Used by run.py and by tests/bench/race.py.
What a file of any other model is given."""

import json
import os
import re
import sys

import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))
sys.path[:0] = [os.path.join(ROOT, "samples", "models"), os.path.join(ROOT, "python")]

BATCH = "batch=1..64"
TEXT = "batch=1..64,sequence=1..512"

# name: --dim for the compiler, and shapes beside those of cases.json as values of the named sizes.
# The light ones are what CI runs. Those with "verify" run on the interpreter too, in some seconds each.
MODELS = {
    "recommender": {"dims": "batch=1..4096", "more": [{"batch": 3}, {"batch": 64}, {"batch": 1001}], "light": True, "verify": True},
    "mobilenet_v2": {"dims": BATCH, "more": [{"batch": 2}, {"batch": 5}, {"batch": 7}], "light": True, "verify": True},
    "tagger": {
        "dims": TEXT,
        "more": [{"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 7}, {"batch": 5, "sequence": 131}],
        "light": True,
        "verify": True,
    },
    "unet": {
        "dims": "batch=1..16,h8=1..64,w8=1..64",
        "more": [
            {"batch": 1, "h8": 1, "w8": 1},
            {"batch": 3, "h8": 3, "w8": 7},
            {"batch": 1, "h8": 17, "w8": 11},
        ],
        "light": True,
        "verify": True,
    },
    "llama_cached": {
        "dims": "batch=1..16,sequence=1..512,past=0..2048",
        "more": [
            {"batch": 1, "sequence": 5, "past": 0},
            {"batch": 3, "sequence": 1, "past": 37},
            {"batch": 1, "sequence": 33, "past": 511},
        ],
        "light": True,
        "verify": True,
    },
    "resnet50": {"dims": BATCH, "more": [{"batch": 2}, {"batch": 5}, {"batch": 7}]},
    "convnext_tiny": {"dims": BATCH, "more": [{"batch": 2}, {"batch": 5}, {"batch": 7}]},
    "vit_b_16": {"dims": BATCH, "more": [{"batch": 2}, {"batch": 5}, {"batch": 7}]},
    "bert_base": {
        "verify": True,
        "dims": TEXT,
        "more": [{"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 29}, {"batch": 5, "sequence": 131}],
    },
    "gpt2": {
        "verify": True,
        "dims": "batch=1..64,sequence=1..1024",
        "more": [{"batch": 1, "sequence": 1}, {"batch": 3, "sequence": 19}, {"batch": 1, "sequence": 201}],
    },
}

# Shapes of the inputs over the named sizes, for the shapes in "more".
SHAPES = {
    "image": ["batch", 3, 224, 224],
    "input_ids": ["batch", "sequence"],
    "position_ids": ["batch", "sequence"],
    "attention_mask": ["batch", "sequence"],
    "token_type_ids": ["batch", "sequence"],
    "past_key": [4, "batch", 4, "past", 64],
    "past_value": [4, "batch", 4, "past", 64],
    "dense": ["batch", 13],
}
OWN_SHAPES = {
    "unet": {"image": ["batch", 3, ("h8", 8), ("w8", 8)]},
    "recommender": {"ids": ["batch", 26]},
    "tagger": {"ids": ["batch", "sequence"]},
}


def _size(dim, sizes):
    if isinstance(dim, tuple):
        return sizes[dim[0]] * dim[1]
    return sizes.get(dim, dim)


def _draw(rng, dtype, shape, low, high):
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    if high == "arange":
        return np.ascontiguousarray(np.broadcast_to(np.arange(low, low + shape[-1]), shape), dtype)
    return rng.integers(low, high, shape).astype(dtype)


def case_count(name):
    """Of `cases`."""
    with open(os.path.join(FOLDER, "cases.json"), encoding="utf-8") as file:
        return len(json.load(file)[name]) + len(MODELS[name]["more"])


def cases(name):
    """(label, {input: array}) of every case: first those of cases.json, then the others."""
    with open(os.path.join(FOLDER, "cases.json"), encoding="utf-8") as file:
        listed = json.load(file)[name]
    for number, case in enumerate(listed):
        rng = np.random.default_rng(number)
        arrays = {key: _draw(rng, dtype, shape, low, high) for key, (dtype, shape, low, high) in case.items()}
        yield _label(arrays), arrays
    for number, sizes in enumerate(MODELS[name]["more"]):
        rng = np.random.default_rng(100 + number)
        arrays = {}
        for key, (dtype, _, low, high) in listed[0].items():
            dims = OWN_SHAPES.get(name, {}).get(key) or SHAPES[key]
            shape = [_size(dim, sizes) for dim in dims]
            if high == "arange":
                low = sizes["past"]
            arrays[key] = _draw(rng, dtype, shape, low, high)
            if key == "attention_mask" and sizes["sequence"] > 2:  # padding of different lengths
                for row in range(shape[0]):
                    arrays[key][row, shape[1] - row % shape[1] :] = 0
        yield _label(arrays), arrays


def _label(arrays):
    """The shapes that tell cases apart: "image 3x3x224x224"."""
    key = "past_key" if "past_key" in arrays else next(iter(arrays))
    label = f"{key} {'x'.join(map(str, arrays[key].shape))}"
    return f"{label}, input_ids {'x'.join(map(str, arrays['input_ids'].shape))}" if key == "past_key" else label


def file_cases(path, shapes):
    """(label, {input: array}) for each text "image=1x3x224x224,ids=1x128<30522": sizes of all inputs of the file, a scalar's
    none; integers are drawn below the number, which is 2 where none is given. A ValueError says what does not fit."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value.type.tensor_type for value in graph.input if value.name not in constants}
    for number, text in enumerate(shapes):
        rng = np.random.default_rng(number)
        given = dict(part.split("=", 1) if "=" in part else (part, None) for part in text.split(","))
        for name in given:
            if name not in inputs or given[name] is None:
                raise ValueError(f"{text}: '{name}' is not an INPUT=SIZES; {path} has the inputs {', '.join(inputs)}")
        arrays = {}
        for name, tensor in inputs.items():
            if name not in given:
                raise ValueError(f"{text}: no sizes for the input '{name}'")
            sizes, _, below = given[name].partition("<")
            if not re.fullmatch(r"(\d+(x\d+)*)?", sizes) or not re.fullmatch(r"\d*", below):
                raise ValueError(f"{name}={given[name]}: sizes are written 1x3x224x224, and <N behind those of integers")
            shape = [int(size) for size in sizes.split("x") if size]
            declared = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
            fits = len(declared) == len(shape) and all(d in (None, size) for d, size in zip(declared, shape))
            if tensor.HasField("shape") and not fits:
                wanted = "x".join(str(dim.dim_value or dim.dim_param or "?") for dim in tensor.shape.dim)
                raise ValueError(f"{name}={sizes}: the model's input is {wanted}")
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if dtype.kind not in "fiub":
                raise ValueError(f"the input '{name}' has elements that are not numbers")
            arrays[name] = _draw(rng, dtype.name, shape, 0, int(below or 2))
        yield ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in arrays.items()), arrays


def fill_model(name, folder):
    """The model with its weights as a file in `folder`; its path."""
    import fill

    path = os.path.join(folder, name + ".onnx")
    fill.fill(os.path.join(FOLDER, name + ".onnx"), path)
    return path


def reference_session(path, threads=2, config=()):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for key, value in dict(config).items():
        options.add_session_config_entry(key, value)
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feed(session, arrays):
    """Of the arrays, those that the model as onnxruntime sees it has as inputs."""
    return {value.name: arrays[value.name] for value in session.get_inputs()}


def differences(got, expected):
    """The largest and the mean difference over the largest magnitude expected; infinite where shapes, NaN or infinities
    differ."""
    unlike = float("inf"), float("inf")
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return unlike
    if expected.size == 0:
        return 0.0, 0.0
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return unlike
    if not finite.any():
        return 0.0, 0.0
    wide_got, wide_expected = got[finite].astype(np.float64), expected[finite].astype(np.float64)
    found = np.abs(wide_got - wide_expected) / max(np.abs(wide_expected).max(), np.finfo(np.float32).tiny)
    return (float(found.max()), float(found.mean())) if np.isfinite(found).all() else unlike


def difference(got, expected):
    """The largest of differences()."""
    return differences(got, expected)[0]
