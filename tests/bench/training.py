"""Training steps against PyTorch on a CPU: python tests/bench/training.py [name...] [--threads 2] [--compile]

A step is forward, backward and AdamW or SGD, on the same batch, in f32, interleaved in one process: PyTorch eager (and with
torch.compile, if asked) and stridec. Prints medians in ms, the losses of the last step, and the ratio. Needs torch,
torchvision, transformers, onnx, onnxscript.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="*")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--rounds", type=int, default=7)
arguments = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRIDEC = os.path.abspath(os.environ.get("stridec", ROOT / "build" / "stridec"))
sys.path.insert(0, str(ROOT / "python"))
import stridec  # noqa: E402


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        return self.model(*inputs).logits


def tokens(words, *shape):
    return torch.randint(0, words, shape)


def gpt2():
    import transformers

    config = transformers.GPT2Config(vocab_size=8192, n_positions=128, n_embd=256, n_layer=4, n_head=4, resid_pdrop=0,
                                     embd_pdrop=0, attn_pdrop=0, use_cache=False, bos_token_id=0, eos_token_id=0)  # fmt: skip
    return Logits(transformers.GPT2LMHeadModel(config)), tokens(8192, 4, 128), tokens(8192, 4, 128)


def bert():
    import transformers

    config = transformers.BertConfig(hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536,
                                     hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=5)  # fmt: skip
    return Logits(transformers.BertForSequenceClassification(config)), tokens(30522, 4, 128), tokens(5, 4)


def vision(name, size=224, batch=8):
    def make():
        import torchvision

        model = getattr(torchvision.models, name)(num_classes=100)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return model, torch.randn(batch, 3, size, size), tokens(100, batch)

    return make


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5000, 128), nn.Linear(512, 20)
        self.lstm = nn.LSTM(128, 256, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


def lstm():
    return Tagger(), tokens(5000, 16, 60), tokens(20, 16, 60)


MODELS = {
    "gpt2": gpt2,
    "bert": bert,
    "resnet18": vision("resnet18"),
    "resnet50": vision("resnet50", batch=4),
    "mobilenet_v2": vision("mobilenet_v2"),
    "lstm": lstm,
}


def loss_of(y, t):
    return F.cross_entropy(y.flatten(0, -2), t.flatten())


def stepper(model, x, t):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(x), t)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def ours(model, x, t, folder):
    path = folder / "model.onnx"
    torch.onnx.export(model.eval(), (x,), path, input_names=["x"], output_names=["y"], dynamo=True, optimize=False,
                      external_data=False, verbose=False)  # fmt: skip
    model.train()
    train = "loss=cross_entropy,logits=y,labels=t,optimizer=adamw,lr=1e-4,functions=train_step"
    start = time.time()
    subprocess.run([STRIDEC, "compile", path, "-o", folder / "model.so", "--train", train, "-q"], check=True, timeout=900)
    seconds = time.time() - start
    context = stridec.Model(str(folder / "model.so")).context(threads=arguments.threads)
    run = context.prepare(x.numpy(), t.numpy()) if hasattr(context, "prepare") else lambda: context.run(x.numpy(), t.numpy())
    return (lambda: float(run()[0])), seconds, context


def race(name):
    torch.manual_seed(0)
    model, x, t = MODELS[name]()
    model.train()
    with tempfile.TemporaryDirectory() as folder:
        step, seconds, context = ours(model, x, t, pathlib.Path(folder))
        racers = {"stridec": step}
        if arguments.compile:
            import copy

            compiled = copy.deepcopy(model)
            racers["compiled"] = stepper(torch.compile(compiled), x, t)
        racers["eager"] = stepper(model, x, t)
        times, losses = {name: [] for name in racers}, {}
        for i in range(arguments.rounds + 2):
            for racer, run in racers.items():
                start = time.perf_counter()
                losses[racer] = run()
                if i >= 2:
                    times[racer].append(time.perf_counter() - start)
        medians = {racer: 1e3 * statistics.median(values) for racer, values in times.items()}
        peer = min(value for racer, value in medians.items() if racer != "stridec")
        text = ", ".join(f"{racer} {value:.1f} ms (loss {losses[racer]:.5f})" for racer, value in medians.items())
        print(f"{name}: {text}; {peer / medians['stridec']:.2f}x; compiled in {seconds:.0f} s", flush=True)
        if os.environ.get("STEPS"):
            context.profile()
            step()
            steps = sorted(context.steps(), key=lambda s: -s[2])[: int(os.environ["STEPS"])]
            for row in steps:
                print("   ", row)


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    for name in arguments.names or MODELS:
        race(name)


main()
