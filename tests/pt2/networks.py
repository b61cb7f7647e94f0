"""Networks against PyTorch, in both forms and at two sizes: python tests/pt2/networks.py [REGEX]

Exports networks of torchvision, timm and transformers with random weights, compiles each, un-decomposed and after
run_decompositions(), and compares at the exported sizes and one larger. Modules that keep state run several steps: batch norm in
training, a language model with a static cache. Needs PyTorch and what a network's row names; a package that is missing skips its
rows. The last line is "N passed, N failed".
"""

import pathlib
import re
import sys
import tempfile
import warnings

import numpy as np
import torch
from torch.export import Dim

import compare
import sizes

warnings.filterwarnings("ignore")
sys.path.insert(0, str(compare.ROOT / "python"))
import stridec  # noqa: E402

OPEN = Dim.DYNAMIC
FLOOR = 1e-30  # random weights may shrink results to any size


def images(model, size=64, open_dims=(0,)):
    return model, (torch.randn(2, 3, size, size),), {}, ({d: OPEN for d in open_dims},)


def torchvision_model(name, size=64, open_dims=(0,)):
    import torchvision

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return images(torchvision.models.get_model(name, weights=None, **options), size, open_dims)


def timm_model(name, size=64, **options):
    import timm

    return images(timm.create_model(name, **options), size)


def tokens(length=16):
    return torch.randint(0, 512, (2, length))


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 512}


def transformer(config, model, inputs, **options):
    import transformers

    module = getattr(transformers, model)(getattr(transformers, config)(**options))
    dims = {k: {d: OPEN for d in range(v.dim() if v.dtype == torch.int64 else 1)} if isinstance(v, torch.Tensor) else None
            for k, v in inputs.items()}
    return module, (), inputs, dims


def llama():
    return transformer("LlamaConfig", "LlamaForCausalLM", {"input_ids": tokens(), "use_cache": False},
                       num_key_value_heads=2, **SMALL)


def bert():
    return transformer("BertConfig", "BertModel", {"input_ids": tokens(), "attention_mask": torch.ones(2, 16, dtype=torch.int64)},
                       **SMALL)


def t5():
    inputs = {"input_ids": tokens(), "decoder_input_ids": tokens(8), "use_cache": False}
    return transformer("T5Config", "T5ForConditionalGeneration", inputs, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
                       vocab_size=512)


def whisper():
    inputs = {"input_features": torch.randn(2, 16, 100), "decoder_input_ids": tokens(8), "use_cache": False}
    return transformer("WhisperConfig", "WhisperForConditionalGeneration", inputs, d_model=64, encoder_layers=1, decoder_layers=1,
                       encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=512,
                       max_source_positions=50, max_target_positions=32, num_mel_bins=16, pad_token_id=0, bos_token_id=1,
                       eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)


NETWORKS = {
    "tv.resnet18": lambda: torchvision_model("resnet18", open_dims=(0, 2, 3)),
    "tv.mobilenet_v2": lambda: torchvision_model("mobilenet_v2"),
    "tv.mobilenet_v3_small": lambda: torchvision_model("mobilenet_v3_small"),
    "tv.shufflenet_v2_x0_5": lambda: torchvision_model("shufflenet_v2_x0_5"),
    "tv.densenet121": lambda: torchvision_model("densenet121"),
    "tv.googlenet": lambda: torchvision_model("googlenet", 96),
    "timm.convnext_atto": lambda: timm_model("convnext_atto", depths=(1, 1, 2, 1)),
    "timm.vit_tiny": lambda: timm_model("vit_tiny_patch16_224", depth=2, img_size=64),
    "timm.mobilevit_xxs": lambda: timm_model("mobilevit_xxs"),
    "timm.ghostnet_100": lambda: timm_model("ghostnet_100"),
    "timm.levit_128s": lambda: timm_model("levit_128s", 224),
    "hf.bert": bert,
    "hf.llama": llama,
    "hf.t5": t5,
    "hf.whisper": whisper,
}


def tensors(value):
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def save(program, path, inputs, results):
    torch.export.save(program, path)
    arrays = {f"i{k}": t.numpy() for k, t in enumerate(tensors(inputs))}
    np.savez(path.with_suffix(".npz"), **arrays, **{f"o{k}": t.numpy() for k, t in enumerate(tensors(results))})


