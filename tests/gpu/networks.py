"""Whole networks in half precision on the GPU of this machine, beside PyTorch eager and torch.compile.

    python tests/gpu/networks.py STRIDEC [--peers default,reduce-overhead,max-autotune] [--folder FOLDER] [name...]
    python tests/gpu/networks.py STRIDEC --build [--folder FOLDER] [name...]     # exports and compiles alone: no GPU needed

A network is torchvision's or transformers' with seeded random weights, exported in f32 with a symbolic batch, and compiled
once per mode (default, reduce-overhead) with --precision. It is run on device tensors; the same network in PyTorch, in the
same narrow type, is the peer. Both are compared with PyTorch in f32: the figure is the relative error of all outputs
(Frobenius norm). Times are medians of events around single calls, inputs in place.
"""

import argparse
import os
import subprocess
import tempfile
import time
import warnings

import torch

from bench import Runner, each, error, median_us

warnings.filterwarnings("ignore")


class First(torch.nn.Module):
    """The first output of a transformers model, without its dictionary."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, return_dict=False)[0]


def vision(name):
    import torchvision

    return getattr(torchvision.models, name)(weights=None), lambda batch: torch.randn(batch, 3, 224, 224)


def bert():
    from transformers import BertConfig, BertModel

    return First(BertModel(BertConfig(attn_implementation="sdpa"))), lambda batch: torch.randint(0, 30000, (batch, 128))


def llama():
    """The shape of Llama-3.2-1B, whole prompts."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                         num_key_value_heads=8, max_position_embeddings=4096, rope_theta=500000.0, tie_word_embeddings=True,
                         use_cache=False, attn_implementation="sdpa")  # fmt: skip
    return First(LlamaModel(config)), lambda batch: torch.randint(0, 128000, (batch, 2048))


# name: (what makes the module and its input, batches, precision)
NETWORKS = {
    **{name: (lambda name=name: vision(name), batches, "fp16")
       for name, batches in {"resnet50": (1, 32), "mobilenet_v2": (1, 32), "efficientnet_b0": (32,), "convnext_tiny": (32,),
                             "vit_b_16": (1, 32), "swin_t": (32,)}.items()},
    "bert_base": (bert, (1, 32), "fp16"),
    "llama_1b": (llama, (1,), "bf16"),
}  # fmt: skip
NARROW = {"fp16": torch.float16, "bf16": torch.bfloat16}
LIMIT = {"fp16": 5e-3, "bf16": 5e-2}  # of the relative error; more where PyTorch eager in the same type is off as well
MODES = ("default", "reduce-overhead")


def make(name):
    """The module with seeded weights, and what makes its input. A pass in training mode gives batch normalisations the
    statistics of their inputs: without it deep networks of random weights answer with zeros."""
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # a fused operator that has no form in ONNX
    module, example = NETWORKS[name][0]()
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    if norms:
        for norm in norms:
            norm.momentum = None
        with torch.no_grad():
            module.train()(example(8))
    for name, weight in module.named_parameters():  # torchvision's ViT starts with a head of zeros
        if weight.dim() > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.02)
    return module.eval(), example


def build(stridec, folder, name):
    """The artifacts' paths by mode; files that stand there are taken as they are."""
    source = os.path.join(folder, name + ".onnx")
    if not os.path.exists(source):
        module, example = make(name)
        with torch.no_grad():
            torch.onnx.export(module, (example(2),), source + ".part", input_names=["x"], output_names=["y"],
                              dynamic_shapes=({0: torch.export.Dim("batch", max=64)},), opset_version=18, dynamo=True)  # fmt: skip
        os.replace(source + ".part", source)
    built = {}
    for mode in MODES:
        built[mode] = os.path.join(folder, f"{name}.{mode}.so")
        if os.path.exists(built[mode]):
            continue
        start = time.perf_counter()
        command = [stridec, "compile", source, "-o", built[mode], "--target", "cuda", "--gpu", "sm_90a", "--mode", mode,
                   "--precision", NETWORKS[name][2], "--dim", "batch=1..64", "--progress=none", "--quiet"]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"{name:16} {mode}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
    return built


def compare(stridec, folder, name, peers):
    built = build(stridec, folder, name)
    module, example = make(name)
    _, batches, precision = NETWORKS[name]
    module.cuda()
    inputs = {batch: example(batch).cuda() for batch in batches}
    with torch.no_grad():
        exact = {batch: module(x) for batch, x in inputs.items()}
        narrow = module.to(NARROW[precision])
        if next(iter(inputs.values())).dim() == 4:
            narrow = narrow.to(memory_format=torch.channels_last)
        best, limit = {}, {}
        for batch, x in inputs.items():
            theirs = x
            if x.is_floating_point():
                theirs = x.to(NARROW[precision]).contiguous(memory_format=torch.channels_last)
            for peer in ["eager", *peers]:
                torch._dynamo.reset()
                mode = None if peer == "default" else peer
                call = narrow if peer == "eager" else torch.compile(narrow, mode=mode)
                us = median_us([lambda call=call, x=theirs: call(x)], 100)
                best[batch] = min(us, best.get(batch, us))
                off = error(call(theirs), exact[batch])
                limit.setdefault(batch, max(LIMIT[precision], 1.5 * off))  # of PyTorch eager's rounding
                print(f"  {name} batch {batch}, PyTorch {peer:16} {us / 1e3:8.3f} ms, error {off:.1e}", flush=True)
        for mode, library in built.items():
            runner = Runner(library)
            for batch, x in inputs.items():
                out = torch.full_like(exact[batch], float("nan"))
                us = median_us([runner.bind([x], [out])], 100)
                off = error(out, exact[batch])
                print(f"  {name} batch {batch}, stridec {mode:16} {us / 1e3:8.3f} ms, error {off:.1e}, PyTorch's best / stridec "
                      f"{best[batch] / us:.2f}{'' if off < limit[batch] else '  WRONG'}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stridec")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--peers", default="default,reduce-overhead", help="modes of torch.compile")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--folder")
    flags = parser.parse_intermixed_args()
    unknown = [name for name in flags.names if name not in NETWORKS]
    if unknown:
        parser.error(f"no network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    peers = [peer for peer in flags.peers.split(",") if peer]
    with tempfile.TemporaryDirectory() as made:
        folder = flags.folder or made
        os.makedirs(folder, exist_ok=True)
        run = build if flags.build else lambda *what: compare(*what, peers)
        each(flags.names or NETWORKS, lambda name: run(flags.stridec, folder, name))


if __name__ == "__main__":
    main()
