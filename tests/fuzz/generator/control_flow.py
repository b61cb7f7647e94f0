"""If, Loop, Scan."""
import dataclasses

import numpy as np
from onnx import TensorProto, helper

from .graph import BOOL, F32, I64, Graph, Unfit


def subgraph(g, name, outputs_like, outer, steps=3):
    """A body that sees the outer values; its results have the types of outputs_like."""
    inner = Graph(g.random.getrandbits(32), g.opset, g.prefix)
    inner.names = g.names + 1000 * (1 + g.random.randrange(1000))
    inner.values = [dataclasses.replace(v) for v in outer if v.size <= 512]
    inner.add_input = lambda dtype, shape, data=None: inner.constant(inner.numbers(shape, dtype) if data is None else data)
    results = []
    for like in outputs_like:
        start = [v for v in inner.values if v.dtype == like.dtype and v.shape == like.shape]
        value = inner.random.choice(start) if start else inner.constant(inner.numbers(like.shape, like.dtype))
        for _ in range(steps):
            op = inner.random.choice(("Add", "Sub", "Max", "Neg", "Mul") if like.dtype != BOOL else ("And", "Or", "Xor", "Not"))
            others = [v for v in inner.values if v.dtype == like.dtype and v.shape in (like.shape, ()) and v.bound < 64]
            other = inner.random.choice(others) if others and op != "Mul" else inner.constant(np.asarray(
                1 if op != "Mul" else 0.5 if like.dtype.kind == "f" else 1, like.dtype))
            operands = [value] if op in ("Neg", "Not") else [value, other]
            (value,) = inner.emit(op, operands, [(like.dtype, like.shape, value.exact and other.exact, value.bound + 64)])
        results.append(value)
    infos = [helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for v in results]
    return inner, results, infos


def if_(g):
    likes = [g.pick((F32, I64)) for _ in range(g.random.randrange(1, 3))]
    condition = g.operand(BOOL, ())
    branches = {}
    exact = True
    for which in ("then_branch", "else_branch"):
        inner, results, infos = subgraph(g, which, likes, g.values)
        exact &= all(r.exact for r in results)
        branches[which] = helper.make_graph(inner.nodes, which, [], infos, inner.initializers)
    g.emit("If", [condition], [(v.dtype, v.shape, exact, v.bound + 512) for v in likes], **branches)


def loop(g):
    carried = [g.pick((F32, I64), where=lambda v: v.size <= 256 and v.bound < 256)]
    trip = g.random.randrange(0, 4)
    inner_likes = [dataclasses.replace(v, name=g.name("carried")) for v in carried]
    inner, results, infos = subgraph(g, "body", inner_likes, g.values + inner_likes)
    number, going = g.name("i"), g.name("going")
    inner.nodes.append(helper.make_node("Identity", [going], [going + "_out"]))
    scan = []
    if g.chance(0.5) and trip:
        inner.nodes.append(helper.make_node("Identity", [results[0].name], [results[0].name + "_row"]))
        scan.append(results[0].name + "_row")
    inputs = [helper.make_tensor_value_info(number, TensorProto.INT64, ()),
              helper.make_tensor_value_info(going, TensorProto.BOOL, ())]
    inputs += [helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for v in inner_likes]
    outputs = [helper.make_tensor_value_info(going + "_out", TensorProto.BOOL, ())] + infos
    outputs += [helper.make_tensor_value_info(s, helper.np_dtype_to_tensor_dtype(results[0].dtype), results[0].shape)
                for s in scan]
    body = helper.make_graph(inner.nodes, "body", inputs, outputs, inner.initializers)
    bound = carried[0].bound + 1e4
    made = [(v.dtype, v.shape, False, bound) for v in carried]
    if scan:
        made.append((results[0].dtype, (trip,) + results[0].shape, False, bound))
    g.emit("Loop", [g.constant(np.int64(trip)), ""] + carried, made, body=body)


def growing_loop(g):
    """A carried value that gets longer by a constant in each iteration."""
    x = g.pick((F32, I64), rank=(1, 3), where=lambda v: v.size <= 64)
    axis, trip = g.random.randrange(x.rank), g.random.randrange(0, 4)
    more = [d if i != axis else g.choose((1, 2)) for i, d in enumerate(x.shape)]
    part = g.constant(g.numbers(more, x.dtype))
    number, going, held, longer, out = (g.name(n) for n in ("i", "going", "held", "longer", "out"))
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node("Identity", [going], [out]),
             helper.make_node("Concat", [held, part.name] if g.chance(0.7) else [part.name, held], [longer], axis=axis)]
    free = [None if i == axis else d for i, d in enumerate(x.shape)]
    body = helper.make_graph(nodes, "body", [info(number, TensorProto.INT64, ()), info(going, TensorProto.BOOL, ()),
                                             info(held, kind, free)],
                             [info(out, TensorProto.BOOL, ()), info(longer, kind, free)])
    if g.chance(0.3):
        trips = g.add_input(I64, (), np.int64(trip))
        g.values.remove(trips)
    else:
        trips = g.constant(np.int64(trip))
    shape = list(x.shape)
    shape[axis] += trip * more[axis]
    g.emit("Loop", [trips, "", x], [(x.dtype, shape, x.exact, max(x.bound, 4))], body=body)


