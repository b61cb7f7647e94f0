"""A case of contrib.py and contrib_ml.py: random inputs, the model, its files with onnxruntime's results."""

import os

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

MS, ML = "com.microsoft", "ai.onnx.ml"
rng = np.random.default_rng(7)
TESTS = []


def restart():
    """rng draws the same numbers again."""
    rng.bit_generator.state = np.random.default_rng(7).bit_generator.state


def normal(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def integers(low, high, shape, dtype):
    return rng.integers(low, high, shape, endpoint=True).astype(dtype)


def case(name, op, inputs, outputs=1, domain=MS, tolerance=(1e-3, 1e-5), version=17, given=(), types=None, reference=None, results=None, nodes=None,
         **attributes):  # fmt: skip
    """`inputs`: arrays, or None where one is left out; those in `given` are initializers. `outputs`: how many, or a
    list of flags. `types`: of the outputs, where shape inference does not tell them. `reference`: of the names of inputs and
    outputs the nodes that onnxruntime runs instead, where it has no kernel of the operator for this CPU.
    `results`: what is expected, where its Python interface does not take the inputs. `nodes`: of the names of inputs and
    outputs the nodes of the model, where it is not one of `op`."""
    TESTS.append((name, op, inputs, outputs, domain, tolerance, version, given, types, reference, results, nodes, attributes))


def map_types(x):
    """Of a map: the key's element type, the value's type. Values are NumPy scalars or strings."""
    kind = lambda v: TensorProto.STRING if isinstance(v, str) else helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype)  # noqa: E731
    key, value = next(iter(x.items()))
    return kind(key), helper.make_tensor_type_proto(kind(value), [])


def serialized(x):
    """A tensor, or a map, as a file of the suite."""
    if not isinstance(x, dict):
        return numpy_helper.from_array(x).SerializeToString()
    key, value = map_types(x)
    out = onnx.MapProto(key_type=key)
    out.values.elem_type = onnx.SequenceProto.TENSOR
    for k, v in x.items():
        (out.string_keys.append(k.encode()) if isinstance(k, str) else out.keys.append(k))
        array = np.asarray(v, object if isinstance(v, str) else None)
        out.values.tensor_values.append(numpy_helper.from_array(array))
    return out.SerializeToString()


def build(op, inputs, outputs, domain, opset, given, types, reference, attributes):
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    results = [f"y{i}" if want else "" for i, want in enumerate(wanted)]
    nodes = reference(names, results) if reference else [helper.make_node(op, names, results, domain=domain, **attributes)]
    values, initializers = [], []
    for i, x in enumerate(inputs):
        if x is None:
            continue
        if isinstance(x, dict):
            values.append(helper.make_value_info(names[i], helper.make_map_type_proto(*map_types(x))))
        elif i in given:
            initializers.append(numpy_helper.from_array(x, names[i]))
        else:
            kind = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
            values.append(helper.make_tensor_value_info(names[i], kind, x.shape))
    live = [r for r in results if r]
    infos = [onnx.ValueInfoProto(name=r) for r in live]
    graph = helper.make_graph(nodes, "test", values, infos, initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1), helper.make_opsetid(ML, 3 if domain != ML else opset)]
    if domain == ML:
        opsets[0] = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), names, live


def write(folder, test):
    name, op, inputs, outputs, domain, tolerance, opset, given, types, reference, results, nodes, attributes = test
    model, names, live = build(op, inputs, outputs, domain, opset, given, types, nodes, attributes)
    known = build(op, inputs, outputs, domain, opset, given, types, reference, attributes)[0] if reference else model
    feed = {n: x for i, (n, x) in enumerate(zip(names, inputs)) if x is not None and i not in given}
    if results is None:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(known.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(live, feed)
    for info, result in zip(model.graph.output, results):
        kind = TensorProto.STRING if result.dtype == object else helper.np_dtype_to_tensor_dtype(result.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, result.shape))
    base = os.path.join(folder, "node", name)
    data = os.path.join(base, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(model, os.path.join(base, "model.onnx"))
    for i, x in enumerate(feed.values()):
        with open(os.path.join(data, f"input_{i}.pb"), "wb") as f:
            f.write(serialized(x))
    for i, y in enumerate(results):
        with open(os.path.join(data, f"output_{i}.pb"), "wb") as f:
            f.write(numpy_helper.from_array(y).SerializeToString())
    with open(os.path.join(base, "tolerance"), "w") as f:
        f.write("%g %g\n" % tolerance)
