"""Whole networks by torch.jit.script, trace and freeze against PyTorch: python tests/torchscript/networks.py [REGEX]

Random weights. Needs torch and torchvision; without them it prints that it is skipped. Scripted networks have a dynamic batch
and run at two sizes. --sample N runs every N-th. The last line is "N passed, N failed".
"""

import argparse
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


    for name in OTHERS:
        yield name, name, "other"


def tagger(kind):
    """A recurrent network over words, whose sizes are both open."""
    import torch

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(50, 16)
            self.layers = getattr(torch.nn, kind)(16, 12, num_layers=2, bidirectional=True, batch_first=True)
            self.tags = torch.nn.Linear(24, 7)

        def forward(self, words):
            return self.tags(self.layers(self.words(words))[0]).log_softmax(-1)

    return Tagger().eval(), ["--shape", "words=i64[batch,time]"], [(torch.randint(0, 50, s),) for s in ((2, 9), (1, 1), (3, 17))]


def quantised():
    import torch

    layers = [torch.nn.Linear(24, 40), torch.nn.ReLU(), torch.nn.Linear(40, 9)]
    module = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(*layers).eval(), {torch.nn.Linear}, torch.qint8)
    return module, ["--shape", "input=batch,24"], [(torch.randn(s, 24),) for s in (4, 1, 9)]


def encoder():
    import torch

    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    return module, ["--shape", "src=batch,time,16"], [(torch.randn(*s, 16),) for s in ((2, 9), (1, 4))]


def detector():
    """Boxes of images of open sizes, with suppression of those that overlap."""
    import torch
    import torchvision

    module = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5, detections_per_img=20).eval()  # fmt: skip
    for weight in module.parameters():  # PyTorch's first weights give all boxes one score
        if weight.dim() > 1:
            torch.nn.init.kaiming_normal_(weight)
    for weight in module.head.classification_head.parameters():  # and these scores of 1
        weight.data.mul_(0.3)
    return module, ["--shape", "images.0=3,h,w"], [([torch.rand(3, 200, 180)],), ([torch.rand(3, 160, 240)],)]


OTHERS = {"LSTM tagger scripted": lambda: tagger("LSTM"), "GRU tagger scripted": lambda: tagger("GRU"),
          "linear layers quantised": quantised, "transformer encoder scripted": encoder, "ssdlite scripted": detector}  # fmt: skip


def flattened(value, name):
    """(name, array) of the tensors of a value, by the artifact's names."""
    if hasattr(value, "numpy"):
        yield name or "output", value.numpy()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, item in items:
        yield from flattened(item, f"{name}.{key}" if name else str(key))


def saved_other(name, path):
    import torch

    torch.manual_seed(1)
    module, flags, calls = OTHERS[name]()
    made = torch.jit.script(module)
    made.save(str(path))
    arrays = {"flags": np.array(flags, dtype=str)}
    names = [argument.name for argument in made.forward.schema.arguments[1:]]
    for k, call in enumerate(calls):
        with torch.no_grad():
            result = made(*call)
        for argument, value in zip(names, call):
            arrays.update({f"{k}/in/{n}": a for n, a in flattened(value, argument)})
        arrays.update({f"{k}/out/{n}": a for n, a in flattened(result, "")})
    np.savez(path.with_suffix(".npz"), **arrays)


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
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--sample", type=int, default=1)
    options = parser.parse_args()
    good = bad = 0
    for job, name, how in [j for j in jobs() if re.search(options.pattern, j[0])][:: options.sample]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"{name}_{how}.pt"
            if how == "other":
                saved_other(name, path)
            else:
                saved(name, how, path)
            verdict, detail = compare.compare(path, path.with_suffix(".npz"), path.with_suffix(".so"), TOLERANCE, 1e-30)
        good, bad = good + (verdict == "agrees"), bad + (verdict != "agrees")
        print(f"{verdict:8} {job}: {detail}", flush=True)
    print(f"{good} passed, {bad} failed")
    sys.exit(1 if bad else 0)


main()
