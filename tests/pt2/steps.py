"""Modules that keep state over several runs, against PyTorch: python tests/pt2/steps.py

Batch norm in training, and a language model with a static cache. Needs PyTorch and transformers; without PyTorch it prints that
it is skipped. The last line is "N passed, N failed".
"""

import pathlib
import sys
import tempfile

import compare

sys.path.insert(0, str(compare.ROOT / "python"))
import stridec  # noqa: E402

try:
    import torch
except ImportError:
    print("skipped: PyTorch is not installed\n0 passed, 0 failed")
    sys.exit(0)

import export_programs
import feature_programs
import network_programs


def step_by_step(module, steps, folder):
    """(good, detail) of module and artifact side by side, each with its own state. steps: the arguments of each call."""
    program = torch.export.export(module, (), steps[0], strict=False)
    path, artifact = folder / "model.pt2", folder / "model.so"
    torch.export.save(program, path)
    reason = compare.compiled(path, artifact)
    if reason:
        return False, reason
    model = stridec.Model(str(artifact))
    context = model.context(threads=1)
    worst = 0.0
    for arguments in steps:
        with torch.no_grad():
            expected = export_programs.tensors(module(**arguments))
        results = context.run(*[t.numpy() for t in export_programs.tensors(arguments)])
        for place, value in zip(compare.tensor_outputs(path), expected):
            worst = max(worst, compare.difference(value.detach().numpy(), results[place], model.outputs[place].dtype_name))
    return worst <= compare.TOLERANCE, f"{worst:.1e} over {len(steps)} steps"


def batch_norm(folder):
    torch.manual_seed(1)
    steps = [{"x": torch.randn(4, 3, 9, 9) * (k + 1)} for k in range(10)]
    return step_by_step(feature_programs.BatchNorm(0.0).train(), steps, folder)


def static_cache(folder):
    torch.manual_seed(1)
    module = network_programs.llama_staticcache()[0]
    steps = [{"input_ids": torch.randint(0, 512, (1, 1)), "cache_position": torch.tensor([k])} for k in range(64)]
    return step_by_step(module, steps, folder)


def main():
    failed = 0
    for run in (batch_norm, static_cache):
        with tempfile.TemporaryDirectory() as folder:
            good, detail = run(pathlib.Path(folder))
            print(f"{'agrees' if good else 'FAILED':8} {run.__name__}: {detail}", flush=True)
            failed += not good
    print(f"{2 - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
