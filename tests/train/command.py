"""What a user of `stridec compile --train` and `stridec train` sees."""

import json
import pathlib
import subprocess

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

import hostile

CASES = pathlib.Path(__file__).resolve().parent / "cases"
TRAIN = "loss=cross_entropy,logits=y,labels=t,optimizer=adamw,lr=1e-2"
ALL = TRAIN + ",functions=train_step+accumulate+apply+eval+predict"


class Commands:
    def __init__(self, program, work, expect, package):
        self.program, self.work, self.expect, self.stridec = program, work, expect, package

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, cwd=self.work, timeout=300)
        return done.returncode, done.stdout, done.stderr

    def works(self, name, *arguments):
        code, out, error = self.run(*arguments)
        self.expect(name, code == 0, error)
        return out

    def refused(self, name, code, sentence, *arguments):
        got, out, error = self.run(*arguments)
        self.expect(name, got == code and sentence in error, f"{got}: {error}{out}")


def samples(work):
    random = np.random.default_rng(0)
    x, w = random.standard_normal((300, 6)).astype(np.float32), random.standard_normal((6, 4))
    np.save(work / "x.npy", x)
    np.save(work / "t.npy", (x @ w).argmax(1))
    np.save(work / "far.npy", np.full(300, 4))
    np.save(work / "ignored.npy", np.full(300, -100))
    np.save(work / "nan.npy", np.full((300, 6), np.nan, np.float32))


def same_bytes(c, name, first, second):
    c.expect(name, (c.work / first).read_bytes() == (c.work / second).read_bytes())


