"""Programs that hold many samples of operators, one after the other: cutting samples out of them.

The samples share nothing but constants, so a sample is what is connected with one of the program's outputs.
"""

import copy
import json
import zipfile


def names_in(value):
    """The names of values that an argument of the program's JSON mentions."""
    if isinstance(value, list):
        for item in value:
            yield from names_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("name", "as_name") and isinstance(item, str):
                yield item
            elif key != "as_graph":
                yield from names_in(item)


def argument_names(node):
    for argument in node["inputs"]:
        yield from names_in(argument["arg"])


class Sample:
    def __init__(self, root):
        self.root, self.outputs, self.nodes = root, [], []

    def overloads(self):
        return [node["target"].removeprefix("torch.ops.") for node in self.nodes]

    def operator(self):
        """The first overload that says what the sample is about."""
        common = ("aten.clone.default", "aten.detach.default", "aten.alias.default")
        names = self.overloads()
        return next((n for n in names if n not in common), names[0] if names else "none")

    def arguments(self):
        """What is not a tensor of the call's arguments, as text."""
        node = next((n for n in self.nodes if n["target"].endswith(self.operator())), None)
        given = {} if node is None else {a["name"]: a["arg"] for a in node["inputs"] if "as_tensor" not in a["arg"]}
        return json.dumps(given)[:300]


class Samples:
    """The samples of an archive, in the order of its outputs."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as archive:
            self.members = {n: archive.read(n) for n in archive.namelist() if "/sample_inputs/" not in n}
        self.key = next(n for n in self.members if "/models/" in n and n.endswith(".json"))
        self.program = json.loads(self.members[self.key])
        module = self.program["graph_module"]
        graph, specs = module["graph"], module["signature"]["input_specs"]
        shared = {n for a, spec in zip(graph["inputs"], specs) if "user_input" not in spec for n in names_in(a)}
        self.parent = {}
        for i, node in enumerate(graph["nodes"]):
            for name in (*argument_names(node), *names_in(node["outputs"])):
                if name not in shared:
                    self.parent[self.find(("node", i))] = self.find(name)
        found = {}
        for o, output in enumerate(graph["outputs"]):
            root = self.find(next(names_in(output), ("output", o)))
            found.setdefault(root, Sample(root)).outputs.append(o)
        for i, node in enumerate(graph["nodes"]):
            if self.find(("node", i)) in found:
                found[self.find(("node", i))].nodes.append(node)
        self.all = list(found.values())

    def find(self, item):
        while self.parent.get(item, item) != item:
            item = self.parent[item]
        return item

    def write(self, chosen, path):
        """An archive with these samples alone. All inputs stay; unused ones do no harm."""
        program = copy.copy(self.program)
        module = program["graph_module"] = dict(program["graph_module"])
        graph = module["graph"] = dict(module["graph"])
        signature = module["signature"] = dict(module["signature"])
        kept = {id(node) for sample in chosen for node in sample.nodes}
        outputs = [o for sample in chosen for o in sample.outputs]
        graph["nodes"] = [n for n in graph["nodes"] if id(n) in kept]
        graph["outputs"] = [graph["outputs"][o] for o in outputs]
        signature["output_specs"] = [signature["output_specs"][o] for o in outputs]
        program["guards_code"] = []
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in self.members.items():
                archive.writestr(name, json.dumps(program) if name == self.key else data)
