"""TorchScript files: python tests/torchscript/run.py [name...]

The programs of tests/torchscript/programs against PyTorch's results; shapes on the command line; what is refused, all at once
and with its place; and damaged, hostile or foreign files, each refused with a sentence and its exit code. Needs no PyTorch.
The last line is "N passed, N failed".
"""

import io
import pathlib
import pickle
import re
import sys
import tempfile
import zipfile

import numpy as np

import compare
from compare import command

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(compare.ROOT / "python"))
import stridec  # noqa: E402

results = []


def expect(name, condition, detail=""):
    results.append(bool(condition))
    if not condition:
        print(f"FAILED {name}: {detail}", flush=True)


def agree_with_pytorch(names, work):
    for path in sorted(PROGRAMS.glob("*.pt")):
        if names and path.stem not in names:
            continue
        verdict, detail = compare.compare(path, path.with_suffix(".npz"), work / f"{path.stem}.so")
        expect(path.stem, verdict == "agrees", f"{verdict} {detail}")


def says(name, arguments, code, *words):
    found, out, errors = command(*arguments, seconds=100)
    text = re.sub(r"\s+", " ", out + errors)
    expect(name, found == code and all(w in text for w in words), f"exit {found}: {text[:400]}")


def take_shapes(work):
    scripted, traced = PROGRAMS / "scripted.pt", PROGRAMS / "traced.pt"
    shape = ["--shape", "image=batch,3,h,w"]
    says("no shape", ["check", scripted], 1, "missing-shape", "'image'", "--shape image=batch,3,224,224")
    says("two inputs without shapes", ["check", PROGRAMS / "named_tuples.pt"], 1, "'pair.left', 'pair.right'")
    says("a shape in numbers", ["check", scripted, "--shape", "image=1x3x8x8"], 0, "[1, 3, 8, 8]")
    says("a shape in names", ["check", scripted, *shape, "--dim", "batch=1..4,h=8"], 0, "[batch, 3, 8, w]", "1..4")
    says("a traced module's example", ["check", traced], 0, "[1, 3, 8, 8]")
    says("another shape than the example's", ["check", traced, "--shape", "image=5,3,16,16"], 0, "[5, 3, 16, 16]")
    says("a dtype", ["check", PROGRAMS / "lstm.pt", "--shape", "ids=i32[b,t]"], 0, "i32")
    says("a wrong dtype", ["check", PROGRAMS / "lstm.pt", "--shape", "ids=x32[b,t]"], 1, "unknown dtype 'x32'")
    says("no input of this name", ["check", scripted, *shape, "--shape", "mask=3"], 1, "no input 'mask'", "image")
    says("no size of this name", ["check", scripted, *shape, "--dim", "time=3"], 1, "no dim 'time'")
    for bad in ("image", "image=", "image=1,,2", "image=f32[1", "image=-1", "image=1xa"):
        says(f"--shape {bad}", ["check", scripted, "--shape", bad], 1, "bad-shape")
    says("a shape that does not fit", ["check", scripted, "--shape", "image=1,4,8,8"], 4, "conv2d")
    says("shapes of a program that has them", ["check", compare.ROOT / "tests/pt2/programs/plain.pt2", "--shape", "x=3"], 1,
         "bad-shape")
    artifact = work / "shapes.so"
    says("compile", ["compile", scripted, *shape, "-o", artifact], 0)
    says("the artifact's shapes", ["inspect", artifact, "--format=json"], 0, "f32[batch,3,h,w]")
    says("verify takes them", ["verify", scripted, artifact, "--dim", "batch=2,h=8,w=9"], 0)
    says("the graph", ["inspect", scripted, "--stage=graph", *shape], 0, "conv")
    says("functions", ["compile", "--function", f"a={scripted}", "--function", f"b={traced}", "--shape",
                       "a:image=1,3,8,8", "-o", artifact], 0)


def check_conditions(work):
    artifact = work / "guards.so"
    says("guards compile", ["compile", PROGRAMS / "guards.pt", "--shape", "x=n,3", "-o", artifact], 0)
    context = stridec.Model(str(artifact)).context(threads=1)
    try:
        context.run(np.ones((3, 3), np.float32))
        expect("an odd size", False, "the run succeeds")
    except stridec.Error as error:
        expect("an odd size", "multiples of 2" in str(error), str(error))
    says("an exception that is sure", ["check", PROGRAMS / "guards.pt", "--shape", "x=5,3"], 4, "an even size is needed, not 5")
    raises = "n = torch.size(x, 0)\nif torch.eq(n, 3):\n  s = torch.format(\"rows: {} {\", n)\n  ops.prim.RaiseException(s)\n"
    path = work / "raises.pt"
    path.write_bytes(module(raises + "return torch.add(x, 1)"))
    says("an exception with a size compiles", ["compile", path, "--shape", "x=rows", "-o", artifact], 0)
    try:
        stridec.Model(str(artifact)).context(threads=1).run(np.ones(3, np.float32))
        expect("an exception with a size", False, "the run succeeds")
    except stridec.Error as error:
        expect("an exception with a size", "rows: 3 {" in str(error), str(error))
    says("an exception with a known size", ["check", path, "--shape", "x=3"], 4, "rows: 3 {")
    says("a rank that is asserted", ["check", PROGRAMS / "optionals.pt", "--shape", "x=5"], 4, "expected two dims, got 1")