def states(c, path):
    """The tensors of a safetensors file."""
    data = (c.work / path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    return {name: np.frombuffer(data[8 + length + e["data_offsets"][0] : 8 + length + e["data_offsets"][1]],
                                types[e["dtype"]]).reshape(e["shape"]) for name, e in header.items()}  # fmt: skip


def resume_and_accumulate(c):
    c.works("compile", "compile", CASES / "mlp.onnx", "-o", "m.so", "-q", "--train", ALL)
    data = ("--data", "x0=x.npy", "--data", "t=t.npy")
    out = c.works("train", "train", "m.so", *data, "--steps", 40, "--save", "whole.safetensors", "--curve", "c.svg", "--format",
                  "json", "--threads", 1)  # fmt: skip
    losses = json.loads(out)["losses"]
    c.expect("it learns", len(losses) == 40 and losses[-1] < 0.6 * losses[0], str(losses))
    c.expect("curve", (c.work / "c.svg").read_text().startswith("<svg"))
    c.works("half", "train", "m.so", *data, "--steps", 20, "--save", "half.safetensors", "--threads", 2)
    c.works("resume", "train", "m.so", *data, "--steps", 20, "--resume", "half.safetensors", "--save", "half.safetensors",
            "--threads", 2)  # fmt: skip
    same_bytes(c, "resumed, and with two threads", "whole.safetensors", "half.safetensors")
    c.works("batches of 32", "train", "m.so", *data, "--steps", 5, "--save", "a.safetensors")
    c.works("4 of 8", "train", "m.so", *data, "--steps", 5, "--batch", 8, "--accumulate", 4, "--save", "b.safetensors")
    a, b = states(c, "a.safetensors"), states(c, "b.safetensors")
    far = max(np.abs(a[name] - b[name]).max() for name in a)
    c.expect("accumulated gradients", far < 1e-5, f"{far}")
    for function in ("train_step", "accumulate", "apply", "eval", "predict"):
        c.works(f"verify {function}", "verify", CASES / "mlp.onnx", "m.so", "--function", function)


def without_norm(c):
    """A step that does not return the norm trains as one that does, also where clipping needs the norm."""
    data = ("--data", "x0=x.npy", "--data", "t=t.npy", "--steps", 5, "--format", "json")
    for name, settings in (("plain", ALL), ("clipped", ALL + ",clip_norm=0.1"), ("scaled", ALL + ",loss_scale=dynamic")):
        for file, norm in (("with", "true"), ("without", "false")):
            c.works(f"{name} {file}", "compile", CASES / "mlp.onnx", "-o", f"{file}.so", "-q", "--train", f"{settings},grad_norm={norm}")
            for parts, flags in (("step", ()), ("parts", ("--batch", 8, "--accumulate", 4))):
                out = json.loads(c.works(f"{name} {parts} {file}", "train", f"{file}.so", *data, *flags, "--save",
                                         f"{parts}_{file}.safetensors"))  # fmt: skip
                c.expect(f"{name} {parts} {file}: norms", len(out["grad_norms"]) == (5 if norm == "true" else 0), str(out))
        for parts in ("step", "parts"):
            kept, left = states(c, f"{parts}_with.safetensors"), states(c, f"{parts}_without.safetensors")
            c.expect(f"{name} {parts}: the same states", all(np.array_equal(kept[key], left[key]) for key in kept | left))
    for function in ("train_step", "apply"):
        c.works(f"without a norm: verify {function}", "verify", CASES / "mlp.onnx", "without.so", "--function", function)
    context = c.stridec.Model(str(c.work / "without.so")).context()
    c.expect("apply returns nothing", context.run(function="apply") == [])
    out = c.works("its lines", "train", "without.so", *data[:-2])
    c.expect("no norm in its lines", "5 steps" in out and "norm" not in out, out)


def other_operator(c):
    """A model whose tanh is a sigmoid, with the same weights."""
    model = onnx.load(CASES / "mlp.onnx")
    for node in model.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Sigmoid"
    onnx.save(model, c.work / "other.onnx")
    model = onnx.load(CASES / "mlp.onnx")
    bias = next(i for i in model.graph.initializer if i.name == "second.bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, bias.name))
    onnx.save(model, c.work / "moved.onnx")


def verify_steps(c):
    other_operator(c)
    (c.work / "mlp.onnx").write_bytes((CASES / "mlp.onnx").read_bytes())
    out = c.works("steps", "verify", "m.so", "--steps", 5)
    c.expect("what steps say", "5 steps: largest difference" in out, out)
    out = json.loads(c.works("steps as JSON", "verify", "mlp.onnx", "m.so", "--steps", 3, "--function", "train_step", "--format", "json"))
    c.expect("their rows", len(out["runs"]) == 3 and out["pass"] and out["states"] == 13 and out["runs"][2]["states"] < 1e-4, str(out))
    c.works("steps that accumulate", "verify", "m.so", "--steps", 3, "--function", "accumulate")
    c.refused("another operator", 8, "step 1: output 'loss' differs", "verify", "other.onnx", "m.so", "--steps", 3, "-q")
    c.refused("the first weight", 8, "state 'first.weight' differs", "verify", "other.onnx", "m.so", "--steps", 3, "-q")
    c.refused("another weight", 8, "before the first step, state 'second.bias' differs", "verify", "moved.onnx", "m.so", "--steps", 3, "-q")
    c.works("rate", "compile", "mlp.onnx", "-o", "rate.so", "-q", "--train",
            "loss=cross_entropy,logits=y,labels=t,optimizer=adam,lr=input")  # fmt: skip
    c.works("a rate that is an input", "verify", "rate.so", "--steps", 3)
    c.works("noise", "compile", CASES / "residual.onnx", "-o", "noise.so", "-q", "--train", TRAIN)
    out = json.loads(c.works("a bias without effect", "verify", CASES / "residual.onnx", "noise.so", "--steps", 4, "--format", "json"))
    c.expect("its name", out["noisy"] == ["inner.bias"], str(out["noisy"]))
    c.works("noisy average", "compile", CASES / "residual.onnx", "-o", "noise.so", "-q", "--train", TRAIN + ",ema=0.9")
    c.works("the average of such a bias", "verify", CASES / "residual.onnx", "noise.so", "--steps", 4)
    (c.work / "mlp.onnx").unlink()
    c.refused("no model", 1, "is not in the artifact's folder", "verify", "m.so", "--steps", 3)
    c.refused("no artifact", 1, "--steps needs an artifact", "verify", CASES / "mlp.onnx", "--steps", 3)
    c.refused("zero steps", 1, "--steps", "verify", CASES / "mlp.onnx", "m.so", "--steps", 0)


def refuse(c):
    data = ("--data", "x0=x.npy", "--data", "t=t.npy")
    (c.work / "cut.safetensors").write_bytes((c.work / "a.safetensors").read_bytes()[:-9])
    c.refused("cut file", 3, "data_offsets", "train", "m.so", *data, "--resume", "cut.safetensors")
    c.works("sgd", "compile", CASES / "mlp.onnx", "-o", "s.so", "-q", "--train",
            "loss=cross_entropy,logits=y,labels=t,optimizer=sgd,momentum=0.9,lr=input")  # fmt: skip
    c.refused("other states", 4, "'optimizer.momentum_buffer.first.weight' is missing", "train", "s.so", *data, "--lr", 1,
              "--resume", "a.safetensors")  # fmt: skip
    c.refused("no rate", 1, "learning rate is an input", "train", "s.so", *data)
    c.refused("a rate too many", 1, "was chosen when", "train", "m.so", *data, "--lr", 1)
    c.refused("no data", 1, "input 't' is not given", "train", "m.so", "--data", "x0=x.npy")
    c.refused("label out of range", 4, "label 4 of input 't' is not one of the 4 classes; 'far.npy' has it in sample ", "train", "m.so",
              "--data", "x0=x.npy", "--data", "t=far.npy")  # fmt: skip
    np.save(c.work / "one_far.npy", np.where(np.arange(300) == 17, -7, 1))
    np.savez(c.work / "one_far.npz", x0=np.load(c.work / "x.npy"), t=np.load(c.work / "one_far.npy"))
    for given in (("--data", "x0=x.npy", "--data", "t=one_far.npy"), ("--data", "one_far.npz")):
        c.refused(f"one label: {given}", 4, "label -7 of input 't' is not one of the 4 classes; 'one_far.np", "train", "m.so", *given)
        c.refused(f"its sample: {given}", 4, "has it in sample 17, counted from 0", "train", "m.so", *given)
    c.refused("NaN", 4, "the loss of step 1 is nan", "train", "m.so", "--data", "x0=nan.npy", "--data", "t=t.npy")
    c.refused("too many", 4, "300 samples do not fill", "train", "m.so", *data, "--batch", 301)
    c.refused("no accumulate", 1, "no function 'accumulate'", "train", "s.so", *data, "--lr", 1, "--accumulate", 2)
    model = CASES / "mlp.onnx"
    for name, text, sentence in (
        ("loss", "optimizer=sgd", "no loss is given"),
        ("unknown loss", "loss=l3", "there is no loss 'l3'"),
        ("missing", "loss=mse,output=y", "needs target"),
        ("output", "loss=mse,output=z,target=t", "the model has no output 'z'"),
        ("setting", "loss=mse,output=y,target=t,betas=1", "has a setting 'betas'"),
        ("decay", "loss=mse,output=y,target=t,beta1=1", "at least 0 and below 1"),
        ("rate", "loss=mse,output=y,target=t,lr=cosine(1)", "total must be given"),
        ("number", "loss=cross_entropy,logits=y,labels=t,label_smoothing=much", "label_smoothing='much' is not a number"),
        ("function", "loss=mse,output=y,target=t,functions=fit", "no function 'fit'"),
        ("eps", "loss=mse,output=y,target=t,eps=-1", "eps is -1"),
        ("weight decay", "loss=mse,output=y,target=t,optimizer=adam,weight_decay=-1", "weight_decay is -1"),
        ("group's decay", "loss=mse,output=y,target=t,group=*.bias(weight_decay=-1)", "weight_decay is -1"),
        ("Nesterov", "loss=mse,output=y,target=t,optimizer=sgd,nesterov=1", "nesterov=1 needs a momentum above 0"),
        ("limit", "loss=mse,output=y,target=t,clip_norm=-1", "clip_norm is -1"),
        ("norm", "loss=mse,output=y,target=t,grad_norm=1", "write grad_norm=true or grad_norm=false"),
        ("infinite", "loss=mse,output=y,target=t,clip_norm=inf", "it must be a finite number"),
        ("choice", "loss=kl,output=y,target=t,log_target=yes", "log_target is 'yes'"),
        ("reduction", "loss=mse,output=y,target=t,reduction=none", "reduction is 'none'"),
        ("common choice", "loss=mse,output=y,target=t,states=fp8", "states is 'fp8'"),
        ("its values", "loss=mse,output=y,target=t,states=fp8", "write states=bf16, or leave it out"),
        ("weights as numbers", "loss=cross_entropy,logits=y,labels=t,class_weights=1:2", "'1:2' is neither an input of the model nor a name"),
        ("a target as a number", "loss=mse,output=y,target=3", "write target=NAME"),
        ("class weights of another input", "loss=cross_entropy,logits=y,labels=t,class_weights=x0", "class_weights has to be f32[4]"),
        ("one output of a triplet", "loss=triplet,anchor=y,positive=y,negative=y", "anchor and positive are both 'y'"),
        ("keys", "loss=info_nce,output=y,keys=y", "output and keys are both 'y'"),
        ("class dim", "loss=cross_entropy,logits=y,labels=t,class_dim=2", "class_dim is 2, and the output has 2 dims"),
        ("smoothing", "loss=cross_entropy,logits=y,labels=t,label_smoothing=2", "label_smoothing is 2"),
        ("label", "loss=cross_entropy,logits=y,labels=t,ignore_index=1.5", "ignore_index is 1.5"),
        ("line", "loss=huber,output=y,target=t,delta=0", "delta is 0"),
        ("warm-up", "loss=mse,output=y,target=t,lr=linear(1, total=10, warmup=20)", "warmup is longer than total"),
        ("total", "loss=mse,output=y,target=t,lr=cosine(1, total=0)", "total must be at least 1"),
        ("group", "loss=mse,output=y,target=t,group=*bais|norm(weight_decay=0)", "no weight that is trained matches group=*bais|norm"),
    ):  # fmt: skip
        c.refused(name, 1, sentence, "compile", model, "-o", "r.so", "--train", text)
    c.refused("nothing to train", 1, "no weight is trained: --freeze '*' leaves none", "compile", model, "-o", "r.so", "--train", TRAIN,
              "--freeze", "*")  # fmt: skip
    c.refused("nothing to freeze", 1, "no weight for --freeze 'zz*'", "compile", model, "-o", "r.so", "--train", TRAIN, "--freeze", "zz*")
    c.refused("not all selected", 1, "no weight for --trainable 'zzz'", "compile", model, "-o", "r.so", "--train", TRAIN, "--trainable",
              "*.bias", "--trainable", "zzz")  # fmt: skip
    c.refused("a folder that is missing", 2, "cannot write 'none/a.safetensors'", "train", "m.so", "--save", "none/a.safetensors")
    c.refused("nothing to save to", 1, "--save-every needs a file to save to", "train", "m.so", *data, "--save-every", 1)
    c.works("plain sgd", "compile", CASES / "mlp.onnx", "-o", "p.so", "-q", "--train", "loss=cross_entropy,logits=y,labels=t,optimizer=sgd")
    code, out, error = c.run("train", "p.so", *data, "--steps", 1, "--resume", "a.safetensors")
    c.expect("states of another optimizer", code == 0 and "warning: 'a.safetensors' has" in error, error)


def keep_inputs(c):
    """A file that a command writes is not one that it reads, and has no name of another format. Everything stays as it was."""
    data = ("--data", "x0=x.npy", "--data", "t=t.npy")
    (c.work / "mlp.onnx").write_bytes((CASES / "mlp.onnx").read_bytes())
    np.savez(c.work / "all.npz", x0=np.load(c.work / "x.npy"), t=np.load(c.work / "t.npy"))
    c.works("external", "compile", "mlp.onnx", "-o", "k.so", "-q", "--train", TRAIN, "--weights", "external")
    c.works("a model's artifact", "compile", "mlp.onnx", "-o", "plain.so", "-q")
    c.works("a save", "train", "k.so", *data, "--steps", 2, "--save", "k.safetensors")
    (c.work / "linked.svg").symlink_to("t.npy")
    (c.work / "sub").mkdir()
    before = {path.name: path.read_bytes() for path in c.work.iterdir() if path.is_file()}
    over, same, other = "which is an input", "would be written to one file", ", and "
    for name, sentence, *flags in (
        ("data", over, *data, "--save", "x.npy"),
        ("by another path", over, *data, "--save", "sub/../t.npy"),
        ("a link", over, *data, "--curve", "linked.svg"),
        ("an archive", over, "--data", "all.npz", "--save", "all.npz"),
        ("an array of an archive", over, "--data", "x0=all.npz:x0", "--data", "t=t.npy", "--save", "all.npz"),
        ("the artifact", over, *data, "--save", "k.so"),
        ("its manifest", over, *data, "--save", "k.json"),
        ("its weights", over, *data, "--save", "k.weights"),
        ("its model", over, *data, "--save", "mlp.onnx"),
        ("what is resumed", over, *data, "--resume", "linked.svg", "--curve", "linked.svg"),
        ("one file", same, *data, "--save", "new", "--curve", "./new"),
        ("a picture of pixels", "'a.png' ends in .png, and the curve is written as svg", *data, "--curve", "a.png"),
        ("no extension", "'a' has no extension", *data, "--curve", "a"),
        ("an array", "'a.npy' ends in .npy", *data, "--save", "a.npy"),
    ):  # fmt: skip
        c.refused(f"keeps {name}", 1, sentence, "train", "k.so", *flags, "--steps", 1)
    c.works("resume in place", "train", "k.so", *data, "--steps", 1, "--resume", "k.safetensors", "--save", "k.safetensors")
    before["k.safetensors"] = (c.work / "k.safetensors").read_bytes()
    for name, sentence, *arguments in (
        ("export the model", over, "export", "mlp.onnx", "--state", "k.safetensors", "-o", "mlp.onnx"),
        ("export the save", over, "export", "mlp.onnx", "--state", "k.safetensors", "-o", "k.safetensors"),
        ("export another format", other, "export", "mlp.onnx", "--state", "k.safetensors", "-o", "new.pt2"),
        ("report the model", over, "report", "mlp.onnx", "-o", "mlp.onnx"),
        ("report another format", other, "report", "mlp.onnx", "-o", "new.pdf"),
        ("the graph", over, "inspect", "mlp.onnx", "--write-graph", "mlp.onnx"),
        ("a trace of the artifact", over, "profile", "plain.so", "--trace", "plain.so"),
        ("a trace of the input", over, "profile", "plain.so", "-i", "x0=x.npy", "--trace", "x.npy"),
        ("run", "writing output 'y' to 'x.npy' would overwrite 'x.npy'", "run", "plain.so", "-i", "x0=x.npy", "-o", "y=x.npy"),
        ("run to an archive", over, "run", "plain.so", "-i", "all.npz", "-o", "all.npz"),
        ("run another format", other, "run", "plain.so", "-i", "x0=x.npy", "-o", "y=y.npz"),
        ("refit", over, "refit", "plain.so", "--parameters", "mlp.onnx", "-o", "mlp.onnx"),
        ("repro", over, "verify", "mlp.onnx", "plain.so", "-i", "sub/inputs.npz", "--repro", "sub"),
    ):
        if name == "repro":
            (c.work / "sub" / "inputs.npz").write_bytes(before["all.npz"])
        c.refused(f"keeps: {name}", 1, sentence, *arguments)
    for text, name in (('{"loss": "mse", "output": "y", "target": "t"}', "settings.json"),):
        (c.work / name).write_text(text)
        c.refused("keeps: the settings", 1, over, "compile", "mlp.onnx", "-o", "settings.so", "--train-config", name)
        c.expect("the settings", (c.work / name).read_text() == text)
    for name, content in before.items():
        c.expect(f"keeps {name}", (c.work / name).read_bytes() == content)
    c.expect("nothing else", not (c.work / "new").exists() and not (c.work / "settings.so").exists())


def weigh_classes(c):
    """class_weights is an input of each step, without a dim of samples; also where sizes are fixed, and as many classes as samples."""
    np.save(c.work / "w.npy", np.array([4, 1, 0, 2], np.float32))
    data = ("--data", "x0=x.npy", "--data", "t=t.npy", "--data", "w=w.npy", "--steps", 3, "--format", "json")
    text = "loss=cross_entropy,logits=y,labels=t,class_weights=w,optimizer=sgd,lr=0"
    x, t, w = (np.load(c.work / f"{name}.npy") for name in ("x", "t", "w"))
    for name, flags, batch in (("symbol", (), 300), ("fixed", ("--dim", "batch=4"), 4)):
        c.works(f"weights {name}", "compile", CASES / "mlp.onnx", "-o", f"w_{name}.so", "-q", "--train", text, *flags)
        got = json.loads(c.works(f"weighted {name}", "train", f"w_{name}.so", *data, *(("--batch", 300) if name == "symbol" else ())))
        c.expect(f"batch {name}", got["batch"] == batch, str(got))
    logits = np.asarray(c.stridec.Model(str(c.work / "w_symbol.so")).context().run(x, function="predict")[0], np.float64)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    want = -(logs[np.arange(300), t] * w[t]).sum() / w[t].sum()
    got = json.loads(c.works("weighted loss", "train", "w_symbol.so", *data, "--batch", 300))["losses"]
    c.expect("its value", np.allclose(got, want, rtol=1e-5), f"{got} {want}")
    np.save(c.work / "w5.npy", np.ones(5, np.float32))
    c.refused("five weights", 4, "input 'w': dim 0 is 5, expected 4", "train", "w_symbol.so", *data[:4], "--data", "w=w5.npy")
    c.refused("weight of no class", 4, "label -7 of input 't' is not one of the 4 classes", "train", "w_symbol.so", "--data", "x0=x.npy",
              "--data", "t=one_far.npy", "--data", "w=w.npy")  # fmt: skip
    c.works("verify them", "verify", CASES / "mlp.onnx", "w_symbol.so", "--steps", 3)


def fit_outputs(c):
    """Outputs of ranks and sizes that a loss cannot use: a sentence, for each loss."""
    nodes = [h.make_node("MatMul", ["x", "w"], ["y"]), h.make_node("MatMul", ["x", "wide"], ["more"]), h.make_node("Neg", ["y"], ["other"]),
             h.make_node("ReduceSum", ["y"], ["all"], keepdims=0), h.make_node("ReduceSum", ["y", "rows"], ["row"], keepdims=0)]  # fmt: skip
    tensors = [numpy_helper.from_array(np.ones((6, n), np.float32), name) for name, n in (("w", 4), ("wide", 5))]
    outputs = [h.make_tensor_value_info(name, T.FLOAT, None) for name in ("y", "more", "other", "all", "row")]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 6])], outputs,
                         [*tensors, numpy_helper.from_array(np.array([0]), "rows")])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9), c.work / "shapes.onnx")
    for loss, sentence in (
        ("triplet,anchor=y,positive=other,negative=more", "needs outputs of one shape, and 'y' is f32[n, 4], 'more' is f32[n, 5]"),
        ("triplet,anchor=all,positive=y,negative=other", "needs an output of at least 1 dim, and 'all' is f32[]"),
        ("triplet,anchor=y,positive=row,negative=other", "'y' is f32[n, 4], 'row' is f32[4]"),
        ("info_nce,output=row,keys=y", "needs an output of at least 2 dims, and 'row' is f32[4]"),
        ("info_nce,output=y,keys=more", "needs outputs of one shape"),
        ("cosine,output=all,target=t", "needs an output of at least 1 dim, and 'all' is f32[]"),
        ("kl,output=all,target=t", "needs an output of at least 1 dim, and 'all' is f32[]"),
        ("cross_entropy,logits=all,labels=t", "class_dim is -1, and the output has 0 dims"),
        ("ctc,logits=y,labels=t,input_lengths=a,target_lengths=b", "needs an output [steps, batch, classes], and 'y' is f32[n, 4]"),
        ("mse,output=y,target=t,freeze=w", "the loss does not depend on the weights that are selected, 'wide'"),
    ):
        c.refused(f"shapes: {loss}", 1, sentence, "check", "shapes.onnx", "-q", "--train", f"loss={loss}")
    for loss in ("kl,output=all,target=t,reduction=sum", "mse,output=all,target=t", "triplet,anchor=y,positive=other,negative=y2"):
        code, out, error = c.run("check", "shapes.onnx", "-q", "--train", f"loss={loss}")
        c.expect(f"shapes: {loss}", code == (1 if "y2" in loss else 0), error)


