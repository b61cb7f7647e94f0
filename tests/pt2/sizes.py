"""Programs at other sizes than those of the export, against PyTorch: python tests/pt2/sizes.py DIR [NAME...]

DIR is what pt2_exports.py wrote. Every symbolic size of a program takes two values: one more than in the example, and 1 where
PyTorch itself runs with it. The elements are the example's, repeated. Needs PyTorch.
"""

import pathlib
import re
import sys
import tempfile

import numpy as np
import torch

import compare

try:
    import transformers.modeling_outputs  # noqa: F401  registers the classes of its results
except ImportError:
    pass

sys.path.insert(0, str(compare.ROOT / "python"))
import stridec  # noqa: E402


def resized(path, arrays, change):
    """The example's tensors with each symbol's hint replaced by change(hint); None if a size is no symbol or multiple of one."""
    graph = compare.program(path)["graph_module"]
    out, seen = [], False
    arrays = iter(arrays)
    for spec in graph["signature"]["input_specs"]:
        argument = spec.get("user_input", {}).get("arg", {})
        if "as_tensor" not in argument:
            continue
        array, shape = next(arrays), []
        for size in graph["graph"]["tensor_values"][argument["as_tensor"]["name"]]["sizes"]:
            if "as_int" in size:
                shape.append(size["as_int"])
                continue
            seen = True
            text, hint = size["as_expr"]["expr_str"], size["as_expr"]["hint"]["as_int"]
            factor = re.match(r"Mul\(Integer\((\d+)\), Symbol", text)
            if not factor and not text.startswith("Symbol"):
                return None
            k = int(factor[1]) if factor else 1
            shape.append(k * change(hint // k))
        out.append(np.resize(array, shape))
    return out if seen else None


def run_pytorch(module, path, inputs):
    given = iter(inputs)
    graph = compare.program(path)["graph_module"]
    leaves = []
    for spec in graph["signature"]["input_specs"]:
        if "constant_input" in spec:
            value = next(iter(spec["constant_input"]["value"].values()))
            leaves.append(None if "as_none" in spec["constant_input"]["value"] else value)
        elif "as_tensor" in spec.get("user_input", {}).get("arg", {}):
            leaves.append(torch.from_numpy(next(given).copy()))
        elif "user_input" in spec:
            raise ValueError("an integer input")
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, module._in_spec)
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(module(*args, **kwargs))
    return [r.detach().numpy() for r in results if isinstance(r, torch.Tensor)]


def main():
    folder, *names = sys.argv[1:]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(pathlib.Path(folder).glob("*.pt2")):
            name = path.name.removesuffix(".pt2")
            arrays = path.parent / f"{name}.npz"
            if (names and name not in names) or not arrays.exists() or not compare.program(path)["range_constraints"]:
                continue
            data = np.load(arrays)
            inputs = [data[f"i{k}"] for k in range(sum(n[0] == "i" for n in data))]
            artifact = pathlib.Path(work) / f"{name}.so"
            reason = compare.compiled(path, artifact)
            if reason:
                print(f"{name:34} refused  {reason}")
                failed += 1
                continue
            try:
                module = torch.export.load(path).module()
            except RuntimeError as error:  # a result of a class that is not registered here
                print(f"{name:34} skipped  {str(error).splitlines()[0][:80]}")
                continue
            for label, change in (("example + 1", lambda n: n + 1), ("1", lambda n: 1)):
                own = resized(path, inputs, change)
                if own is None:
                    continue
                try:
                    expected = run_pytorch(module, path, own)
                except Exception as error:  # PyTorch refuses the size
                    print(f"{name:34} skipped  {label}: {str(error).splitlines()[0][:80]}")
                    continue
                try:
                    model = stridec.Model(str(artifact))
                    results = model.context(threads=1).run(*own)
                except stridec.Error as error:
                    print(f"{name:34} fails    {label}: {error}")
                    failed += 1
                    continue
                places = compare.tensor_outputs(path)
                worst = max((compare.difference(e, results[p], model.outputs[p].dtype_name)
                             for p, e in zip(places, expected)), default=0.0)
                good = worst <= compare.tolerance_of(path) and len(places) == len(expected)
                passed, failed = passed + good, failed + (not good)
                print(f"{name:34} {'agrees' if good else 'differs':8} {label}: {worst:.1e}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
