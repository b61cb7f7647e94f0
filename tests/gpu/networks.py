"""Whole networks in half precision on the GPU of this machine, beside PyTorch eager and torch.compile.

    python tests/gpu/networks.py STRIDEC [--peers default,reduce-overhead,max-autotune] [--folder FOLDER] [name...]
    python tests/gpu/networks.py STRIDEC --build [--folder FOLDER] [name...]     # exports and compiles alone: no GPU needed

Names beside those of NETWORKS and OTHERS are torchvision's: densenet121, resnext50_32x4d, deeplabv3_resnet50, r3d_18.

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
    """The first output of a model that answers with a tuple or a dictionary."""

    def __init__(self, model, **arguments):
        super().__init__()
        self.model, self.arguments = model, arguments

    def forward(self, x):
        out = self.model(x, **self.arguments)
        return next(iter(out.values())) if isinstance(out, dict) else out[0]


def vision(name):
    import torchvision

    parts = {"weights_backbone": None} if name in torchvision.models.list_models(torchvision.models.segmentation) else {}
    module = torchvision.models.get_model(name, weights=None, **parts)
    size = {"inception_v3": (299, 299)}.get(name, (224, 224))
    if name in torchvision.models.list_models(torchvision.models.video):
        size = (16, 112, 112)
    return First(module) if parts else module, lambda batch: torch.randn(batch, 3, *size)


def text(kind, length=128, part=None, **arguments):
    """A transformers model, or a part of it, of token ids."""
    import transformers

    config = getattr(transformers, kind + "Config")(**arguments)
    module = getattr(transformers, kind + "Model")(config)
    if part:
        module = getattr(module, part)
    return First(module, return_dict=False), lambda batch: torch.randint(0, 30000, (batch, length))


def whisper():
    """The encoder of whisper-tiny, 30 seconds of sound."""
    from transformers import WhisperConfig, WhisperModel

    module = WhisperModel(WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536,
                                        decoder_layers=4, decoder_attention_heads=6, decoder_ffn_dim=1536))  # fmt: skip
    return First(module.encoder, return_dict=False), lambda batch: torch.randn(batch, 80, 3000)


def llama():
    """The shape of Llama-3.2-1B, whole prompts."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                         num_key_value_heads=8, max_position_embeddings=4096, rope_theta=500000.0, tie_word_embeddings=True,
                         use_cache=False, attn_implementation="sdpa")  # fmt: skip
    return First(LlamaModel(config), return_dict=False), lambda batch: torch.randint(0, 128000, (batch, 2048))


# name: (what makes the module and its input, batches, precision)
NETWORKS = {
    **{name: (lambda name=name: vision(name), batches, "fp16")
       for name, batches in {"resnet50": (1, 32), "mobilenet_v2": (1, 32), "efficientnet_b0": (32,), "convnext_tiny": (32,),
                             "vit_b_16": (1, 32), "swin_t": (32,)}.items()},
    "bert_base": (lambda: text("Bert", attn_implementation="sdpa"), (1, 32), "fp16"),
    "llama_1b": (llama, (1,), "bf16"),
}  # fmt: skip
OTHERS = {  # run where they are named
    "gpt2": (lambda: text("GPT2", 512, use_cache=False, attn_implementation="sdpa"), (1, 8), "fp16"),
    "t5_small_encoder": (lambda: text("T5", part="encoder", d_model=512, num_heads=8, num_layers=6), (1, 32), "bf16"),
    "deberta": (lambda: text("Deberta", pos_att_type=["c2p", "p2c"], relative_attention=True), (1, 32), "fp16"),
    "whisper_encoder": (whisper, (1, 8), "fp16"),
}


def network(name):
    return NETWORKS.get(name) or OTHERS.get(name) or ((lambda: vision(name)), (1, 32), "fp16")


NARROW = {"fp16": torch.float16, "bf16": torch.bfloat16}
LIMIT = {"fp16": 5e-3, "bf16": 5e-2}  # of the relative error; more where PyTorch eager in the same type is off as well
MODES = ("default", "reduce-overhead")


def make(name):
    """The module with seeded weights, and what makes its input. A pass in training mode gives batch normalisations the
    statistics of their inputs: without it deep networks of random weights answer with zeros."""
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # a fused operator that has no form in ONNX
    module, example = network(name)[0]()
    norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
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
                   "--precision", network(name)[2], "--dim", "batch=1..64", "--progress=none", "--quiet"]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"{name:16} {mode}: compiled in {time.perf_counter() - start:.1f} s", flush=True)
    return built


def compare(stridec, folder, name, peers):
    built = build(stridec, folder, name)
    module, example = make(name)
    _, batches, precision = network(name)
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
                theirs = x.to(NARROW[precision])
            if x.dim() == 4:
                theirs = theirs.contiguous(memory_format=torch.channels_last)
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
    peers = [peer for peer in flags.peers.split(",") if peer]
    with tempfile.TemporaryDirectory() as made:
        folder = flags.folder or made
        os.makedirs(folder, exist_ok=True)
        run = build if flags.build else lambda *what: compare(*what, peers)
        each(flags.names or NETWORKS, lambda name: run(flags.stridec, folder, name))


if __name__ == "__main__":
    main()