def say_what_helps(c):
    """verify advises to compile again only where the artifact is of another model or another version."""
    (c.work / "v.onnx").write_bytes((CASES / "mlp.onnx").read_bytes())
    c.works("one to verify", "compile", "v.onnx", "-o", "v.so", "-q")
    code, out, error = c.run("verify", "v.onnx", "v.so", "--tolerance", "0", "--no-repro")
    c.expect("a tolerance", code == 8 and "allows this: leave --tolerance out" in out and "it again" not in out, out)
    wrong = np.load(c.work / "x.npy")[:, :4]
    np.save(c.work / "wrong.npy", wrong)
    code, out, error = c.run("verify", "v.onnx", "v.so", "-i", "x0=x.npy", "--expect", "y=wrong.npy", "--no-repro")
    c.expect("given outputs", code == 8 and "look at the expected values" in out and "it again" not in out, out)
    other_operator(c)
    code, out, error = c.run("verify", "other.onnx", "v.so", "--no-repro")
    c.expect("another model", code == 8 and "give that model, or compile this one" in out, out)
    c.works("a training", "compile", "v.onnx", "-o", "t.so", "-q", "--train", TRAIN)
    code, out, error = c.run("verify", "other.onnx", "t.so", "--steps", 2)
    c.expect("another model's steps", code == 8 and "give that model, or compile this one" in out, out)
    c.works("a failure's files", "verify", "v.onnx", "--runs", 1)
    flags = ("--pass", "after=import", "sed 's/= tanh /= sin /'")
    code, out, error = c.run("verify", "v.onnx", "--runs", 1, *flags)
    c.expect("a repro", code == 8 and (c.work / "repro" / "model.graph").exists(), out + error)
    kept = {path.name: path.read_bytes() for path in (c.work / "repro").iterdir()}
    again = ("verify", "repro/model.graph", "--input", "repro/inputs.npz", *flags)
    code, out, error = c.run(*again)
    c.expect("the same files again", code == 8 and "'repro' could not be written" in out and "--repro FOLDER names another" in out, out)
    c.refused("named for both", 1, "which is an input", *again, "--repro", "repro")
    c.expect("they stay", kept == {path.name: path.read_bytes() for path in (c.work / "repro").iterdir()})


