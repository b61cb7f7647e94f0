"""Caches whose sizes a context is created with: [batch, 8, max_len, 64], by the commands and in Python."""

import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness import ROOT, expect, stridec
from models import model, value

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
HEADS, WIDTH = 8, 64
FLAGS = "--state past=present --dim batch=1..4,max_len=8..64%8"


def decoder(new):
    """Attention of `new` queries over a cache to which their rows are written first."""
    row = ["batch", HEADS, new, WIDTH]
    return model(
        [
            helper.make_node("ScatterElements", ["past", "at", "k"], ["present"], "cache", axis=2),
            helper.make_node("Transpose", ["present"], ["t"], "keys", perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["k", "t"], ["scores"], "scores"),
            helper.make_node("Softmax", ["scores"], ["p"], "weights", axis=-1),
            helper.make_node("MatMul", ["p", "present"], ["y"], "values"),
        ],
        [value("k", row), value("at", row, I64), value("past", ["batch", HEADS, "max_len", WIDTH])],
        [value("y", row), value("present", ["batch", HEADS, "max_len", WIDTH])],
    )


def prepare():
    """sized_decoder.so with one entry point, sized_pair.so with two, once."""
    if os.path.exists("sized_pair.so"):
        return
    onnx.save(decoder(1), "sized_decoder.onnx")
    onnx.save(decoder("n"), "sized_prompt.onnx")
    stridec(f"compile sized_decoder.onnx -o sized_decoder.so {FLAGS}", 0)
    stridec(f"compile --function prompt=sized_prompt.onnx --function decode=sized_decoder.onnx -o sized_pair.so {FLAGS} --dim n=1..8", 0)


def expected(cache, k, at):
    np.put_along_axis(cache, at, k, 2)
    scores = k @ cache.transpose(0, 1, 3, 2)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ cache


def test_commands_take_sizes_of_states():
    """check, inspect, run, bench, profile and verify; what is missing is named."""
    prepare()
    text = stridec(f"check sized_decoder.onnx {FLAGS}", 0).stdout
    expect("max_len" in text and "a context is created with it" in text, text)
    symbols = {s["name"]: s for s in json.loads(stridec("inspect sized_decoder.so --format=json", 0).stdout)["symbols"]}
    expect(symbols["max_len"] == {"name": "max_len", "minimum": 8, "maximum": 64, "multiple": 8, "from": "context", "of_context": True}, symbols)
    expect(symbols["batch"]["from"] == {"input": "k", "dim": 0} and symbols["batch"]["of_context"] is True, symbols)
    expect("past" in (text := stridec("inspect sized_decoder.so", 0).stdout) and "a context is created with it" in text, text)
    stridec("verify sized_decoder.onnx sized_decoder.so --state past=present --runs 3", 0)
    stridec("verify sized_decoder.onnx sized_decoder.so --state past=present --dim batch=2,max_len=24", 0)
    stridec("verify sized_decoder.onnx sized_decoder.so --state past=present --steps 4", 0)
    stridec("verify sized_prompt.onnx sized_pair.so --function prompt --state past=present --runs 2", 0)
    stridec("bench sized_decoder.so --dim batch=2,max_len=32 --seconds 0.1", 0)
    stridec("profile sized_decoder.so --dim batch=2,max_len=32 --seconds 0.1", 0)
    stridec("run sized_decoder.so --random --dim max_len=16", 0)
    np.save("k.npy", np.ones((2, HEADS, 1, WIDTH), np.float32))
    np.save("at.npy", np.zeros((2, HEADS, 1, WIDTH), np.int64))
    files = "run sized_decoder.so -i k=k.npy -i at=at.npy"
    stridec(f"{files} --dim max_len=16", 0)
    error = stridec(files, 1).stderr
    expect("the size 'max_len' of the artifact's states is not given" in error and "--dim max_len=" in error, error)
    error = stridec(f"{files} --dim max_len=12", 4).stderr
    expect("a context with max_len 12; this artifact serves multiples of 8" in error, error)
    error = stridec(f"{files} --dim max_len=16,batch=3", 1).stderr
    expect("gives batch 2, where it is 3" in error, error)
    expect("unknown-dim" in stridec("bench sized_decoder.so --dim length=3 --seconds 0.1", 1).stderr, "a size that nobody has")
    error = stridec("compile sized_decoder.onnx -o never.so --state past=present --dim max_len=8..16,length=3", 1).stderr
    expect("length" in error, error)


def test_contexts_of_other_sizes():
    """Two contexts of one artifact with caches of their own sizes; saving and restoring."""
    prepare()
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import stridec as module

    draw = np.random.default_rng(3)
    with module.load("sized_pair.so", sizes={"max_len": 16}) as artifact:
        expect(artifact.context_sizes == {"batch": (1, 4, 1), "max_len": (8, 64, 8)}, artifact.context_sizes)
        for batch, length in ((1, 8), (3, 64)):
            context = artifact.context(sizes={"batch": batch, "max_len": length})
            cache = np.zeros((batch, HEADS, length, WIDTH), np.float32)
            for function, places in (("prompt", (0, 1, 2)), ("decode", (3,)), ("decode", (length - 1,))):
                k = draw.standard_normal((batch, HEADS, len(places), WIDTH)).astype(np.float32)
                at = np.broadcast_to(np.array(places)[:, None], k.shape).astype(np.int64)
                got = context.run(k, at, function=function)[0]
                difference = np.abs(got - expected(cache, k, at)).max()
                expect(difference < 1e-5, f"{function} with batch {batch}, max_len {length}: {difference}")
            saved = context.state("past")
            expect(np.array_equal(saved, cache), "the cache")
            context.reset_state()
            expect(not context.state("past").any(), "reset")
            context.write_state("past", saved)
            expect(np.array_equal(context.state("past"), saved), "restored")
            refused = None
            try:
                context.write_state("past", saved[:, :, :4])
            except module.Error as error:
                refused = str(error)
            expect(refused and f"dim 2 (max_len) is {length} in this context" in refused, refused)
        try:
            artifact.context()
            expect(False, "a context without a batch")
        except module.Error as error:
            expect("'batch' is not given" in str(error), error)
