"""Random valid ONNX graphs. A family of operators is a module: a function an operator, which takes what it needs from the
graph under construction and adds nodes to it or raises Unfit, and OPERATORS, the table of (weight, function).
"""
from onnx import helper

from . import (blocks, contractions, control_flow, indexing, low_precision, pointwise, quantized, reductions, sequences, sizes,
               strings, views)
from .graph import BOOL, F32, F64, I32, I64, NARROW, Graph, Unfit

OPERATORS = sum((family.OPERATORS for family in (pointwise, low_precision, strings, views, indexing, reductions, contractions,
                                                 quantized, sizes, control_flow, sequences, blocks)), ())


def random_graph(seed, most_nodes=12, prefix=""):
    g = Graph(seed, prefix=prefix)
    g.opset = g.choose((18, 21, 21, 23))
    for _ in range(g.random.randrange(1, 4)):
        g.add_input(g.choose((F32, F32, F32, F32, F64, I32, I64, BOOL, g.choose(NARROW))), g.shape())
    wanted = g.random.randrange(1, most_nodes + 1)
    weights, functions = zip(*OPERATORS)
    for _ in range(20 * wanted):
        if len(g.nodes) >= wanted:
            break
        before = len(g.nodes), len(g.values), len(g.inputs), len(g.initializers)
        try:
            g.random.choices(functions, weights)[0](g)
        except Unfit:
            for v in g.inputs[before[2]:]:
                del g.data[v.name]
            del g.nodes[before[0]:], g.values[before[1]:], g.inputs[before[2]:], g.initializers[before[3]:]
    read = {i for n in g.nodes for i in names_read(n)}
    produced = {o for n in g.nodes for o in n.output}
    g.inputs = [v for v in g.inputs if v.name in read]
    g.initializers = [i for i in g.initializers if i.name in read]
    g.outputs = [v for v in g.values if v.name in produced and (v.name not in read or g.chance(0.1))]
    # Some sizes have names: equal sizes often the same one.
    g.size_names = {d: f"n{d}" for d in range(20) if g.chance(0.4)} if g.chance(0.4) else {}
    return g


def names_read(node):
    """By the node and by the bodies within it."""
    yield from node.input
    for a in node.attribute:
        for inner in a.g.node:
            yield from names_read(inner)
        for o in a.g.output:
            yield o.name


def to_model(graphs):
    """One model of graphs that have the same opset and no name in common, and the data of its inputs."""
    def info(v, shape):
        return helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), shape)
    graph = helper.make_graph(
        [n for g in graphs for n in g.nodes], "random",
        [info(v, v.shape if v.parameter else [g.size_names.get(d, d) for d in v.shape]) for g in graphs for v in g.inputs],
        [info(v, [None] * v.rank) for g in graphs for v in g.outputs],
        [i for g in graphs for i in g.initializers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", graphs[0].opset),
                                                     helper.make_opsetid("ai.onnx.ml", 4)], ir_version=10)
    return model, {v.name: g.data[v.name] for g in graphs for v in g.inputs}