def refuse_lost_aliases(work):
    """A write to one of two names, of which only data decide whether they are one tensor, and a read of the other."""
    path = work / "aliases.pt"
    zeros = "y = torch.zeros_like(x)\nc = torch.gt(torch.sum(x), 0)\n"
    branch = zeros + "if bool(c):\n  z = torch.add(y, x)\nelse:\n  z = y\n"
    loop = zeros + "z = y\nfor i in range(torch.size(x, 0)):\n  a = torch.add_(z, 1)\n  z = torch.mul(z, 2)\n"
    rows = zeros + "z = y\nrows = annotate(List[Tensor], [])\nfor i in range(torch.size(x, 0)):\n  a = torch.add_(z, 1)\n" \
        "  b = torch.append(rows, z)\n"
    lists = zeros + "a = [x, y]\nif bool(c):\n  b = [y, x]\nelse:\n  b = a\n"
    refused = {
        "after a branch": branch + "a = torch.add_(z, 2)\nreturn torch.add(y, z)",
        "the older name": branch + "a = torch.add_(y, 2)\nreturn torch.add(y, z)",
        "in a branch": branch + "if bool(c):\n  a = torch.add_(z, 2)\nelse:\n  pass_ = 1\nreturn torch.add(y, z)",
        "after a loop": loop + "return torch.add(y, z)",
        "the rows of a loop": rows + "return torch.stack(rows)",
        "a list": lists + "c0 = torch.append(b, x)\nreturn torch.stack(a)",
        "an input": branch.replace("torch.zeros_like(x)", "x") + "a = torch.add_(z, 2)\nreturn z",
    }
    for what, body in refused.items():
        path.write_bytes(module(body))
        says(f"a lost alias: {what}", ["check", path, "--shape", "x=n"], 5, "unsupported-alias", "under another name")
    for what, body in {"a branch": branch + "a = torch.add_(z, 2)\nreturn z", "a loop": loop + "return z"}.items():
        path.write_bytes(module(body))
        says(f"no other name is read: {what}", ["check", path, "--shape", "x=n"], 0)


# ---- files made by hand


