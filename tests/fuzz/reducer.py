"""A case that differs, with as few nodes as still differ."""
import pathlib
import shutil
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import generator
from cases import run_cases, run_onnxruntime, write_case

# What onnxruntime computes but does not hand to NumPy.
UNSEEN = {TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
          TensorProto.FLOAT8E5M2FNUZ, TensorProto.INT4, TensorProto.UINT4}


def values_of(model, inputs):
    """The value of every tensor at the top level, by name. Sequences and optionals are left out."""
    everything = onnx.ModelProto()
    everything.CopyFrom(model)
    del everything.graph.output[:]
    kinds = {v.name: v.type for v in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info}
    kinds |= {v.name: v.type for v in model.graph.output}
    names = [o for n in model.graph.node for o in n.output if o and kinds[o].WhichOneof("value") == "tensor_type"]
    unseen = {n for n in names if kinds[n].tensor_type.elem_type in UNSEEN}
    for name in names:
        seen = name
        if name in unseen:
            seen = name + "_seen"
            everything.graph.node.append(helper.make_node("Cast", [name], [seen], to=TensorProto.FLOAT))
        everything.graph.output.append(onnx.ValueInfoProto(name=seen))
    values = dict(zip(names, map(np.asarray, run_onnxruntime(everything, inputs))))
    for name in unseen:
        values[name] = values[name].astype(helper.tensor_dtype_to_np_dtype(kinds[name].tensor_type.elem_type))
    return values | inputs


def sub_model(model, nodes, values):
    """These nodes alone: what they read of the others is input, what nobody among them reads is output. None where that
    would be something else than tensors."""
    produced = [o for n in nodes for o in n.output if o]
    read = {name for n in nodes for name in generator.names_read(n)}
    initializers = [i for i in model.graph.initializer if i.name in read]
    fixed = {i.name for i in initializers}
    outside = {o for n in model.graph.node for o in n.output if o and o in read and o not in produced}
    inputs = [n for n in values if n in read and n not in produced and n not in fixed]
    outputs = [n for n in produced if n not in read]
    if any(n not in values for n in outputs) or not outside <= set(inputs):
        return None
    info = lambda n: helper.make_tensor_value_info(  # noqa: E731
        n, helper.np_dtype_to_tensor_dtype(values[n].dtype), values[n].shape)
    graph = helper.make_graph(nodes, "reduced", [info(n) for n in inputs], [info(n) for n in outputs], initializers)
    small = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return small, {n: values[n] for n in inputs}, [values[n] for n in outputs]


def is_difference(why):
    """Of numbers, shapes or types; otherwise nothing was computed."""
    return "output " in why and "expected" in why


def reduce_case(case, form, why):
    """(model, reason) with as few nodes as still differ in this form, and in the way that `why` tells: single nodes first,
    then without one node after another. Beside the case's folder, <case>.reduced holds it."""
    model = onnx.load(case / "model.onnx")
    data = case / "test_data_set_0"
    inputs = {v.name: numpy_helper.to_array(onnx.load_tensor(data / f"input_{i}.pb"))
              for i, v in enumerate(model.graph.input)}
    try:
        values = values_of(model, inputs)
    except Exception as e:  # noqa: BLE001: a case of onnxruntime's own failure stays as it is
        return model, f"not reduced: {e}"

    def first_failing(candidates):
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            models = {f"c{i:04}": (nodes, sub_model(model, nodes, values)) for i, nodes in enumerate(candidates)}
            models = {name: made for name, made in models.items() if made[1]}
            for name, (_, made) in models.items():
                write_case(work / "node" / name, *made)
            failing = run_cases(work, form, 1) if models else {}
            return next(((models[name][0], reason) for (name, mode), reason in sorted(failing.items())
                         if mode == form.mode and is_difference(reason) == is_difference(why)), None)

    everything = list(model.graph.node)
    best = first_failing([[n] for n in everything])
    if not best:
        best = (everything, "not reduced: all nodes are needed, or sizes that have names")
        smaller = True
        while smaller:
            smaller = first_failing([[n for n in best[0] if n is not out] for out in best[0]]) if len(best[0]) > 1 else None
            best = smaller or best
    made = sub_model(model, best[0], values)
    reduced = case.parent / (case.name + ".reduced")
    shutil.rmtree(reduced, ignore_errors=True)
    write_case(reduced, *made)
    return made[0], best[1]
