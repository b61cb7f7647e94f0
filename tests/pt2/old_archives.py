"""Rewrites a .pt2 archive into the layouts of older releases of PyTorch: 2.1 to 2.7 ("2.7"), and 2.8.

Both pickle the tensors, as torch.save does. Needs no PyTorch: its functions are stand-ins with the names that the pickle has.
"""

import collections
import io
import json
import pickle
import re
import sys
import types
import zipfile

STORAGES = {1: "Byte", 2: "Char", 3: "Short", 4: "Int", 5: "Long", 6: "Half", 7: "Float", 8: "Double",
            10: "ComplexFloat", 11: "ComplexDouble", 12: "Bool", 13: "BFloat16"}


def stand_in(module, name, make):
    if module not in sys.modules:
        sys.modules[module] = types.ModuleType(module)
    value = make()
    value.__module__, value.__qualname__, value.__name__ = module, name, name
    setattr(sys.modules[module], name, value)
    return value


def with_stand_ins(names, work):
    """Runs `work` with modules of PyTorch's names, and leaves none of them behind."""
    before = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "torch"}
    for n in before:
        del sys.modules[n]
    try:
        rebuild = stand_in("torch._utils", "_rebuild_tensor_v2", lambda: lambda *args: args)
        kinds = {n: stand_in("torch", n, lambda: type("Storage", (), {})) for n in names}
        return work(rebuild, kinds)
    finally:
        for n in [n for n in sys.modules if n.split(".")[0] == "torch"]:
            del sys.modules[n]
        sys.modules.update(before)


def torch_save(tensors, payloads):
    """tensors: {name: (path, TensorMeta)}, as torch.save({name: tensor}) writes them."""
    storages = {meta["dtype"]: STORAGES[meta["dtype"]] + "Storage" for _, meta in tensors.values()}

    def work(rebuild, kinds):
        class Tensor:
            def __init__(self, path, meta):
                self.path, self.meta = path, meta

            def __reduce__(self):
                def ints(key):
                    return tuple(s["as_int"] for s in self.meta[key])

                offset = self.meta["storage_offset"]["as_int"]
                return rebuild, (Stored(self), offset, ints("sizes"), ints("strides"), False, collections.OrderedDict())

        class Stored:
            def __init__(self, tensor):
                self.tensor = tensor

        class Pickler(pickle.Pickler):
            def persistent_id(self, item):
                if not isinstance(item, Stored):
                    return None
                kind = kinds[storages[item.tensor.meta["dtype"]]]
                return "storage", kind, item.tensor.path, "cpu", len(payloads[item.tensor.path])

        out = io.BytesIO()
        Pickler(out, protocol=2).dump({name: Tensor(path, meta) for name, (path, meta) in tensors.items()})
        return out.getvalue()

    text = with_stand_ins(sorted(set(storages.values())), work)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("archive/data.pkl", text)
        z.writestr("archive/byteorder", "little")
        for path in sorted({path for path, _ in tensors.values()}):
            z.writestr(f"archive/data/{path}", payloads[path])
        z.writestr("archive/version", "3\n")
    return out.getvalue()


def plain_sizes(program):
    """Sizes as str(expression), which releases before 2.6 wrote, instead of sympy's srepr."""

    def plain(text):
        text = re.sub(r"Symbol\('(\w+)'[^)]*\)", r"\1", text)
        text = re.sub(r"Integer\((-?\d+)\)", r"\1", text)
        while True:
            shorter = re.sub(r"Mul\(([^(),]+), ([^(),]+)\)", r"\1*\2", text)
            shorter = re.sub(r"Add\(([^(),]+), ([^(),]+)\)", r"\1 + \2", shorter)
            if shorter == text:
                return text
            text = shorter

    def walk(value):
        if isinstance(value, dict):
            return {k: plain(v) if k == "expr_str" else walk(v) for k, v in value.items()}
        return [walk(v) for v in value] if isinstance(value, list) else value

    return walk(program)


def rewritten(path, release):
    with zipfile.ZipFile(path) as z:
        own = {n.split("/", 1)[1]: z.read(n) for n in z.namelist()}
    program = json.loads(own["models/model.json"])
    saved = {}
    for kind in ("weights", "constants"):
        config = json.loads(own.get(f"data/{kind}/model_{kind}_config.json", b'{"config": {}}'))["config"]
        payloads = {n.rsplit("/", 1)[1]: data for n, data in own.items() if n.startswith(f"data/{kind}/")}
        tensors = {name: (entry["path_name"], entry["tensor_meta"]) for name, entry in config.items()}
        saved[kind] = torch_save(tensors, payloads)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        if release == "2.8":
            z.writestr("model/archive_format", "pt2")
            z.writestr("model/archive_version", "0")
            z.writestr("model/byteorder", "little")
            z.writestr("model/models/model.json", json.dumps(program))
            for kind, data in saved.items():
                z.writestr(f"model/data/{kind}/model.pt", data)
        else:
            program["schema_version"] = {"major": 8, "minor": 2}
            del program["guards_code"]
            z.writestr("serialized_exported_program.json", json.dumps(plain_sizes(program)))
            z.writestr("serialized_state_dict.pt", saved["weights"])
            z.writestr("serialized_constants.pt", saved["constants"])
            z.writestr("version", "8.2")
    return out.getvalue()