def name_functions(c):
    c.works("no step", "compile", CASES / "mlp.onnx", "-o", "n.so", "-q", "--train", TRAIN + ",functions=eval")
    c.refused("no step: train", 1, "no function 'train_step', only eval", "train", "n.so", "--data", "x0=x.npy", "--data", "t=t.npy")
    report = json.loads(c.works("inputs", "check", CASES / "mlp.onnx", "--train", TRAIN + ",class_weights=w", "--format", "json"))
    added = [(i["name"], i["dtype"], i["shape"], i["setting"]) for i in report["training"]["inputs"]]
    c.expect("what is added", added == [("t", "i64", ["batch"], "labels"), ("w", "f32", [4], "class_weights")], str(added))
    code, out, error = c.run("check", CASES / "mlp.onnx", "--train", "loss=mse,output=z,target=t")
    c.expect("a wrong name", code == 1 and "no output 'z'" in out and "are trained" not in out, out)
    code, out, error = c.run("check", CASES / "mlp.onnx", "--train", TRAIN, "--format", "json", "--freeze", "*")
    c.expect("no plan", code == 1 and "training" not in json.loads(out), out)
    out = c.works("in text", "check", CASES / "mlp.onnx", "--train", "loss=mse,output=y,target=t,optimizer=sgd,lr=input")
    c.expect("in text", "input 't' f32[batch, 4] is added, for target" in out and "input 'lr' f32[] is added, for lr" in out, out)


