"""Writes tests/train/cases with PyTorch: python tests/train/write_cases.py [name...]

A case is a model, the text of --train, and what PyTorch computes: the loss of each step, and the parameters and statistics
after the last one. Needs torch, onnx and onnxscript.
"""

import copy
import pathlib
import sys
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn, optim

from torch_lion import Lion

CASES = pathlib.Path(__file__).resolve().parent / "cases"
STEPS, BATCHES = 20, 4


class Mlp(nn.Module):
    outputs = ["y"]

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))

    inputs = [(7, 6)]


class Residual(nn.Module):
    """Convolutions with strides, batch normalization, pooling, a shortcut."""

    outputs = ["y"]
    inputs = [(6, 3, 13, 11)]

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.inner, self.inner_norm = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, stride=2, padding=1)
        x = F.relu(x + self.inner_norm(self.inner(x)))
        return self.head(x.mean((2, 3)))


class Decoder(nn.Module):
    """A causal transformer whose head is its embedding."""

    outputs = ["y"]
    inputs = [("tokens", 3, 9)]
    words, width, heads = 23, 16, 2

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.words, self.width)
        self.norm, self.last_norm = nn.LayerNorm(self.width), nn.LayerNorm(self.width)
        self.qkv, self.out = nn.Linear(self.width, 3 * self.width), nn.Linear(self.width, self.width)
        self.up, self.down = nn.Linear(self.width, 32), nn.Linear(32, self.width)

    def forward(self, tokens):
        x = self.embedding(tokens)
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, self.width)
        x = x + self.out(a)
        x = x + self.down(F.gelu(self.up(self.last_norm(x))))
        return x @ self.embedding.weight.T


class Towers(nn.Module):
    outputs = ["a", "b", "c"]
    inputs = [(5, 6), (5, 6), (5, 6)]

    def __init__(self):
        super().__init__()
        self.tower = nn.Linear(6, 8)

    def forward(self, x, y, z):
        return self.tower(x), self.tower(y), self.tower(z)


MODELS = {"mlp": Mlp, "residual": Residual, "decoder": Decoder, "towers": Towers}


def clip_loss(a, b):
    scores = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.07
    at = torch.arange(len(a))
    return (F.cross_entropy(scores, at) + F.cross_entropy(scores.T, at)) / 2


def z_loss(y, t):
    return F.cross_entropy(y, t) + 0.01 * torch.logsumexp(y, 1).square().mean()


