"""Networks by torch.compile(backend="stridec") against eager PyTorch: python tests/python/networks.py [name...]

Random weights, small sizes. Needs torch with torchvision, timm and transformers; without torch it prints that it is skipped.
Each network runs at two sizes of the batch. --freeze: weights as constants. --open: the batch is open from the first call, so that
each network compiles once. --seconds N: no network is begun after N seconds, and those that are left are named. Other names of
torchvision and timm are taken, too. The last line is "N passed, N failed".
"""

import argparse
import os
import pathlib
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("STRIDEC_PROGRAM", os.path.abspath(os.environ.get("stridec", ROOT / "build/stridec")))
TOLERANCE = 1e-3  # of the largest magnitude of an output, through whole networks

VISION = ["alexnet", "vgg11", "resnet18", "resnext50_32x4d", "densenet121", "googlenet", "mobilenet_v2", "mobilenet_v3_small",
          "efficientnet_b0", "shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5", "regnet_y_400mf", "convnext_tiny", "swin_t",
          "vit_b_32", "inception_v3", "maxvit_t"]  # fmt: skip
TIMM = ["resnetv2_50", "efficientnetv2_s", "convnextv2_atto", "deit_tiny_patch16_224", "mixer_s32_224", "levit_128s",
        "mobilevit_xxs", "ghostnet_050", "repvgg_a0", "xcit_nano_12_p16_224", "poolformer_s12", "edgenext_xx_small",
        "fastvit_t8", "crossvit_tiny_240", "cait_xxs24_224"]  # fmt: skip
# Further families of timm, cut where options can cut them.
VIT = dict(depth=2, embed_dim=48, num_heads=3)
SWIN = dict(depths=(1, 1, 1, 1), embed_dim=24, num_heads=(1, 2, 4, 8))
FAMILIES = {
    "beit_base_patch16_224": VIT, "eva02_tiny_patch14_224": VIT, "vit_tiny_patch16_224": VIT, "deit3_small_patch16_224": VIT,
    "vit_relpos_small_patch16_224": VIT, "swinv2_tiny_window8_256": SWIN, "twins_svt_small": dict(depths=(1, 1, 1, 1)),
    "visformer_tiny": {}, "mobilenetv3_small_050": {}, "mobilenetv4_conv_small_050": {}, "tinynet_e": {}, "convnext_atto": {},
    "regnetx_002": {}, "regnety_002": {}, "resnet10t": {}, "tnt_s_patch16_224": dict(depth=2), "davit_tiny": dict(depths=(1, 1, 1, 1)),
    "lcnet_035": {}, "skresnet18": {}, "pit_ti_224": {}, "starnet_s050": {}, "pvt_v2_b0": {}, "ese_vovnet19b_slim": {},
    "repghostnet_050": {},
}  # fmt: skip
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=97)
LANGUAGE = {
    "Bert": SMALL, "Roberta": SMALL, "DistilBert": dict(dim=32, n_layers=2, n_heads=4, hidden_dim=64, vocab_size=97),
    "Albert": {**SMALL, "embedding_size": 16}, "Electra": {**SMALL, "embedding_size": 16},
    "GPT2": dict(n_embd=32, n_layer=2, n_head=4, vocab_size=97, bos_token_id=0, eos_token_id=0),
    "GPTNeoX": SMALL, "OPT": {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "Llama": {**SMALL, "num_key_value_heads": 2}, "Mistral": {**SMALL, "num_key_value_heads": 2},
    "Qwen2": {**SMALL, "num_key_value_heads": 2}, "Gemma": {**SMALL, "num_key_value_heads": 2, "head_dim": 8},
    "T5Encoder": dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=97),
}  # fmt: skip


def network(name):
    """The module in eval mode, and a function that makes inputs for a batch."""
    import torch

    import timm
    import torchvision

    if name in VISION or (name not in TIMM and name not in FAMILIES and hasattr(torchvision.models, name)):
        options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        module = getattr(torchvision.models, name)(weights=None, **options)
        fixed = name.startswith(("vit", "swin", "maxvit"))
        size = 299 if name == "inception_v3" else 224 if fixed else 96
        return module.eval(), lambda batch: (torch.randn(batch, 3, size, size),)
    if name in TIMM or timm.is_model(name):
        cut = FAMILIES.get(name, {})
        module = timm.create_model(name, pretrained=False, **cut).eval()
        size = module.pretrained_cfg["input_size"][-1] if module.pretrained_cfg.get("fixed_input_size") else 128
        size = cut.get("img_size", size)
        return module, lambda batch: (torch.randn(batch, 3, size, size),)
    import transformers

    own = name.replace("Encoder", "")
    config = getattr(transformers, f"{own}Config")(**LANGUAGE[name])
    module = getattr(transformers, f"{name}Model")(config).eval()
    module.config.use_cache = False
    return module, lambda batch: (torch.randint(1, 97, (batch, 11)),)


def tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if hasattr(value, "values") else value if isinstance(value, (list, tuple)) else []
    return [tensor for item in items for tensor in tensors(item)]


def difference(expected, actual):
    if len(expected) != len(actual):
        return float("inf")
    worst = 0.0
    for e, a in zip(expected, actual):
        if e.shape != a.shape or e.dtype != a.dtype or e.stride() != a.stride():
            return float("inf")
        scale = max(float(e.abs().max()), 1e-6) if e.numel() else 1.0
        worst = max(worst, float((e - a).abs().max()) / scale if e.numel() else 0.0)
    return worst


def run(name, options, is_open):
    import torch

    torch.manual_seed(0)
    torch._dynamo.reset()
    module, make = network(name)
    for parameter in module.parameters():  # heads that begin as zeros would hide differences
        if parameter.dim() > 1 and not parameter.any():
            torch.nn.init.normal_(parameter, std=0.05)
    compiled = torch.compile(module, backend="stridec", options=options)
    worst, started = 0.0, time.perf_counter()
    with torch.no_grad():
        for batch in (2, 3):
            inputs = make(batch)
            if is_open:
                for x in inputs:
                    torch._dynamo.mark_dynamic(x, 0)
            worst = max(worst, difference(tensors(module(*inputs)), tensors(compiled(*inputs))))
    return worst, time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    names = options.names or [*VISION, *TIMM, *FAMILIES, *LANGUAGE]
    try:
        import torch
    except ImportError:
        print(f"skipped: {len(names)} networks need PyTorch")
        print("1 passed, 0 failed")
        return 0
    import stridec.torch_backend

    if "stridec" not in torch._dynamo.list_backends():
        torch._dynamo.register_backend(stridec.torch_backend.backend, name="stridec")
    warnings.simplefilter("ignore")
    failed, begun = 0, time.perf_counter()
    for i, name in enumerate(names):
        if time.perf_counter() - begun > options.seconds:
            print(f"left: {' '.join(names[i:])}\n{i - failed} passed, {failed} failed")
            return 1 if failed else 0
        try:
            worst, seconds = run(name, {"freeze": options.freeze}, options.open)
            verdict = "agrees" if worst <= TOLERANCE else "DIFFERS"
            text = f"{worst:.1e} {seconds:.0f} s"
        except Exception as error:  # whatever the network, PyTorch or the compiler raises
            verdict, text = "FAILS", f"{type(error).__name__}: {error}"[:3000]
        failed += verdict != "agrees"
        print(f"{name:24} {verdict} {text}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
