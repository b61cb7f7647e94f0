"""Reductions, normalisations, softmax."""
import numpy as np

from .graph import F16, F32, F64, I32, I64, Unfit


def reduce(g):
    op = g.choose(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceSumSquare",
                   "ReduceL2", "ReduceLogSumExp"))
    x = g.pick((F32,) if op not in ("ReduceSum", "ReduceMax", "ReduceMin") else
               (F32, I32, I64, F64) + ((F16,) if op != "ReduceSum" else ()), rank=(0, 5))
    if x.bound > 64 or (op == "ReduceProd" and (x.bound > 4 or x.size > 24)):
        raise Unfit
    axes = g.random.sample(range(x.rank), g.random.randrange(0, x.rank + 1))
    reduced = axes or range(x.rank)
    if op in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceLogSumExp") and any(x.shape[a] == 0 for a in reduced):
        raise Unfit
    if x.size == 0 and x.rank > 1:
        raise Unfit  # onnxruntime keeps the sizes of reduced dims where there are no elements
    keep = g.random.choice((0, 1))
    shape = [1 if i in reduced else d for i, d in enumerate(x.shape)] if keep else \
        [d for i, d in enumerate(x.shape) if i not in reduced]
    exact = x.exact and op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
    bound = {"ReduceMax": x.bound, "ReduceMin": x.bound}.get(op, x.bound * x.bound * max(1, x.size))
    if op == "ReduceProd":
        bound = 1e6
    # Where there are no elements, onnxruntime reduces along no axis that counts from the end.
    given = [g.integers(*(a - (x.rank if g.chance(0.3) and x.size > 0 else 0) for a in axes))] if axes else []
    if op == "ReduceSum" and not axes and g.chance(0.5):  # of no axes: nothing is reduced
        g.emit(op, [x] + ([g.integers()] if g.chance(0.5) else []), [(x.dtype, x.shape, x.exact, x.bound)],
               keepdims=keep, noop_with_empty_axes=1)
        return
    g.emit(op, [x] + given, [(x.dtype, shape, exact, bound)], keepdims=keep)


def arg_reduce(g):
    x = g.pick((F32, I32), rank=(1, 5), where=lambda v: v.exact and v.size > 0)
    axis = g.random.randrange(x.rank)
    keep = g.random.choice((0, 1))
    shape = x.shape[:axis] + ((1,) if keep else ()) + x.shape[axis + 1:]
    g.emit(g.choose(("ArgMax", "ArgMin")), [x], [(I64, shape, True, 20)], axis=axis, keepdims=keep,
           select_last_index=g.random.choice((0, 1)))


def cum_sum(g):
    x = g.pick((F32, F64, I32, I64), rank=(1, 4))
    axis = g.random.randrange(x.rank)
    g.emit("CumSum", [x, g.constant(np.int64(axis))], [(x.dtype, x.shape, x.exact, x.bound * max(1, x.shape[axis]))],
           exclusive=g.random.choice((0, 1)), reverse=g.random.choice((0, 1)))


def softmax(g):
    op = g.choose(("Softmax", "LogSoftmax", "Hardmax"))
    x = g.pick((F32,) if op == "Hardmax" else (F32, F64), rank=(1, 5), where=lambda v: v.size > 0 and v.bound < 1e4 and (v.exact or op != "Hardmax"))
    g.emit(op, [x], [(x.dtype, x.shape, False, 2 if op != "LogSoftmax" else x.bound * 2)],
           axis=g.random.randrange(-x.rank, x.rank))


def layer_norm(g):
    x = g.pick((F32,), rank=(1, 4), where=lambda v: v.size > 0 and v.bound < 1e3)
    axis = g.random.randrange(x.rank)
    scale, bias = (g.constant(g.numbers(x.shape[axis:], F32)) for _ in range(2))
    g.emit("LayerNormalization", [x, scale, bias], [(F32, x.shape, False, 64)], axis=axis - (x.rank if g.chance(0.3) else 0),
           epsilon=0.1)


def batch_norm(g):
    x = g.pick((F32,), rank=(2, 5), where=lambda v: v.bound < 1e4)
    scale, bias, mean = (g.constant(g.numbers((x.shape[1],), F32)) for _ in range(3))
    var = g.constant(np.abs(g.numbers((x.shape[1],), F32)) + np.float32(0.5))
    g.emit("BatchNormalization", [x, scale, bias, mean, var], [(F32, x.shape, False, x.bound * 4 + 8)])


def instance_norm(g):
    x = g.pick((F32,), rank=(3, 5), where=lambda v: v.size > 0 and v.bound < 1e3)
    scale, bias = (g.constant(g.numbers((x.shape[1],), F32)) for _ in range(2))
    g.emit("InstanceNormalization", [x, scale, bias], [(F32, x.shape, False, 64)], epsilon=0.1)


def other_norms(g):
    op = g.choose(("MeanVarianceNormalization", "LpNormalization", "GroupNormalization", "LRN", "RMSNormalization"))
    x = g.pick((F32,), rank=(2, 5), where=lambda v: v.size > 0 and v.bound < 1e3)
    if op == "GroupNormalization":
        if g.opset < 21 or x.rank < 3:
            raise Unfit
        groups = g.choose([k for k in range(1, x.shape[1] + 1) if x.shape[1] % k == 0])
        scale, bias = (g.constant(g.numbers((x.shape[1],), F32)) for _ in range(2))
        g.emit(op, [x, scale, bias], [(F32, x.shape, False, 64)], num_groups=groups, epsilon=0.1)
    elif op == "RMSNormalization":
        if g.opset < 23:
            raise Unfit
        axis = g.random.randrange(x.rank)
        g.emit(op, [x, g.constant(g.numbers(x.shape[axis:], F32))], [(F32, x.shape, False, 64)], axis=axis, epsilon=0.1)
    elif op == "LRN":
        if x.rank != 4:
            raise Unfit
        g.emit(op, [x], [(F32, x.shape, False, x.bound)], size=g.choose((1, 3, 5)), bias=1.0)
    elif op == "LpNormalization":
        (x,) = g.emit("Add", [x, g.constant(np.float32(100))], [(F32, x.shape, False, 1200)])  # away from a sum of 0
        g.emit(op, [x], [(F32, x.shape, False, 1)], axis=g.random.randrange(-x.rank, x.rank), p=g.choose((1, 2)))
    else:
        if x.rank != 4 or not x.exact:
            raise Unfit
        axes = [a for a in (0, 2, 3) if x.shape[a] > 1]
        if not axes:
            raise Unfit
        # Noise of a variance that is 0 is as large as what it is divided by: a ramp whose steps x does not undo has one.
        ramp = [d if a in axes else 1 for a, d in enumerate(x.shape)]
        step = 4 * max(1, x.bound)
        ramp = g.constant((np.arange(np.prod(ramp)) * step).astype(np.float32).reshape(ramp))
        (x,) = g.emit("Add", [x, ramp], [(F32, x.shape, False, 1200)])
        g.emit(op, [x], [(F32, x.shape, False, 64)], axes=axes)


OPERATORS = ((4, reduce), (2, arg_reduce), (1, cum_sum), (2, softmax), (2, layer_norm), (1, batch_norm), (1, instance_norm),
             (1, other_norms))