def dice_loss(y, t):
    p = torch.sigmoid(y)
    return (1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()


def focal_loss(y, t):
    p = torch.sigmoid(y)
    wrong = 1 - (p * t + (1 - p) * (1 - t))
    each = F.binary_cross_entropy_with_logits(y, t, reduction="none") * wrong**2
    return (each * (0.25 * t + 0.75 * (1 - t))).mean()


# Targets by kind, of a batch whose output has the given shape.
def targets(kind, shape, generator):
    if kind == "real":
        return torch.randn(shape, generator=generator)
    if kind == "bits":
        return torch.randint(0, 2, shape, generator=generator).float()
    if kind == "shares":
        return torch.softmax(torch.randn(shape, generator=generator), -1)
    if kind == "class":
        return torch.randint(0, shape[-1], shape[:-1], generator=generator)
    if kind == "ignored":
        labels = torch.randint(0, shape[-1], shape[:-1], generator=generator)
        return torch.where(torch.rand(shape[:-1], generator=generator) < 0.3, -100, labels)
    return None


CROSS = "loss=cross_entropy,logits=y,labels=t,"
MSE = "loss=mse,output=y,target=t,"
SGD = "optimizer=sgd,lr=0.05"


def cross(y, t, **options):
    return F.cross_entropy(y.flatten(0, -2), t.flatten(), **options)


def clipped(limit):
    return lambda m: nn.utils.clip_grad_norm_(m.parameters(), limit)


# name: (model, --train, loss, kind of the target, optimizer, what happens before a step)
def optimizer_case(text, make):
    return ("mlp", MSE + text, F.mse_loss, "real", make, None)


def loss_case(text, loss, kind, model="mlp"):
    return (model, text + "," + SGD, loss, kind, lambda p: optim.SGD(p, 0.05), None)


TABLE = {
    "sgd": optimizer_case("optimizer=sgd,lr=0.1,weight_decay=0.01", lambda p: optim.SGD(p, 0.1, weight_decay=0.01)),
    "momentum": optimizer_case("optimizer=sgd,lr=0.1,momentum=0.9,dampening=0.1",
                               lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.1)),
    "nesterov": optimizer_case("optimizer=sgd,lr=0.1,momentum=0.9,nesterov=1",
                               lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True)),
    "adam": optimizer_case("optimizer=adam,lr=0.02,weight_decay=0.1", lambda p: optim.Adam(p, 0.02, weight_decay=0.1)),
    "adamw": optimizer_case("optimizer=adamw,lr=0.02,beta1=0.8,beta2=0.95,eps=1e-6,weight_decay=0.1",
                            lambda p: optim.AdamW(p, 0.02, (0.8, 0.95), 1e-6, 0.1)),
    "amsgrad": optimizer_case("optimizer=adamw,lr=0.02,amsgrad=1", lambda p: optim.AdamW(p, 0.02, amsgrad=True)),
    "nadam": optimizer_case("optimizer=nadam,lr=0.02,weight_decay=0.1", lambda p: optim.NAdam(p, 0.02, weight_decay=0.1)),
    "radam": optimizer_case("optimizer=radam,lr=0.02,weight_decay=0.1", lambda p: optim.RAdam(p, 0.02, weight_decay=0.1)),
    "adagrad": optimizer_case("optimizer=adagrad,lr=0.05,lr_decay=0.1",
                              lambda p: optim.Adagrad(p, 0.05, lr_decay=0.1)),
    "adadelta": optimizer_case("optimizer=adadelta,lr=2", lambda p: optim.Adadelta(p, 2.0)),
    "rmsprop": optimizer_case("optimizer=rmsprop,lr=0.01", lambda p: optim.RMSprop(p, 0.01)),
    "rmsprop_centered": optimizer_case("optimizer=rmsprop,lr=0.01,centered=1,momentum=0.5",
                                       lambda p: optim.RMSprop(p, 0.01, centered=True, momentum=0.5)),
    "lion": optimizer_case("optimizer=lion,lr=0.01,weight_decay=0.1", lambda p: Lion(p, 0.01, weight_decay=0.1)),
    "adafactor": optimizer_case("optimizer=adafactor,lr=0.05", lambda p: optim.Adafactor(p, 0.05)),
    "muon": ("mlp", MSE + "optimizer=muon,lr=0.02,other_lr=0.5,weight_decay=0.1", F.mse_loss, "real", "muon", None),
    "clip_norm": ("mlp", MSE + "optimizer=sgd,lr=0.5,clip_norm=0.3", F.mse_loss, "real", lambda p: optim.SGD(p, 0.5),
                  clipped(0.3)),
    "clip_value": ("mlp", MSE + "optimizer=sgd,lr=0.5,clip_value=0.05", F.mse_loss, "real", lambda p: optim.SGD(p, 0.5),
                   lambda m: nn.utils.clip_grad_value_(m.parameters(), 0.05)),
    "cross_entropy": loss_case("loss=cross_entropy,logits=y,labels=t", cross, "class"),
    "smoothing": loss_case("loss=cross_entropy,logits=y,labels=t,label_smoothing=0.2",
                           lambda y, t: cross(y, t, label_smoothing=0.2), "ignored"),
    "z": loss_case("loss=cross_entropy,logits=y,labels=t,z=0.01", z_loss, "class"),
    "shares": loss_case("loss=soft_cross_entropy,logits=y,target=t", F.cross_entropy, "shares"),
    "sum": loss_case("loss=mse,output=y,target=t,reduction=sum", lambda y, t: F.mse_loss(y, t, reduction="sum"), "real"),
    "l1": loss_case("loss=l1,output=y,target=t", F.l1_loss, "real"),
    "huber": loss_case("loss=huber,output=y,target=t,delta=0.5", lambda y, t: F.huber_loss(y, t, delta=0.5), "real"),
    "smooth_l1": loss_case("loss=smooth_l1,output=y,target=t,beta=0.5",
                           lambda y, t: F.smooth_l1_loss(y, t, beta=0.5), "real"),
    "bce": loss_case("loss=bce_with_logits,logits=y,target=t,pos_weight=3",
                     lambda y, t: F.binary_cross_entropy_with_logits(y, t, pos_weight=torch.tensor(3.0)), "bits"),
    "kl": loss_case("loss=kl,output=y,target=t", lambda y, t: F.kl_div(y, t, reduction="batchmean"), "shares"),
    "focal": loss_case("loss=focal,logits=y,target=t", focal_loss, "bits"),
    "dice": loss_case("loss=dice,logits=y,target=t", dice_loss, "bits"),
    "cosine": loss_case("loss=cosine,output=y,target=t", lambda y, t: (1 - F.cosine_similarity(y, t)).mean(), "real"),
    "triplet": loss_case("loss=triplet,anchor=a,positive=b,negative=c", F.triplet_margin_loss, None, "towers"),
    "info_nce": loss_case("loss=info_nce,output=a,keys=b", lambda a, b, c: clip_loss(a, b), None, "towers"),
    "residual": ("residual", CROSS + "optimizer=sgd,lr=0.05,momentum=0.9,weight_decay=1e-3", cross, "class",
                 lambda p: optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-3), None),
    # eps: the biases of keys have no effect, and Adam with a small one makes steps of the noise in their gradients.
    "decoder": ("decoder", CROSS + "optimizer=adamw,eps=1e-6,lr=cosine(5e-3, warmup=4, total=16, min=1e-3)", cross, "ignored",
                "cosine", None),
}


