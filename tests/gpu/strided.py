"""Tensors of the device that are strided, offset or both, as inputs and as outputs: what compact ones give, to rounding (vectors
add up in another order than single elements do, which tensors that begin anywhere want).

    python tests/gpu/strided.py STRIDEC|LIBRARY     a library is one that this made elsewhere: strided.py STRIDEC --build LIBRARY

Rows of every form pass through softmax(x + b), whose kernels ask for aligned vectors where they find them. An output whose
elements overlap is refused with a sentence. The last line is "N passed, N failed".
"""

import os
import subprocess
import sys
import tempfile

ROWS, COLUMNS = 37, 96


def build(stridec, library):
    import onnx
    from onnx import TensorProto as T
    from onnx import helper as h

    value = lambda name, dims: h.make_tensor_value_info(name, T.FLOAT, dims)  # noqa: E731
    graph = h.make_graph([h.make_node("Add", ["x", "b"], ["t"]), h.make_node("Softmax", ["t"], ["y"], axis=-1)], "strided",
                         [value("x", ["n", "c"]), value("b", ["c"])], [value("y", ["n", "c"])])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), library + ".onnx")
    subprocess.run([stridec, "compile", library + ".onnx", "-o", library, "--target", "cuda", "--gpu", "sm_90a", "--progress=none", "--quiet"],
                   check=True)  # fmt: skip


def forms(torch):
    """name: a tensor of ROWS x COLUMNS over memory of its own."""
    new = lambda *shape: torch.full(shape, float("nan"), device="cuda")  # noqa: E731
    return {
        "in one piece": lambda: new(ROWS, COLUMNS),
        "behind one element": lambda: new(ROWS * COLUMNS + 1)[1:].view(ROWS, COLUMNS),
        "behind four": lambda: new(ROWS * COLUMNS + 4)[4:].view(ROWS, COLUMNS),
        "columns of wider rows": lambda: new(ROWS, COLUMNS + 5)[:, 3:-2],
        "every other row": lambda: new(2 * ROWS, COLUMNS)[::2],
        "every third column": lambda: new(ROWS, 3 * COLUMNS)[:, 1::3],
        "transposed": lambda: new(COLUMNS, ROWS).t(),
        "of a batch in the middle": lambda: new(ROWS, 3, COLUMNS)[:, 1],
    }


def check(library):
    import torch
    from bench import Runner, s

    runner = Runner(library)
    x, b = torch.randn(ROWS, COLUMNS, device="cuda"), torch.randn(COLUMNS, device="cuda")
    want = torch.empty_like(x)
    runner.bind([x, b], [want])()
    torch.cuda.synchronize()
    passed = failed = 0

    def judge(name, right):
        nonlocal passed, failed
        passed, failed = passed + right, failed + (not right)
        if not right:
            print(f"  {name} differs", flush=True)

    judge("softmax", torch.allclose(want, torch.softmax(x + b, -1), atol=1e-6))
    for source, make_source in forms(torch).items():
        for target, make_target in forms(torch).items():
            given, got = make_source(), make_target()
            given.copy_(x)
            torch.cuda.synchronize()
            runner.bind([given, b], [got])()
            torch.cuda.synchronize()
            judge(f"{source} to {target}", torch.allclose(got, want, rtol=1e-5, atol=1e-8))
    got, row = torch.empty_like(x), x[:1].expand(ROWS, COLUMNS)  # one row for all
    runner.bind([row, b], [got])()
    torch.cuda.synchronize()
    judge("one row for all", torch.allclose(got, want[:1].expand(ROWS, COLUMNS), rtol=1e-5, atol=1e-8))
    try:
        runner.bind([x, b], [torch.empty(1, COLUMNS, device="cuda").expand(ROWS, COLUMNS)])()
        judge("an output of overlapping elements", False)
    except s.Error as problem:
        judge("an output of overlapping elements", "overlap" in str(problem))
    print(f"{passed} passed, {failed} failed")
    return failed


def main():
    if "--build" in sys.argv:
        return build(sys.argv[1], sys.argv[3])
    if sys.argv[1].endswith(".so"):
        return check(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "strided.so")
        build(sys.argv[1], library)
        return check(library)


if __name__ == "__main__":
    sys.exit(bool(main()))