def ignore_all(c):
    out = c.works("all ignored", "train", "m.so", "--data", "x0=x.npy", "--data", "t=ignored.npy", "--steps", 2, "--format", "json")
    c.expect("its loss is 0", json.loads(out)["losses"] == [0, 0], out)


def select(c):
    report = json.loads(c.works("check", "check", CASES / "residual.onnx", "--train", TRAIN, "--format", "json"))["training"]
    c.expect("trained", len(report["parameters"]) == 9 and len(report["statistics"]) == 4, str(report))
    c.works("frozen", "compile", CASES / "residual.onnx", "-o", "f.so", "-q", "--train", TRAIN, "--freeze", "*norm*", "--trainable",
            "*.weight")  # fmt: skip
    names = {s.name for s in c.stridec.Model(str(c.work / "f.so")).states if not s.name.startswith("optimizer.")}
    c.expect("states", names == {"stem.weight", "inner.weight", "head.weight"}, str(names))


def keep_averages(c):
    """predict uses the moving average of the weights, and groups have settings of their own."""
    text = "loss=mse,output=y,target=t,optimizer=sgd,lr=0.1,ema=0.5,group=*.bias(lr_scale=0)"
    c.works("ema", "compile", CASES / "mlp.onnx", "-o", "e.so", "-q", "--train", text)
    context = c.stridec.Model(str(c.work / "e.so")).context()
    x, t = np.ones((3, 6), np.float32), np.ones((3, 4), np.float32)
    bias, first = context.state("first.bias"), context.state("first.weight")
    context.run(x, t, function="train_step")
    c.expect("lr_scale", (context.state("first.bias") == bias).all())
    mean = context.state("ema.first.weight")
    c.expect("average", np.allclose(mean, (first + context.state("first.weight")) / 2, atol=1e-6))
    w, b, v, d = (context.state(f"ema.{n}") for n in ("first.weight", "first.bias", "second.weight", "second.bias"))
    y = np.asarray(context.run(x, function="predict")[0])
    c.expect("predict", np.allclose(y, np.tanh(x @ w.T + b) @ v.T + d, atol=1e-5))