def scan(g):
    """A running sum along an axis, and its last value. onnxruntime divides by the size of what it transposes."""
    x = g.pick((F32, I64), rank=(1, 4), where=lambda v: 0 < v.size <= 512 and v.bound < 64)
    axis = g.random.randrange(x.rank)
    row = x.shape[:axis] + x.shape[axis + 1:]
    start = g.operand(x.dtype, row)
    if start.bound > 64:
        raise Unfit
    held, one, total, out = (g.name(n) for n in ("held", "one", "total", "out"))
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    op = g.choose(("Add", "Max", "Sub"))
    body = helper.make_graph([helper.make_node(op, [held, one], [total]), helper.make_node("Identity", [total], [out])],
                             "body", [info(held, kind, row), info(one, kind, row)],
                             [info(total, kind, row), info(out, kind, row)])
    exact, bound = x.exact and start.exact, start.bound + x.bound * max(1, x.shape[axis])
    to = g.random.randrange(len(row) + 1)
    g.emit("Scan", [start, x], [(x.dtype, row, exact, bound), (x.dtype, row[:to] + (x.shape[axis],) + row[to:], exact, bound)],
           body=body, num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[to],
           scan_input_directions=[g.random.choice((0, 1))], scan_output_directions=[g.random.choice((0, 1))])


def loop_until(g):
    """Ends by its condition: a counter of its own that reaches what an input or a constant says."""
    x = g.pick((F32, I64), where=lambda v: v.size <= 256 and v.bound < 256)
    last = g.random.randrange(0, 4)
    limit = g.add_input(I64, (), np.int64(last)) if g.chance(0.5) else g.constant(np.int64(last))
    if limit in g.values:
        g.values.remove(limit)
    number, going, held, next_, more = (g.name(n) for n in ("i", "going", "held", "next", "more"))
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    step = g.constant(np.asarray(g.choose((1, -2)), x.dtype))
    nodes = [helper.make_node("Add", [held, step.name], [next_]), helper.make_node("Less", [number, limit.name], [more])]
    body = helper.make_graph(nodes, "body", [info(number, TensorProto.INT64, ()), info(going, TensorProto.BOOL, ()),
                                             info(held, kind, x.shape)],
                             [info(more, TensorProto.BOOL, ()), info(next_, kind, x.shape)])
    g.emit("Loop", [g.constant(np.int64(g.choose((2, 10)))), g.constant(np.bool_(g.chance(0.8))), x],
           [(x.dtype, x.shape, x.exact, x.bound + 16)], body=body)


def if_of_sizes(g):
    """Branches whose results have different sizes; a sum over them has a known one."""
    x = g.pick((F32, I64), rank=(1, 3), where=lambda v: v.size > 0 and v.bound < 1e4)
    axis = g.random.randrange(x.rank)
    condition = g.operand(BOOL, ())
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    free = [None if i == axis else d for i, d in enumerate(x.shape)]
    whole, twice, out = g.name("whole"), g.name("twice"), g.name()
    then = helper.make_graph([helper.make_node("Identity", [x.name], [whole])], "then", [], [info(whole, kind, x.shape)])
    other = helper.make_graph([helper.make_node("Concat", [x.name, x.name], [twice], axis=axis)], "else", [],
                              [info(twice, kind, free)])
    (out,) = g.emit("If", [condition], [(x.dtype, x.shape)], then_branch=then, else_branch=other)
    g.values.remove(out)
    g.emit("ReduceSum", [out, g.integers(axis)],
           [(x.dtype, [1 if i == axis else d for i, d in enumerate(x.shape)], x.exact, x.bound * 2 * x.shape[axis])])


def if_in_loop(g):
    """A condition that depends on the iteration."""
    x = g.pick((F32, I64), where=lambda v: v.size <= 256 and v.bound < 64)
    trip = g.random.randrange(0, 5)
    number, going, out, held, odd, next_, up, down = (g.name(n) for n in ("i", "go", "out", "held", "odd", "next", "up", "down"))
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    two, zero, one = g.integers(2), g.constant(np.int64(0)), g.constant(np.asarray(1, x.dtype))
    rest, flat = g.name("rest"), g.name("flat")
    then = helper.make_graph([helper.make_node("Add", [held, one.name], [up])], "then", [], [info(up, kind, x.shape)])
    other = helper.make_graph([helper.make_node("Sub", [held, x.name], [down])], "else", [], [info(down, kind, x.shape)])
    nodes = [helper.make_node("Identity", [going], [out]), helper.make_node("Mod", [number, two], [rest]),
             helper.make_node("Squeeze", [rest], [flat]), helper.make_node("Equal", [flat, zero.name], [odd]),
             helper.make_node("If", [odd], [next_], then_branch=then, else_branch=other)]
    body = helper.make_graph(nodes, "body", [info(number, TensorProto.INT64, ()), info(going, TensorProto.BOOL, ()),
                                             info(held, kind, x.shape)],
                             [info(out, TensorProto.BOOL, ()), info(next_, kind, x.shape)])
    g.emit("Loop", [g.constant(np.int64(trip)), "", x], [(x.dtype, x.shape, x.exact, x.bound * 6 + 8)], body=body)


OPERATORS = ((2, if_), (1, if_of_sizes), (2, loop), (1, loop_until), (1, if_in_loop), (1, growing_loop), (1, scan))