def archive(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in members.items():
            z.writestr(name, data)
    return out.getvalue()


def members(name):
    with zipfile.ZipFile(PROGRAMS / f"{name}.pt") as z:
        return {n: z.read(n) for n in z.namelist()}


MODULE = b"\x80\x02c__torch__\nM\n)\x81}(X\x08\x00\x00\x00training\x89ub."  # an object without attributes
FIRST = "class M(Module):\n  __parameters__ = []\n  training : bool\n"


def source(body, more="", arguments="x: Tensor"):
    text = f"{FIRST}  def forward(self: __torch__.M,\n    {arguments}) -> Tensor:\n"
    return text + "".join(f"    {line}\n" for line in body.split("\n")) + more


def module(body, more="", arguments="x: Tensor", pickle=MODULE, **others):
    files = {"m/data.pkl": pickle, "m/code/__torch__.py": source(body, more, arguments), "m/version": b"3\n"}
    return archive({**files, **others})


BOMB = "".join(f"def f{i}(x: Tensor) -> Tensor:\n  y = __torch__.f{i + 1}(x, )\n  return __torch__.f{i + 1}(y, )\n"
               for i in range(40)) + "def f40(x: Tensor) -> Tensor:\n  return x\n"


def name_what_is_missing(work):
    path = work / "unsupported.pt"
    path.write_bytes(module("a = torch._dirichlet_grad(x, x, x)\nb, p = torch.linalg_ldl_factor(a)\nc = torch.relu(x)\nd = torch._add_relu(c, c)\n"
                            "e = ops.mine.special(c)\nreturn torch.add(b, e)"))
    says("all operators at once", ["check", path, "--shape", "x=3"], 5, "aten._dirichlet_grad", "aten.linalg_ldl_factor",
         "aten._add_relu", "mine.special", "line 6")
    path.write_bytes(module("a = torch.squeeze_(x)\nreturn torch.add(x, 1)"))
    says("dims that change in place", ["check", path, "--shape", "x=1x3"], 5, "aten.squeeze_", "write x = x.squeeze(...)")
    path.write_bytes(module("return torch.add(x, __torch__.no.such(x, ))"))
    says("a function that is not there", ["check", path, "--shape", "x=3"], 5, "__torch__.no.such")


def name_the_users_line(work):
    """The debug information of a file says where a statement comes from; without it, or with other bytes, it is not said."""
    code = source("y = torch.eigh(x)\nreturn x")
    # (position in the source, ((pieces of the user's text, file, first line), start, end), tag)
    entry = (code.index("y ="), (([0, 1], 2, 40), 9, 12), 0)
    debug = pickle.dumps(("FORMAT_WITH_STRING_TABLE", ("def f():\n", "  y = 1\n", "net.py"), (entry,)), 2)
    for what, data, told in (("there", debug, True), ("damaged", debug[:-9], False), ("of another form", b"\x80\x02K\x01.", False)):
        path = work / "lines.pt"
        path.write_bytes(module("y = torch.eigh(x)\nreturn x", **{"m/code/__torch__.py.debug_pkl": data}))
        found, _, errors = command("compile", path, "--shape", "x=2,3", "-o", work / "lines.so")
        expect(f"debug information {what}", found == 5 and ("net.py, line 41" in errors) == told, errors)


def refuse(work):
    whole, own = (PROGRAMS / "traced.pt").read_bytes(), members("traced")
    code = next(n for n in own if n.endswith("___torch_mangle_1.py") or n.endswith("__torch__.py"))
    name = next(n for n in own if "/data/" in n)
    runs_code = b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR."
    cyclic = b"\x80\x02c__torch__\nM\n)\x81q\x00}(X\x01\x00\x00\x00ah\x00ub."
    cases = {
        "truncated": (whole[:-40], 3, "bad-archive"),
        "half": (whole[: len(whole) // 2], 3, "bad-archive"),
        "a state dict": (archive({"archive/data.pkl": b"\x80\x02}.", "archive/version": b"3"}), 5, "checkpoint"),
        "an old checkpoint": (b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 5, "checkpoint"),
        "a mobile module": (archive({"m/bytecode.pkl": b"", "m/data.pkl": b"\x80\x02}."}), 5, "mobile-file"),
        "a mobile flatbuffer": (b"\x10\0\0\0PTMF" + bytes(40), 5, "mobile-file"),
        "of PyTorch 1.3": (archive({"m/model.json": b"{}", "m/tensors/0": b""}), 5, "old-archive"),
        "big-endian": (archive({**own, code.split("/")[0] + "/byteorder": b"big"}), 5, "byte-order"),
        "a later version": (module("return x", **{"m/.data/version": b"11\n"}), 5, "archive-version"),
        "no version": (archive({"m/data.pkl": MODULE, "m/code/__torch__.py": source("return x")}), 3, "bad-archive"),
        "a pickle that runs code": (module("return x", pickle=runs_code), 5, "os system"),
        "an empty pickle": (module("return x", pickle=b""), 3, "bad-archive"),
        "a pickle without a value": (module("return x", pickle=b"\x80\x02."), 3, "bad-archive"),
        "a pickle with a cycle": (module("return x", pickle=cyclic), 3, "bad-archive"),
        "a deep pickle": (module("return x", pickle=b"\x80\x02)" + b"\x85" * 100_000 + b"."), 3, "bad-archive"),
        "a storage that is not there": (archive({n: d for n, d in own.items() if n != name}), 3, "no member"),
        "a short storage": (archive({**own, name: b"\0\0"}), 3, "beyond its storage"),
        "no class": (archive({"m/data.pkl": MODULE, "m/code/a.py": b"", "m/version": b"3"}), 3, "bad-archive"),
        "no forward": (archive({"m/data.pkl": MODULE, "m/code/__torch__.py": FIRST, "m/version": b"3"}), 5, "no-forward"),
        "a source that is none": (module("return x", more="]"), 3, "bad-source"),
        "not UTF-8": (module("return x", more="\x80\xff"), 3, "bad-source"),
        "deep brackets": (module("return " + "(" * 100_000), 3, "nested too deeply"),
        "a long chain": (module("return x" + ".a" * 100_000), 3, "too long"),
        "deep blocks": (module("\n".join("  " * i + "if True:" for i in range(300))), 3, "nested too deeply"),
        "a name that nothing defines": (module("return y"), 3, "'y' is not defined"),
        "a constant that is not there": (module("return CONSTANTS.c9999"), 3, "no constant 'c9999'"),
        "an inlining bomb": (module("return __torch__.f0(x, )", more=BOMB), 6, "too-many-steps"),
        "a loop of 10^9": (module("for i in range(1000000000):\n  y = torch.relu(x)\nreturn x"), 6, "too-many-steps"),
        "a loop without an end": (module("c = True\nwhile c:\n  c = True\nreturn x"), 6, "too-many-steps"),
        "recursion": (module("return (self).forward(x, )"), 6, "too-deep"),
        "a list that doubles": (module("a = [1]\nfor i in range(60):\n  a = torch.add(a, a)\nreturn x"), 6, "too-long"),
        "a list times 10^12": (module("a = torch.mul([1], 1000000000000)\nreturn x"), 6, "too-long"),
        "a division by zero": (module("a = torch.floordiv(1, 0)\nreturn x"), 4, "division by zero"),
        "an index out of range": (module("a = [1]\nreturn torch.add(x, a[3])"), 4, "out of range"),
        "a bomb": (archive({"m/data.pkl": MODULE, "m/version": b"3", "m/code/__torch__.py": b" " * 300_000_000},
                           zipfile.ZIP_DEFLATED), 6, "archive-size"),
    }
    for what, (data, exit_code, word) in cases.items():
        path = work / "hostile.pt"
        path.write_bytes(data)
        says(what, ["check", path, "--shape", "x=3"] if data[:2] != whole[:2] or b"m/" in data[:60] else ["check", path],
             exit_code, word)


def read_older_versions(work):
    """Operators that meant something else: a division of integers, `full` without a dtype."""
    body = "a = torch.div(x, 2)\nb = torch.full([2], 3)\nreturn torch.add(torch.to(a, 6), b)"
    for version, wanted in ((3, [-1 + 3, 3 + 3]), (10, [-1.5 + 3, 3.5 + 3])):
        path, artifact = work / "old.pt", work / f"old{version}.so"
        path.write_bytes(module(body, **{"m/version": f"{version}\n".encode()}))
        found, _, errors = command("compile", path, "--shape", "x=i64[2]", "-o", artifact)
        if found:
            expect(f"version {version}", False, errors)
            continue
        out = stridec.Model(str(artifact)).context(threads=1).run(np.array([-3, 7], np.int64))[0]
        expect(f"version {version}", out.tolist() == wanted, f"{out} {wanted}")


METHODS = b"""class M(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  def encode(self: __torch__.M,
    image: Tensor) -> Tensor:
    return torch.mul(image, 3)
  def decode(self: __torch__.M,
    code: Tensor,
    by: int) -> Tensor:
    return torch.sub((self).encode(code, ), by)
"""


def compile_methods(work):
    """--method, alone and for the functions of one artifact; a module without forward()."""
    path, artifact = work / "methods.pt", work / "methods.so"
    path.write_bytes(archive({"m/data.pkl": MODULE, "m/code/__torch__.py": METHODS, "m/version": b"3\n"}))
    says("no forward, but others", ["check", path, "--shape", "image=n"], 5, "encode", "decode", "--method")
    says("no such method", ["check", path, "--method", "embed"], 1, "no method embed()", "encode")
    says("a method of no function", ["check", path, "--method", "f:encode"], 1, "no function 'f'")
    says("a method of another format", ["check", compare.ROOT / "tests/pt2/programs/plain.pt2", "--method", "f"], 1, "has no program 'f'", "--method NAME")
    x = np.array([1, 2], np.float32)
    found, _, errors = command("compile", path, "--method", "encode", "--shape", "image=n", "-o", artifact)
    expect("a method compiles", found == 0, errors)
    if not found:
        out = stridec.Model(str(artifact)).context(threads=1).run(x)[0]
        expect("a method", out.tolist() == [3, 6], str(out))
        says("a method is verified", ["verify", path, artifact], 0)
    both = work / "both.so"
    found, _, errors = command("compile", "--function", f"e={path}", "--function", f"d={path}", "--method", "e:encode", "--method",
                               "d:decode", "--shape", "e:image=n", "--shape", "d:code=n", "-o", both)
    expect("two methods compile", found == 0, errors)
    if not found:
        context = stridec.Model(str(both)).context(threads=1)
        out = [context.run(x, function="e")[0].tolist(), context.run(x, np.int64(4), function="d")[0].tolist()]
        expect("two methods", out == [[3, 6], [-1, 2]], str(out))


def main():
    names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        agree_with_pytorch(names, work)
        if not names:
            take_shapes(work)
            check_conditions(work)
            refuse_lost_aliases(work)
            name_what_is_missing(work)
            name_the_users_line(work)
            read_older_versions(work)
            compile_methods(work)
            refuse(work)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


main()
