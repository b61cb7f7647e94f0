"""A model with its data as a folder that onnx_backend runs, and the engines that run it."""
import os
import pathlib
import subprocess
import sys
import typing

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

BUILD = pathlib.Path(os.environ.get("build", "build"))
onnxruntime.set_default_logger_severity(4)


class Form(typing.NamedTuple):
    """A mode of onnx_backend, and how far LLVM goes."""
    mode: str
    optimize: int

    def __str__(self):
        return f"{self.mode}-O{self.optimize}"


def run_onnxruntime(model, inputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def write_case(folder, model, inputs, outputs):
    """inputs by name; without outputs, the interpreter's count."""
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "tolerance").write_text("1e-3 1e-7 1e-3\n")
    onnx.save(model, folder / "model.onnx")
    for kind, arrays in (("input", [inputs[i.name] for i in model.graph.input]), ("output", outputs or [])):
        for i, array in enumerate(arrays):
            (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(array)).SerializeToString())


def run_cases(folder, form, jobs):
    """Runs the cases in folder/node on the interpreter and in this form; {(case, mode): reason} of those that differ, one
    mode each."""
    failures = folder / "failures"
    modes = ",".join(dict.fromkeys(("interpreter", form.mode)))
    together = "8" if form.mode.startswith("cuda") else "1"
    ran = subprocess.run([BUILD / "onnx_backend", folder, "--engine", modes, "--optimize", str(form.optimize),
                          "--kernels-per-object", "16", "--as-given", "--failures", failures, "--jobs", str(jobs),
                          "--tests-per-process", together], capture_output=True, text=True)
    if ran.returncode not in (0, 1):
        sys.exit(f"onnx_backend ended with {ran.returncode}: {ran.stderr}")
    found = {}
    for line in failures.read_text().splitlines():
        mode, name, reason = line.split("\t", 2)
        found.setdefault(name.removeprefix("node/"), (mode, reason))
    return {(name, mode): reason for name, (mode, reason) in found.items()}