def compare_network(make, folder, report):
    torch.manual_seed(1)
    module, args, kwargs, dims = make()
    program = torch.export.export(module.eval(), args, kwargs, dynamic_shapes=dims, strict=False)
    with torch.no_grad():
        results = module(*args, **kwargs)
    for form, made in (("", lambda: program), (".core", program.run_decompositions)):
        path = folder / f"model{form}.pt2"
        try:
            save(made(), path, (args, kwargs), results)
        except Exception as error:  # PyTorch's own limits: decompositions re-trace with strides
            print(f"skipped{form}: {str(error).splitlines()[0][:100]}")
            continue
        verdict, detail = compare.compare(path, path.with_suffix(".npz"), folder / "model.so", FLOOR)
        report(form, verdict == "agrees", f"{verdict} {detail}")
        if verdict == "agrees":
            larger(path, form, folder / "model.so", program.module(), report)


def larger(path, form, artifact, module, report):
    data = np.load(path.with_suffix(".npz"))
    own = sizes.resized(path, [data[f"i{k}"] for k in range(sum(n[0] == "i" for n in data))], lambda n: n + 1)
    if own is None:
        return
    try:
        expected = sizes.run_pytorch(module, path, own)
    except Exception:  # PyTorch itself refuses the size
        return
    model = stridec.Model(str(artifact))
    results = model.context(threads=1).run(*own)
    worst = max(compare.difference(e, results[p], model.outputs[p].dtype_name, FLOOR)
                for p, e in zip(compare.tensor_outputs(path), expected))
    report(f"{form} larger", worst <= compare.tolerance_of(path), f"{worst:.1e}")


def step_by_step(name, module, steps, folder, report):
    """Runs module and artifact side by side; both keep their own state. steps: the arguments of each call."""
    program = torch.export.export(module, (), steps[0], strict=False)
    path, artifact = folder / "model.pt2", folder / "model.so"
    torch.export.save(program, path)
    reason = compare.compiled(path, artifact)
    if reason:
        report("", False, reason)
        return None
    model = stridec.Model(str(artifact))
    context = model.context(threads=1)
    worst = 0.0
    for arguments in steps:
        with torch.no_grad():
            expected = tensors(module(**arguments))
        results = context.run(*[t.numpy() for t in tensors(arguments)])
        for place, value in zip(compare.tensor_outputs(path), expected):
            worst = max(worst, compare.difference(value.detach().numpy(), results[place], model.outputs[place].dtype_name))
    report(f" over {len(steps)} steps", worst <= compare.TOLERANCE, f"{worst:.1e}")
    return context


class Normalized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)

    def forward(self, x):
        y = self.norm(self.conv(x))
        return y, self.norm.running_mean, self.norm.running_var, self.norm.num_batches_tracked


def batch_norm(folder, report):
    torch.manual_seed(1)
    steps = [{"x": torch.randn(4, 3, 9, 9) * (k + 1)} for k in range(10)]
    step_by_step("batch_norm", Normalized().train(), steps, folder, report)


def static_cache(folder, report):
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(1)
    config = transformers.LlamaConfig(num_key_value_heads=2, **SMALL)
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config = transformers.GenerationConfig(use_cache=True, cache_implementation="static", max_length=64,
                                                            cache_config={"batch_size": 1, "max_cache_len": 64})
    model.config.use_cache = True
    module = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=64, device=torch.device("cpu"))
    steps = [{"input_ids": torch.randint(0, 512, (1, 1)), "cache_position": torch.tensor([k])} for k in range(64)]
    step_by_step("static_cache", module, steps, folder, report)


STEPS = {"batch_norm": batch_norm, "static_cache": static_cache}


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    results = []
    for name, run in {**STEPS, **{n: lambda f, r, m=m: compare_network(m, f, r) for n, m in NETWORKS.items()}}.items():
        if not re.search(pattern, name):
            continue

        def report(what, good, detail, name=name):
            results.append(good)
            print(f"{'agrees' if good else 'FAILED':8} {name}{what}: {detail}", flush=True)

        with tempfile.TemporaryDirectory() as folder:
            try:
                run(pathlib.Path(folder), report)
            except ImportError as error:
                print(f"skipped  {name}: {error}")
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
