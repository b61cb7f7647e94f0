"""An ATen graph of torch.compile as an exported program (.pt2), which the compiler reads.

The schema is that of torch._export.serde.schema, major version 8. PyTorch's own serialiser is private and refuses what these
graphs have (constants that are attributes, metadata of classes), so this is one for what AOTAutograd makes: functional
nodes, placeholders with FakeTensors, symbolic sizes as inputs.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import zipfile
from typing import Any, Dict, Iterator, List, Optional, Tuple

import sympy
import torch
import torch.fx

SCHEMA = (8, 20)

SCALAR_TYPES = {
    "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8,
    "complex32": 9, "complex64": 10, "complex128": 11, "bool": 12, "bfloat16": 13, "uint16": 28, "float8_e4m3fn": 29,
    "float8_e5m2": 30, "float8_e4m3fnuz": 31, "float8_e5m2fnuz": 32, "float8_e8m0fnu": 33, "uint32": 34, "uint64": 35,
}  # fmt: skip
_MEMORY_FORMATS = {"contiguous_format": 1, "channels_last": 2, "channels_last_3d": 3, "preserve_format": 4}
_LARGEST = 2**62

_aten = torch.ops.aten


class Unserializable(Exception):
    """A node with something that the format cannot hold."""


def _names(target: Any) -> List[str]:
    return [argument.name for argument in target._schema.arguments]


def _bound(node: torch.fx.Node) -> Dict[str, Any]:
    return {**dict(zip(_names(node.target), node.args)), **node.kwargs}


def _attention(node: torch.fx.Node) -> Optional[Tuple[Any, tuple, Dict[str, Any]]]:
    """The fused kernels that PyTorch chooses by device, as the operator that they implement; their results after the first
    are for the gradient."""
    given = _bound(node)
    mask = given.get("attn_mask", given.get("attn_bias"))
    options = {"attn_mask": mask, "dropout_p": given.get("dropout_p", 0.0), "is_causal": given.get("is_causal", False),
               "scale": given.get("scale"), "enable_gqa": _groups(given["query"], given["key"])}
    return (_aten.scaled_dot_product_attention.default, (given["query"], given["key"], given["value"]),
            {key: value for key, value in options.items() if value is not None})


def _groups(query: torch.fx.Node, key: torch.fx.Node) -> Optional[bool]:
    """Whether a head of the keys serves several of the queries, which the fused kernels take without saying so."""
    heads = [node.meta["val"].shape[-3] if node.meta["val"].dim() > 2 else 1 for node in (query, key)]
    return True if all(isinstance(n, int) for n in heads) and heads[0] != heads[1] else None


def _cast(node: torch.fx.Node) -> Tuple[Any, tuple, Dict[str, Any]]:
    return _aten._to_copy.default, (node.args[0],), {"dtype": node.args[1]}


_REWRITES = {
    "aten._scaled_dot_product_flash_attention.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_efficient_attention.default": _attention,
    "aten._scaled_dot_product_cudnn_attention.default": _attention,
    "aten._scaled_dot_product_fused_attention_overrideable.default": _attention,
    "prims.convert_element_type.default": _cast,
}


def target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"  # "aten.add.Tensor"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    module = getattr(target, "__module__", "") or ""
    return f"{module}.{target.__name__}"


# ---- values


def size(value: Any) -> Dict[str, Any]:
    if isinstance(value, torch.SymInt):
        expression = value.node.expr
        if isinstance(expression, sympy.Integer):
            return {"as_int": int(expression)}
        return {"as_expr": {"expr_str": sympy.srepr(expression), "hint": None}}
    return {"as_int": int(value)}


def tensor_meta(tensor: torch.Tensor) -> Dict[str, Any]:
    if tensor.layout is not torch.strided:
        raise Unserializable(f"a tensor of layout {tensor.layout}")
    if tensor.device.type not in ("cpu", "cuda"):
        raise Unserializable(f"a tensor on the device '{tensor.device.type}'")
    name = str(tensor.dtype).rpartition(".")[2]
    if name not in SCALAR_TYPES:
        raise Unserializable(f"a tensor of {name}")
    return {
        "dtype": SCALAR_TYPES[name],
        "sizes": [size(s) for s in tensor.shape],
        "requires_grad": False,
        "device": _device(tensor.device),
        "strides": [size(s) for s in tensor.stride()],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def _device(device: torch.device) -> Dict[str, Any]:
    return {"type": device.type, "index": device.index}


def _number(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _scalar(value: Any) -> Dict[str, Any]:
    """A Python value as an argument."""
    if value is None:
        return {"as_none": True}
    if isinstance(value, bool):
        return {"as_bool": value}
    if isinstance(value, int):
        return {"as_int": value}
    if isinstance(value, float):
        return {"as_float": _number(value)}
    if isinstance(value, complex):
        return {"as_complex": {"real": _number(value.real), "imag": _number(value.imag)}}
    if isinstance(value, str):
        return {"as_string": value}
    if isinstance(value, torch.dtype):
        return {"as_scalar_type": SCALAR_TYPES[str(value).rpartition(".")[2]]}
    if isinstance(value, torch.device):
        return {"as_device": _device(value)}
    if isinstance(value, torch.memory_format):
        return {"as_memory_format": _MEMORY_FORMATS[str(value).rpartition(".")[2]]}
    if isinstance(value, torch.layout):
        return {"as_layout": 7 if value is torch.strided else 0}
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        known = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None
        if known is not None:
            return {"as_int": known}
    raise Unserializable(f"an argument of type {type(value).__name__}")


# ---- graphs


class GraphWriter:
    """Writes one graph, and its subgraphs by writers of their own."""

    def __init__(self, module: torch.fx.GraphModule, constants: Dict[str, torch.Tensor], prefix: str = "") -> None:
        self.module, self.constants, self.prefix = module, constants, prefix
        self.tensors: Dict[str, Any] = {}
        self.sizes: Dict[str, Any] = {}
        self.nodes: List[Dict[str, Any]] = []
        self.traces: List[Optional[str]] = []  # of the nodes; not part of what is hashed
        self.attributes: Dict[str, str] = {}  # attribute -> name of the constant
        self.symbols: set = set()

    def define(self, name: str, value: Any) -> Dict[str, Any]:
        """The argument that names a value, whose type is noted."""
        if isinstance(value, torch.Tensor):
            self.tensors[name] = tensor_meta(value)
            for part in (*value.shape, *value.stride()):
                if isinstance(part, torch.SymInt):
                    self.symbols |= part.node.expr.free_symbols
            return {"as_tensor": {"name": name}}
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            self.sizes[name] = size(value)
            if isinstance(value, torch.SymInt):
                self.symbols |= value.node.expr.free_symbols
            return {"as_sym_int": {"as_name": name}}
        if isinstance(value, (torch.SymFloat, float)):
            return {"as_sym_float": {"as_name": name}}
        if isinstance(value, (torch.SymBool, bool)):
            return {"as_sym_bool": {"as_name": name}}
        if value is None:
            return {"as_none": True}
        raise Unserializable(f"a value of type {type(value).__name__}")

    def argument(self, value: Any) -> Dict[str, Any]:
        if isinstance(value, torch.fx.Node):
            return self.reference(value)
        if isinstance(value, (list, tuple)):
            return self.items([self.argument(item) for item in value])
        return _scalar(value)

    def reference(self, node: torch.fx.Node) -> Dict[str, Any]:
        if node.op == "get_attr":
            found = _attribute(self.module, node.target)
            if isinstance(found, torch.fx.GraphModule):
                writer = GraphWriter(found, self.constants, f"{self.prefix}{node.target}.")
                return {"as_graph": {"name": node.name, "graph": writer.subgraph()}}
            return self.constant(str(node.target), found)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return {"as_tensor": {"name": node.name}}
        if isinstance(value, (torch.SymBool, bool)):
            return {"as_sym_bool": {"as_name": node.name}}
        if isinstance(value, (torch.SymFloat, float)):
            return {"as_sym_float": {"as_name": node.name}}
        if isinstance(value, (torch.SymInt, int)):
            return {"as_sym_int": {"as_name": node.name}}
        if value is None:
            return {"as_none": True}
        raise Unserializable(f"'{node.name}' is a {type(value).__name__}")

    def constant(self, target: str, value: Any) -> Dict[str, Any]:
        if not isinstance(value, torch.Tensor):
            raise Unserializable(f"the attribute '{target}' is a {type(value).__name__}")
        if self.prefix:
            raise Unserializable("a constant inside a subgraph")
        name = "c_" + target.replace(".", "_")
        self.constants[name] = value
        return self.define(name, value)

    @staticmethod
    def items(items: List[Dict[str, Any]]) -> Dict[str, Any]:
        """A list of arguments as one argument."""
        kinds = {next(iter(item)) for item in items}
        values = [next(iter(item.values())) for item in items]
        if kinds == {"as_tensor"}:
            return {"as_tensors": values}
        if kinds == {"as_tensor", "as_none"}:
            return {"as_optional_tensors": items}
        if kinds == {"as_sym_int"} or kinds == {"as_sym_int", "as_int"}:
            return {"as_sym_ints": [item.get("as_sym_int", item) for item in items]}
        if kinds == {"as_float", "as_int"} or kinds == {"as_float"}:
            return {"as_floats": [float(v) if isinstance(v, int) else v for v in values]}
        if kinds == {"as_bool"}:
            return {"as_bools": values}
        if kinds == {"as_string"}:
            return {"as_strings": values}
        if kinds <= {"as_int"}:
            return {"as_ints": values}
        raise Unserializable(f"a list of {', '.join(sorted(kinds))}")

    def node(self, node: torch.fx.Node) -> None:
        target, args, kwargs = node.target, node.args, dict(node.kwargs)
        first_alone = False
        rewrite = _REWRITES.get(str(target))
        if rewrite is not None:
            target, args, kwargs = rewrite(node)  # type: ignore[misc]
            first_alone = isinstance(node.meta.get("val"), (tuple, list))
        schema = getattr(target, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema is not None else []
        inputs = []
        for index, value in enumerate(args):
            name = names[index] if index < len(names) else "ab"[index] if not schema and index < 2 and \
                not isinstance(target, torch._ops.HigherOrderOperator) else ""
            inputs.append({"name": name, "arg": self.argument(value), "kind": 1})
        inputs += [{"name": name, "arg": self.argument(value), "kind": 2} for name, value in kwargs.items()]
        self.nodes.append({
            "target": target_name(target), "inputs": inputs, "outputs": self.outputs(node, schema, first_alone),
            "metadata": {}, "is_hop_single_tensor_return": None, "name": node.name,
        })  # fmt: skip
        self.traces.append(node.meta.get("stack_trace"))

    def outputs(self, node: torch.fx.Node, schema: Any, first_alone: bool) -> List[Dict[str, Any]]:
        value = node.meta.get("val")
        if not isinstance(value, (tuple, list)):
            return [] if schema is not None and not schema.returns else [self.define(node.name, value)]
        parts: Dict[int, Dict[str, Any]] = {}
        for user in node.users:
            if user.target is operator.getitem and user.args[0] is node:
                parts.setdefault(user.args[1], self.define(user.name, user.meta["val"]))  # type: ignore[arg-type]
        found = [parts.get(i, {"as_tensor": {"name": f"{node.name}_unused_{i}"}} if item is not None else {"as_none": True})
                 for i, item in enumerate(value)]
        if first_alone:
            if any(index > 0 for index in parts):
                raise Unserializable(f"'{node.name}': a result of {node.target} that is for the gradient is used")
            return found[:1]
        if schema is not None and len(schema.returns) == 1:
            return [{"as_tensors": [item["as_tensor"] for item in found]}]
        return found

    def body(self) -> Iterator[torch.fx.Node]:
        """Writes the nodes; gives the placeholders and the output as they come."""
        seen: Dict[Tuple[Any, Any], str] = {}
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "output"):
                yield node
            elif node.op == "call_function" and node.target is operator.getitem:
                key = (node.args[0], node.args[1])
                if key in seen:  # the second name of one result
                    self.alias(node, seen[key])
                seen.setdefault(key, node.name)
            elif node.op == "call_function":
                self.node(node)
            elif node.op != "get_attr":
                raise Unserializable(f"a node '{node.op}'")

    def alias(self, node: torch.fx.Node, name: str) -> None:
        self.nodes.append({"target": "torch.ops.aten.alias.default", "metadata": {}, "name": node.name,
                           "inputs": [{"name": "self", "arg": {"as_tensor": {"name": name}}, "kind": 1}],
                           "outputs": [self.define(node.name, node.meta["val"])], "is_hop_single_tensor_return": None})
        self.traces.append(None)

    def subgraph(self) -> Dict[str, Any]:
        inputs: List[Any] = []
        outputs: List[Any] = []
        single = False
        for node in self.body():
            if node.op == "placeholder":
                inputs.append(self.define(node.name, node.meta["val"]))
            else:
                results = node.args[0]
                single = not isinstance(results, (tuple, list))
                outputs = [self.argument(item) for item in ([results] if single else results)]
        return self.graph(inputs, outputs, single)

    def graph(self, inputs: List[Any], outputs: List[Any], single: bool = False) -> Dict[str, Any]:
        return {"inputs": inputs, "outputs": outputs, "nodes": self.nodes, "tensor_values": self.tensors,
                "sym_int_values": self.sizes, "sym_bool_values": {}, "is_single_tensor_return": single,
                "custom_obj_values": {}, "sym_float_values": {}}  # fmt: skip


def _attribute(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return module


class Program:
    """A graph as an exported program. Its inputs are those placeholders that something reads: tensors, then integers that
    are not a dim of a tensor. Frozen placeholders are weights instead."""

    def __init__(self, module: torch.fx.GraphModule, frozen: Dict[int, torch.Tensor], ranges: Dict[Any, Tuple[int, int]]) -> None:
        self.constants: Dict[str, torch.Tensor] = {}
        self.input_positions: List[int] = []  # positions among the placeholders
        self.outputs: List[Any] = []  # of the graph
        writer = GraphWriter(module, self.constants)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.placeholders = placeholders
        specs: List[Any] = []
        inputs: List[Any] = []
        in_order = sorted(enumerate(placeholders), key=lambda item: not isinstance(item[1].meta["val"], torch.Tensor))
        for position, node in in_order:  # tensors first
            value = node.meta["val"]
            if isinstance(value, torch.SymFloat):
                raise Unserializable("a Python float as an input: give a tensor")
            if not node.users or (isinstance(value, torch.SymInt) and self._bind_size(writer, node, placeholders)):
                continue
            argument = writer.define(node.name, value)
            inputs.append(argument)
            if position in frozen:
                specs.append({"parameter": {"arg": argument["as_tensor"], "parameter_name": node.name}})
                continue
            specs.append({"user_input": {"arg": argument}})
            self.input_positions.append(position)
        output = next(node for node in writer.body() if node.op == "output")
        self.outputs = list(output.args[0])
        returned = [node for node in dict.fromkeys(n for n in self.outputs if isinstance(n, torch.fx.Node))
                    if node.op != "placeholder" and isinstance(node.meta["val"], torch.Tensor)]
        self.returned = {node.name: index for index, node in enumerate(returned)}
        self.returned_values = {node.name: node.meta["val"] for node in returned}
        results = [writer.reference(node) for node in returned]
        first = [(writer.define(name, value), name) for name, value in self.constants.items()]
        first_specs = [{"tensor_constant": {"arg": argument["as_tensor"], "tensor_constant_name": name}}
                       for argument, name in first]
        limits = {str(s): {"min_val": low, "max_val": high if high < _LARGEST else None}
                  for s, (low, high) in ranges.items() if s in writer.symbols}
        self.traces = writer.traces
        self.json: Dict[str, Any] = {
            "graph_module": {
                "graph": writer.graph([a for a, _ in first] + inputs, results),
                "signature": {"input_specs": first_specs + specs, "output_specs": [{"user_output": {"arg": r}} for r in results]},
                "module_call_graph": [{"fqn": "", "signature": None}], "metadata": {}, "treespec_namedtuple_fields": {},
            },
            "opset_version": {"aten": 10}, "range_constraints": limits, "verifiers": ["ATEN"], "guards_code": [],
            "schema_version": {"major": SCHEMA[0], "minor": SCHEMA[1]}, "torch_version": torch.__version__,
        }  # fmt: skip
        self.weights = {placeholders[i].name: value for i, value in frozen.items() if placeholders[i].users}

    @staticmethod
    def _bind_size(writer: GraphWriter, node: torch.fx.Node, placeholders: List[torch.fx.Node]) -> bool:
        """A size that is a dim of an input is read from there, so that it need not be given twice."""
        symbol = node.meta["val"].node.expr
        for other in placeholders:
            value = other.meta["val"]
            for dim, part in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(part, torch.SymInt) and part.node.expr == symbol and other.users:
                    writer.nodes.append({
                        "target": "torch.ops.aten.sym_size.int", "metadata": {}, "is_hop_single_tensor_return": None,
                        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": other.name}}, "kind": 1},
                                   {"name": "dim", "arg": {"as_int": dim}, "kind": 1}],
                        "outputs": [writer.define(node.name, node.meta["val"])], "name": node.name,
                    })  # fmt: skip
                    writer.traces.append(None)
                    return True
        return False

    def digest(self) -> str:
        """The hash of the program: the graph and its weights, without where in the source the nodes come from."""
        found = hashlib.sha256(json.dumps(self.json, sort_keys=True).encode())
        for name, value in {**self.constants, **self.weights}.items():
            found.update(name.encode())
            found.update(_bytes(value))
        return found.hexdigest()

    def save(self, path: str) -> None:
        for node, trace in zip(self.json["graph_module"]["graph"]["nodes"], self.traces):
            node["metadata"] = {"stack_trace": trace} if trace else {}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("model/archive_format", "pt2")
            archive.writestr("model/archive_version", "0")
            archive.writestr("model/byteorder", "little")
            archive.writestr("model/models/model.json", json.dumps(self.json))
            for kind, folder, members in (("weights", "weight", self.weights), ("constants", "tensor", self.constants)):
                config = {}
                for index, (name, value) in enumerate(members.items()):
                    value = value.detach().contiguous()
                    config[name] = {"path_name": f"{folder}_{index}", "is_param": kind == "weights", "use_pickle": False,
                                    "tensor_meta": tensor_meta(value)}  # fmt: skip
                    archive.writestr(_aligned(archive, f"model/data/{kind}/{folder}_{index}"), _bytes(value))
                archive.writestr(f"model/data/{kind}/model_{kind}_config.json", json.dumps({"config": config}))


def _aligned(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """A member whose data begins at a multiple of 64 bytes, so that the compiler uses it where it lies."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    end = archive.fp.tell() + 30 + len(name.encode()) + 4  # type: ignore[union-attr]
    padding = -end % 64
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    return info


def _bytes(tensor: torch.Tensor) -> Any:
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(plain.view(torch.uint8).numpy()) if plain.numel() else b""
