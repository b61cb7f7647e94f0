"""Writes more of tests/train/cases with PyTorch, for the models that write_cases.py wrote: python tests/train/write_more_cases.py

Low-rank adapters, whose initial values the case has ("initial."), and CTC. Needs torch and onnx.
"""

import copy

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import nn, optim

from write_cases import BATCHES, CASES, MODELS, STEPS, batch, cross, targets


class Adapted(nn.Module):
    """A layer and its adapter; a layer of another kind than Linear is a convolution."""

    def __init__(self, base, rank, alpha, generator):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        shape = base.weight.shape
        bound = 1 / np.sqrt(base.weight[0].numel())
        self.lora_A = nn.Parameter((torch.rand((rank, *shape[1:]), generator=generator) * 2 - 1) * bound)
        self.lora_B = nn.Parameter(torch.zeros((shape[0], rank, *(1 for _ in shape[2:]))))

    def forward(self, x):
        if isinstance(self.base, nn.Linear):
            low = x @ self.lora_A.T @ self.lora_B.T
        else:
            low = F.conv2d(F.conv2d(x, self.lora_A, None, self.base.stride, self.base.padding), self.lora_B)
        return self.base(x) + self.scale * low


def load(kind):
    model = MODELS[kind]()
    weights = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in onnx.load(CASES / f"{kind}.onnx").graph.initializer}
    model.load_state_dict({name: weights.get(name, value) for name, value in model.state_dict().items()})
    return model


ADAMW = "optimizer=adamw,lr=0.01,eps=1e-6,weight_decay=0.1"
SGD = "optimizer=sgd,lr=0.002"


def adamw(parameters):
    return optim.AdamW(parameters, 0.01, eps=1e-6, weight_decay=0.1)


def sgd(parameters):
    return optim.SGD(parameters, 0.002)


def train(model, optimizer, inputs, labels, loss_of):
    losses = []
    model.train()
    for step in range(STEPS):
        loss = loss_of(model(*inputs[step % BATCHES]), *labels[step % BATCHES])
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def write(name, kind, text, inputs, labels, names, losses, states, initial):
    arrays = {"train": np.array(text), "model": np.array(kind), "losses": np.array(losses)}
    for i in range(len(inputs[0])):
        arrays[f"in.x{i}"] = np.stack([x[i].numpy() for x in inputs])
    for i, target in enumerate(names):
        arrays[f"in.{target}"] = np.stack([t[i].numpy() for t in labels])
    arrays |= {f"initial.{state}": value.detach().numpy() for state, value in initial.items()}
    arrays |= {f"state.{state}": value.detach().numpy() for state, value in states.items()}
    np.savez_compressed(CASES / f"{name}.npz", **arrays)


def write_adapters(name, kind, layers, rank, alpha, also=()):
    """`also`: parameters that are trained themselves."""
    model, generator = load(kind), torch.Generator().manual_seed(5)
    inputs = [[batch(spec, generator) for spec in model.inputs] for _ in range(BATCHES)]
    labels = [[targets("class", model.eval()(*x).shape, generator)] for x in inputs]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    trained = {each: model.get_parameter(each).requires_grad_(True) for each in also}
    for layer in layers:
        adapted = Adapted(model.get_submodule(layer), rank, alpha, generator)
        setattr(model, layer, adapted)
        trained |= {f"{layer}.weight.lora_A": adapted.lora_A, f"{layer}.weight.lora_B": adapted.lora_B}
    initial = copy.deepcopy({key: value.detach().clone() for key, value in trained.items() if ".lora_" in key})
    losses = train(model, adamw(trained.values()), inputs, labels, cross)
    text = f"loss=cross_entropy,logits=y,labels=t,{ADAMW},lora={'|'.join(f'{layer}.weight' for layer in layers)}(rank={rank},alpha={alpha})"
    write(name, kind, text + (f",trainable={'|'.join(also)}" if also else ""), inputs, labels, ["t"], losses, trained, initial)


def write_ctc(name, blank, extra, **options):
    model, generator = load("decoder"), torch.Generator().manual_seed(6)
    inputs = [[batch(spec, generator) for spec in model.inputs] for _ in range(BATCHES)]
    labels = []
    for at in range(BATCHES):
        label = torch.randint(1, 22, (3, 4), generator=generator)
        label[0, 1] = label[0, 0]  # a repetition needs a blank between
        steps, sizes = torch.tensor([9, 8, 2 if options.get("zero_infinity") else 7]), torch.tensor([4, at % 4, 3])
        labels.append([label, steps, sizes])

    def loss_of(y, label, steps, sizes):
        return F.ctc_loss(torch.log_softmax(y, -1).transpose(0, 1), label, steps, sizes, blank=blank, **options)

    losses = train(model, sgd(model.parameters()), inputs, labels, loss_of)
    text = f"loss=ctc,logits=y,labels=t,input_lengths=n,target_lengths=m,layout=NTC,blank={blank},{SGD}{extra}"
    write(name, "decoder", text, inputs, labels, ["t", "n", "m"], losses, model.state_dict(), {})


def main():
    write_adapters("lora", "decoder", ["qkv", "out", "up", "down"], 3, 6)
    write_adapters("lora_conv", "residual", ["stem", "head"], 2, 3, also=["head.bias", "norm.weight"])
    write_ctc("ctc", 0, "")
    write_ctc("ctc_infinite", 22, ",zero_infinity=true,reduction=sum", zero_infinity=True, reduction="sum")
    print("4 cases")


main()
