"""Operators of one element at a time."""
import math

import numpy as np
from onnx import helper

from .graph import (ANY, BOOL, F16, F32, F64, FLOATS, I8, I16, I32, I64, INTEGERS, NARROW, NUMBERS, SIGNED, U8, U32, U64,
                    UNSIGNED, Unfit, broadcast_partner)


def unary_exact(g):
    op, dtypes = g.choose((("Neg", NUMBERS + (I8, F16)), ("Abs", NUMBERS + (I8, U8, I16, F16)), ("Relu", FLOATS + (F16,)),
                           ("Identity", ANY), ("Not", (BOOL,)), ("Sign", NUMBERS + NARROW), ("Floor", FLOATS), ("Ceil", FLOATS), ("Round", FLOATS)))
    jumps = op in ("Sign", "Floor", "Ceil", "Round")
    x = g.pick(dtypes, where=lambda v: v.exact or not jumps)
    g.emit(op, [x], [(x.dtype, x.shape, x.exact, x.bound + 1)])


def unary_smooth(g):
    op = g.choose(("Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Atan", "Softplus", "Softsign", "Exp", "Sqrt", "Log", "Elu",
                   "LeakyRelu", "Selu", "HardSigmoid", "HardSwish", "Gelu", "Mish", "Celu", "ThresholdedRelu", "Reciprocal"))
    x = g.pick((F32,), where=lambda v: v.bound <= 64)
    if op in ("Log", "Sqrt", "Reciprocal"):
        (x,) = g.emit("Abs", [x], [(x.dtype, x.shape, x.exact, x.bound)])
        (x,) = g.emit("Add", [x, g.constant(np.float32(0.5))], [(x.dtype, x.shape, x.exact, x.bound + 1)])
    if op == "Gelu" and g.opset < 20:
        raise Unfit
    if op == "ThresholdedRelu" and not x.exact:
        raise Unfit
    bound = {"Exp": math.exp(min(x.bound, 50)), "Reciprocal": 2, "Log": 5}.get(op, max(x.bound, 2))
    g.emit(op, [x], [(x.dtype, x.shape, False, bound)])


def binary(g):
    op = g.choose(("Add", "Sub", "Mul", "Min", "Max", "PRelu", "Div"))
    x = g.pick({"PRelu": (F32,), "Div": FLOATS, "Min": NUMBERS + (F16, U32, U64), "Max": NUMBERS + (F16, U32, U64)}.get(
        op, NUMBERS + (F16,)))
    other, shape = broadcast_partner(g, x.shape)
    y = g.operand(x.dtype, other)
    if op == "PRelu":
        y = g.constant(g.numbers((x.shape[-1],) if x.rank else (), x.dtype))
        shape = x.shape
    if op == "Div":
        y = g.constant(np.asarray(g.random.choice((0.5, 2.0, -4.0)) * np.ones(other), x.dtype))
    exact, bound = x.exact and y.exact, x.bound * 8 if op in ("Mul", "PRelu", "Div") else x.bound + y.bound
    if op == "Mul":
        bound = x.bound * y.bound
    if bound > 2 ** 12:
        raise Unfit  # exact no longer in f32 after a few steps
    pair = [x, y] if op == "PRelu" or op == "Div" or g.chance(0.5) else [y, x]
    g.emit(op, pair, [(x.dtype, shape, exact, bound)])


def integer_division(g):
    op = g.choose(("Div", "Mod"))
    x = g.pick(INTEGERS)
    other, shape = broadcast_partner(g, x.shape)
    y = g.constant(np.asarray(g.numbers(other, x.dtype) * 0 + g.random.choice((1, 2, 3, -2, 5)), x.dtype))
    if op == "Div":
        (x,) = g.emit("Abs", [x], [(x.dtype, x.shape, True, x.bound)])  # how negatives round is not settled
        y = g.constant(np.full(other, g.random.choice((1, 2, 3)), x.dtype))
    g.emit(op, [x, y], [(x.dtype, shape, True, x.bound + 5)], **({"fmod": g.random.choice((0, 1))} if op == "Mod" else {}))