def rates(step):
    if step < 4:
        return 5e-3 * (step + 1) / 4
    share = min((step - 4) / 12, 1)
    return 1e-3 + 4e-3 * 0.5 * (1 + np.cos(np.pi * share))


def batch(spec, generator):
    if spec[0] == "tokens":
        return torch.randint(0, Decoder.words, spec[1:], generator=generator)
    return torch.randn(spec, generator=generator)


def strip(path):
    """Removes what the exporter says of source files."""
    model = onnx.load(path)
    for node in [*model.graph.node, *(n for f in model.functions for n in f.node)]:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        value.ClearField("metadata_props")
    onnx.save(model, path)


def write_model(name):
    torch.manual_seed(1)
    model = MODELS[name]().eval()
    generator = torch.Generator().manual_seed(2)
    args = tuple(batch(spec, generator) for spec in model.inputs)
    names = [f"x{i}" for i in range(len(args))]
    torch.onnx.export(model, args, CASES / f"{name}.onnx", input_names=names, output_names=model.outputs, dynamo=True,
                      optimize=False, external_data=False, verbose=False,
                      dynamic_shapes=tuple({0: torch.export.Dim("batch")} for _ in args))  # fmt: skip
    strip(CASES / f"{name}.onnx")
    return model


def muon(model, lr=0.02):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    return [optim.Muon(matrices, lr, weight_decay=0.1), optim.AdamW(others, lr / 2, weight_decay=0.1)]


def write_case(name, model):
    kind, text, loss_of, target_kind, make, before = TABLE[name]
    model = copy.deepcopy(model).train()
    generator = torch.Generator().manual_seed(3)
    inputs, labels = [], []
    for _ in range(BATCHES):
        inputs.append([batch(spec, generator) for spec in model.inputs])
        y = model.eval()(*inputs[-1])
        y = y[0] if isinstance(y, tuple) else y
        labels.append(targets(target_kind, y.shape, generator))
    model.train()
    optimizers = muon(model) if make == "muon" else None
    if make == "cosine":
        optimizers = [optim.AdamW(model.parameters(), 1.0, eps=1e-6)]
    optimizers = optimizers or [make(model.parameters())]
    losses = []
    for step in range(STEPS):
        x, t = inputs[step % BATCHES], labels[step % BATCHES]
        y = model(*x)
        y = y if isinstance(y, tuple) else (y,)
        loss = loss_of(*y) if t is None else loss_of(*y, t)
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if before:
            before(model)
        for each in optimizers:
            if make == "cosine":
                each.param_groups[0]["lr"] = rates(step)
            each.step()
    arrays = {"train": np.array(text), "model": np.array(kind), "losses": np.array(losses)}
    for i in range(len(inputs[0])):
        arrays[f"in.x{i}"] = np.stack([x[i].numpy() for x in inputs])
    if labels[0] is not None:
        arrays["in.t"] = np.stack([t.numpy() for t in labels])
    for state, value in model.state_dict().items():
        if not state.endswith("num_batches_tracked"):
            arrays[f"state.{state}"] = value.numpy()
    np.savez_compressed(CASES / f"{name}.npz", **arrays)


def main():
    warnings.simplefilter("ignore")
    CASES.mkdir(exist_ok=True)
    models = {name: write_model(name) for name in MODELS}
    for name in sys.argv[1:] or TABLE:
        write_case(name, models[TABLE[name][0]])
    print(len(TABLE), "cases")


if __name__ == "__main__":
    main()
