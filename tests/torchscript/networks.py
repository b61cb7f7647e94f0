"""Whole networks by torch.jit.script, trace and freeze against PyTorch: python tests/torchscript/networks.py [REGEX]

Random weights. Needs torch and torchvision; without them it prints that it is skipped. Scripted networks have a dynamic batch
and run at two sizes. The last line is "N passed, N failed".
"""

import pathlib
import re
import sys
import tempfile
import warnings

import numpy as np

import compare

TOLERANCE = 1e-3  # of the largest magnitude of an output, through whole networks with random weights
CLASSIFIERS = ["alexnet", "vgg11_bn", "squeezenet1_1", "resnet18", "resnext50_32x4d", "densenet121", "googlenet",
               "inception_v3", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "mnasnet0_5", "efficientnet_b0",
               "efficientnet_v2_s", "regnet_y_400mf", "convnext_tiny", "vit_b_32", "swin_t", "swin_v2_t",
               "maxvit_t"]  # fmt: skip
SEGMENTERS = ["fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]
FROZEN = ["resnet18", "mobilenet_v3_small", "vit_b_32"]


def jobs():
    """(name, network, how)"""
    for name in CLASSIFIERS:
        yield f"{name} scripted", name, "script"
        yield f"{name} traced", name, "trace"
    for name in FROZEN:
        yield f"{name} frozen", name, "freeze"
    for name in SEGMENTERS:
        yield f"{name} scripted", name, "script"


def network(name):
    """The module in eval mode and the size of its images."""
    import torchvision

    options = {"weights_backbone": None} if name in SEGMENTERS else {}
    if name in ("googlenet", "inception_v3"):
        options = {"init_weights": True, "transform_input": True}
    module = torchvision.models.get_model(name, weights=None, **options).eval()
    return module, {"inception_v3": 299, "vit_b_32": 224, "swin_t": 224, "swin_v2_t": 256, "maxvit_t": 224}.get(name, 96)


def saved(name, how, path):
    """Writes the module and its results (compare.py)."""
    import torch

    torch.manual_seed(1)
    module, size = network(name)
    for parameter in module.parameters():
        if not parameter.any():  # heads that start as zeros
            torch.nn.init.normal_(parameter, std=0.02)
    example = torch.randn(1, 3, size, size)
    if how == "trace":
        made, batches, flags = torch.jit.trace(module, example, check_trace=False), [1], []
    else:
        made, batches, flags = torch.jit.script(module), [1, 2], ["--shape", f"=batch,3,{size},{size}"]
    if how == "freeze":
        made = torch.jit.freeze(made)
    made.save(str(path))
    image = list(made.forward.schema.arguments)[1].name
    flags = [flag.replace("=batch", f"{image}=batch") for flag in flags]
    arrays = {"flags": np.array(flags, dtype=str)}
    for k, batch in enumerate(batches):
        images = torch.randn(batch, 3, size, size)
        with torch.no_grad():
            result = made(images)
        arrays[f"{k}/in/{image}"] = images.numpy()
        results = result if isinstance(result, dict) else {"output": result}
        if hasattr(result, "_fields"):  # the scripted form of a network with auxiliary outputs
            results = {n: v for n, v in result._asdict().items() if v is not None}
        arrays.update({f"{k}/out/{n}": v.numpy() for n, v in results.items()})
    np.savez(path.with_suffix(".npz"), **arrays)


def main():
    try:
        import torchvision  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}\n0 passed, 0 failed")
        return
    warnings.filterwarnings("ignore")
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    good = bad = 0
    for job, name, how in jobs():
        if not re.search(pattern, job):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{name}_{how}.pt"
            saved(name, how, path)
            verdict, detail = compare.compare(path, path.with_suffix(".npz"), path.with_suffix(".so"), TOLERANCE, 1e-30)
        good, bad = good + (verdict == "agrees"), bad + (verdict != "agrees")
        print(f"{verdict:8} {job}: {detail}", flush=True)
    print(f"{good} passed, {bad} failed")
    sys.exit(1 if bad else 0)


main()