def compare(g):
    op = g.choose(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    x = g.pick(NUMBERS + (F16,) + ((BOOL,) if op == "Equal" else ()), where=lambda v: v.exact)
    other, shape = broadcast_partner(g, x.shape)
    y = g.operand(x.dtype, other)
    if not y.exact:
        raise Unfit
    g.emit(op, [x, y], [(BOOL, shape)])


def logical(g):
    x = g.pick((BOOL,))
    other, shape = broadcast_partner(g, x.shape)
    g.emit(g.choose(("And", "Or", "Xor")), [x, g.operand(BOOL, other)], [(BOOL, shape)])


def where(g):
    x = g.pick(NUMBERS + (F16, U8))
    other, shape = broadcast_partner(g, x.shape)
    y = g.operand(x.dtype, other)
    condition_shape, shape = broadcast_partner(g, shape)
    condition = g.operand(BOOL, condition_shape)
    g.emit("Where", [condition, x, y], [(x.dtype, shape, x.exact and y.exact, max(x.bound, y.bound))])


def cast(g):
    x = g.pick(ANY)
    to = g.choose((F32, F64, I32, I64, BOOL) + (NARROW if g.chance(0.3) else ()))
    if to.kind != "f" and not x.exact:
        raise Unfit
    if to in NARROW and x.dtype != BOOL:
        if x.bound > 100 or not x.exact:
            raise Unfit
        if to.kind == "u" and x.dtype.kind != "u":
            if x.dtype not in NUMBERS:
                raise Unfit
            (x,) = g.emit("Abs", [x], [(x.dtype, x.shape, x.exact, x.bound)])  # wrapping is not settled
    bound = x.bound if x.dtype != BOOL else 1
    g.emit("Cast", [x], [(to, x.shape, x.exact, bound)], to=helper.np_dtype_to_tensor_dtype(to))


def clip(g):
    x = g.pick(FLOATS + INTEGERS)
    low, high = g.constant(np.asarray(-1, x.dtype)), g.constant(np.asarray(2, x.dtype))
    which = g.random.choice(([low.name, high.name], [low.name], ["", high.name]))
    g.emit("Clip", [x] + which, [(x.dtype, x.shape, x.exact, x.bound)])


def variadic(g):
    x = g.pick(FLOATS)
    shapes = [broadcast_partner(g, x.shape)[0] for _ in range(g.random.randrange(0, 3))]
    try:
        np.broadcast_shapes(x.shape, *shapes)
    except ValueError:
        raise Unfit from None
    operands = [x] + [g.operand(x.dtype, s) for s in shapes]
    op = g.choose(("Sum", "Max", "Min", "Mean"))
    exact = op != "Mean" and all(v.exact for v in operands)
    g.emit(op, operands, [(x.dtype, np.broadcast_shapes(x.shape, *(v.shape for v in operands)), exact,
                           sum(v.bound for v in operands))])


def power(g):
    """Whole powers of anything, roots of what is not negative."""
    if g.chance(0.5):
        x = g.pick(NUMBERS, where=lambda v: v.bound <= 16)
        exponent = g.constant(np.asarray(g.choose((0, 1, 2, 3)), g.choose((F32, I32, I64)) if x.dtype in FLOATS else x.dtype))
        exact = x.exact
    else:
        x = g.pick((F32,), where=lambda v: v.bound <= 64)
        (x,) = g.emit("Abs", [x], [(x.dtype, x.shape, x.exact, x.bound)])
        exponent, exact = g.constant(np.float32(g.choose((0.5, 1.5, 0.25)))), False
    g.emit("Pow", [x, exponent], [(x.dtype, x.shape, exact, max(1.0, x.bound) ** 3)])


def within_one(g):
    """Functions of what lies in [-1, 1], and those that grow fast."""
    op = g.choose(("Asin", "Acos", "Atanh", "Sinh", "Cosh", "Tan", "Asinh", "Acosh"))
    x = g.pick((F32,), where=lambda v: v.exact)
    low, high = (1.25, 8.0) if op == "Acosh" else (-0.75, 0.75)
    (x,) = g.emit("Clip", [x, g.constant(np.float32(low)), g.constant(np.float32(high))], [(x.dtype, x.shape, x.exact, high)])
    g.emit(op, [x], [(x.dtype, x.shape, False, 4)])


def bitwise(g):
    op = g.choose(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    x = g.pick(UNSIGNED if op == "BitShift" else SIGNED + UNSIGNED, where=lambda v: v.bound < 2 ** 20)
    other, shape = broadcast_partner(g, x.shape)
    if op == "BitwiseNot":
        g.emit(op, [x], [(x.dtype, x.shape, True, 2 ** 63 if x.dtype in UNSIGNED else x.bound + 1)])
    elif op == "BitShift":
        y = g.constant(np.asarray(g.numbers(other, x.dtype) % 4, x.dtype))
        g.emit(op, [x, y], [(x.dtype, shape, True, x.bound * 16)], direction=g.choose(("LEFT", "RIGHT")))
    else:
        g.emit(op, [x, g.operand(x.dtype, other)], [(x.dtype, shape, True, 2 * x.bound + 64)])


def special_numbers(g):
    """Infinities and what is not a number, seen by IsInf, IsNaN, Where and the order of Min and Max."""
    x = g.pick((F32,), where=lambda v: v.exact and v.size > 0)
    (y,) = g.emit("Div", [x, g.constant(np.float32(0))], [(F32, x.shape)])
    g.values.remove(y)
    what = g.random.randrange(4)
    if what == 0:
        g.emit("IsNaN", [y], [(BOOL, x.shape)])
    elif what == 1:
        g.emit("IsInf", [y], [(BOOL, x.shape)], detect_negative=g.choose((0, 1)), detect_positive=g.choose((0, 1)))
    else:
        (m,) = g.emit(g.choose(("Min", "Max")), [x, y], [(F32, x.shape)])
        g.values.remove(m)
        (nan,) = g.emit("IsNaN", [m], [(BOOL, x.shape)])
        (inf,) = g.emit("IsInf", [m], [(BOOL, x.shape)])
        (odd,) = g.emit("Or", [nan, inf], [(BOOL, x.shape)])
        g.emit("Where", [odd, x, m], [(F32, x.shape, True, x.bound)])


def shrink(g):
    x = g.pick((F32,), where=lambda v: v.exact)
    g.emit("Shrink", [x], [(F32, x.shape, True, x.bound + 1)], bias=g.choose((0.0, 0.5)), lambd=g.choose((0.5, 1.0)))


OPERATORS = ((3, unary_exact), (4, unary_smooth), (6, binary), (2, integer_division), (2, compare), (1, logical), (2, where),
             (2, cast), (1, clip), (1, variadic), (1, power), (1, within_one), (1, bitwise), (1, special_numbers), (1, shrink))