def drop(c):
    """Dropout has another mask in each step, and none in predict; a new context repeats the masks."""
    w = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    nodes = [h.make_node("MatMul", ["x", "w"], ["z"]), h.make_node("Dropout", ["z", "ratio"], ["y"])]
    graph = h.make_graph(nodes, "d", [h.make_tensor_value_info("x", T.FLOAT, ["n", 8])],
                         [h.make_tensor_value_info("y", T.FLOAT, ["n", 8])],
                         [w, numpy_helper.from_array(np.array(0.5, np.float32), "ratio")])  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)]), c.work / "d.onnx")
    c.works("dropout", "compile", "d.onnx", "-o", "d.so", "-q", "--train", "loss=mse,output=y,target=t,optimizer=sgd,lr=0")
    model = c.stridec.Model(str(c.work / "d.so"))
    x, t = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
    runs = [[float(context.run(x, t, function="train_step")[0]) for _ in range(4)]
            for context in (model.context(), model.context(threads=1))]  # fmt: skip
    c.expect("masks", len(set(runs[0])) > 1 and runs[0] == runs[1], str(runs))
    y = np.asarray(model.context().run(x, function="predict")[0])
    c.expect("no mask", (y == 8).all(), str(y))


def check(program, work, expect, package):
    samples(work)
    c = Commands(program, work, expect, package)
    for test in (resume_and_accumulate, without_norm, verify_steps, refuse, keep_inputs, weigh_classes, fit_outputs, say_what_helps, name_functions, ignore_all, select, keep_averages, drop):
        test(c)
    hostile.check(c, CASES)
