"""The cases of tests/bench/ops.py: operators as real models contain them, one realistic shape each."""

import numpy as np
from onnx import TensorProto, helper

MS, ML = "com.microsoft", "ai.onnx.ml"
CASES = []
rng = np.random.default_rng(3)


class Case:
    """One node; `weights` are the positions of the inputs that a model holds, `opset` is the domain's version."""

    def __init__(self, label, op, inputs, outputs, domain, opset, weights, tolerance, attributes):
        self.label, self.op, self.inputs, self.outputs = label, op, inputs, outputs
        self.domain, self.opset, self.weights, self.tolerance, self.attributes = domain, opset, weights, tolerance, attributes


def case(label, *inputs, op=None, outputs=1, domain="", opset=None, weights=(), tolerance=1e-4, **attributes):
    """`label` begins with the operator's name unless `op` says it; `outputs` is a count or a list of flags."""
    newest = {"": 21, MS: 1, ML: 3}[domain]
    CASES.append(Case(label, op or label.split()[0], inputs, outputs, domain, opset or newest, weights, tolerance, attributes))


def f32(*shape, scale=1.0):
    return (rng.standard_normal(shape, np.float32) * np.float32(scale)).astype(np.float32)


def f64(*shape):
    return rng.standard_normal(shape)


def f16(*shape):
    return f32(*shape).astype(np.float16)


def positive(*shape, low=0.01):
    return rng.random(shape, np.float32) + np.float32(low)


def unit(*shape):
    return (rng.random(shape, np.float32) * np.float32(1.98) - np.float32(0.99)).astype(np.float32)


def integers(dtype, low, high, *shape):
    return rng.integers(low, high, shape, endpoint=True).astype(dtype)


def i64(*values):
    return np.array(values, np.int64)


def number(value, dtype=np.float32):
    return np.array(value, dtype)


TOKENS = (8, 128, 768)  # a batch of hidden states
IMAGE = (1, 64, 112, 112)
SCORES = (8, 12, 128, 128)


def pointwise():
    for op in """Abs Atan Asinh Ceil Celu Cos Elu Erf Exp Floor HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Mish Neg
                 Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Cosh Softplus Softsign Tan Tanh ThresholdedRelu""".split():
        case(op, f32(*TOKENS))
    for op in ("Gelu", "Gelu tanh"):
        case(op, f32(*TOKENS), **({"approximate": "tanh"} if "tanh" in op else {}))
    for op in ("Acos", "Asin", "Atanh"):
        case(op, unit(*TOKENS))
    for op in ("Log", "Sqrt"):
        case(op, positive(*TOKENS))
    case("Acosh", positive(*TOKENS, low=1))
    case("Not", f32(*TOKENS) > 0)
    case("Clip", f32(*TOKENS), number(-0.5), number(0.5), weights=(1, 2))
    case("PRelu", f32(*IMAGE), f32(64, 1, 1), weights=(1,))
    for op in ("Exp", "Tanh", "Erf", "Log", "Sin", "Atan"):
        case(f"{op} f64", np.abs(f64(8, 128, 768)) + 0.1)
    for op in ("Asin", "Acos"):
        case(f"{op} f64", rng.random(TOKENS) * 1.98 - 0.99)
    for name, x, to in (
        ("f32 f16", f32(*TOKENS), TensorProto.FLOAT16),
        ("f16 f32", f16(*TOKENS), TensorProto.FLOAT),
        ("f32 bf16", f32(*TOKENS), TensorProto.BFLOAT16),
        ("f32 i32", f32(*TOKENS), TensorProto.INT32),
        ("f32 i64", f32(*TOKENS), TensorProto.INT64),
        ("f32 u8", positive(*TOKENS), TensorProto.UINT8),
        ("i64 f32", integers(np.int64, -99, 99, *TOKENS), TensorProto.FLOAT),
        ("i64 i32", integers(np.int64, -99, 99, *TOKENS), TensorProto.INT32),
        ("u8 f32", integers(np.uint8, 0, 255, *TOKENS), TensorProto.FLOAT),
        ("bool f32", f32(*TOKENS) > 0, TensorProto.FLOAT),
        ("f32 bool", f32(*TOKENS), TensorProto.BOOL),
        ("f32 f64", f32(*TOKENS), TensorProto.DOUBLE),
    ):
        case(f"Cast {name}", x, to=to)


def binary():
    for op in ("Add", "Sub", "Mul", "Div"):
        case(op, f32(*TOKENS), positive(*TOKENS))
        case(f"{op} row", f32(*TOKENS), positive(768), weights=(1,))
        case(f"{op} column", f32(*TOKENS), positive(8, 128, 1))
    case("Add channel", f32(*IMAGE), f32(1, 64, 1, 1), weights=(1,))
    case("Add outer", f32(1024, 1), f32(1, 1024))
    case("Pow square", f32(*TOKENS), number(2.0), weights=(1,))
    case("Pow", positive(*TOKENS), f32(*TOKENS))
    case("Pow f64", np.abs(f64(*TOKENS)) + 0.1, f64(*TOKENS))
    case("Pow scalar", positive(*TOKENS), number(2.4), weights=(1,))
    case("Mod fmod", f32(*TOKENS), positive(*TOKENS), fmod=1)
    for dtype in (np.int32, np.int64):
        for op in ("Add", "Mul", "Sub", "Div", "Mod"):
            case(f"{op} {dtype.__name__}", integers(dtype, -999, 999, *TOKENS), integers(dtype, 1, 99, *TOKENS))
    case("Mod scalar int64", integers(np.int64, 0, 9999, *TOKENS), number(7, np.int64), weights=(1,))
    case("Div scalar int64", integers(np.int64, 0, 9999, *TOKENS), number(7, np.int64), weights=(1,))
    for op in ("Max", "Min", "Mean", "Sum"):
        case(op, f32(*TOKENS), f32(*TOKENS), f32(*TOKENS))
    case("Max int64", integers(np.int64, -99, 99, *TOKENS), integers(np.int64, -99, 99, *TOKENS))
    for op in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        case(op, f32(*TOKENS), f32(*TOKENS))
    case("Equal int64", integers(np.int64, 0, 3, *TOKENS), number(1, np.int64), weights=(1,))
    for op in ("And", "Or", "Xor"):
        case(op, f32(*TOKENS) > 0, f32(*TOKENS) > 0)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        case(op, integers(np.int32, 0, 9999, *TOKENS), integers(np.int32, 0, 9999, *TOKENS))
    case("BitwiseNot", integers(np.int32, 0, 9999, *TOKENS))
    case("BitShift", integers(np.uint32, 0, 9999, *TOKENS), integers(np.uint32, 0, 7, *TOKENS), direction="LEFT")
    case("BitShift u8", integers(np.uint8, 0, 255, *TOKENS), integers(np.uint8, 0, 7, *TOKENS), direction="RIGHT")
    case("Where", f32(*TOKENS) > 0, f32(*TOKENS), f32(*TOKENS))
    case("Where mask", f32(8, 1, 128, 128) > 0, f32(*SCORES), number(-1e9), weights=(2,))
    case("Where int64", f32(*TOKENS) > 0, integers(np.int64, 0, 9, *TOKENS), number(1, np.int64), weights=(2,))
    for op in ("Add", "Mul"):
        case(f"{op} f16", f16(*TOKENS), f16(*TOKENS), tolerance=2e-3)
    for op in ("Relu", "Sigmoid", "Sqrt"):
        case(f"{op} f16", np.abs(f16(*TOKENS)), tolerance=2e-3)
    case("Add f64", f64(*TOKENS), f64(*TOKENS))


def reductions():
    for op in "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp".split():
        case(f"{op} last", positive(*TOKENS, low=0.5), i64(-1), weights=(1,))
    for op in "ReduceSum ReduceMean ReduceMax ReduceL2".split():
        case(f"{op} middle", f32(*TOKENS), i64(1), weights=(1,))
        case(f"{op} first", f32(1024, 768), i64(0), weights=(1,))
        case(f"{op} space", f32(*IMAGE), i64(2, 3), weights=(1,))
        case(f"{op} all", positive(*TOKENS))
    case("ReduceSum int64 last", integers(np.int64, -9, 9, *TOKENS), i64(-1), weights=(1,))
    case("ReduceSum int32 all", integers(np.int32, -9, 9, *TOKENS))
    case("ReduceMax uint8 last", integers(np.uint8, 0, 255, *TOKENS), i64(-1), weights=(1,))
    case("ReduceSum f64 last", f64(*TOKENS), i64(-1), weights=(1,))
    case("ReduceProd int64 last", integers(np.int64, 1, 1, *TOKENS), i64(-1), weights=(1,))
    case("ReduceMean f16 last", f16(*TOKENS), i64(-1), weights=(1,), opset=18, tolerance=2e-3)
    for op in ("ArgMax", "ArgMin"):
        case(f"{op} last", f32(*TOKENS), axis=-1)
        case(f"{op} classes", f32(1, 21, 256, 256), axis=1)
    case("ArgMax vocabulary", f32(1, 50257), axis=-1)
    for name, x, axis in (("last", f32(*TOKENS), -1), ("first", f32(1024, 768), 0), ("long", f32(1, 500000), 1), ("mask", integers(np.int64, 0, 1, 8, 512), 1)):
        case(f"CumSum {name}", x, number(axis, np.int64), weights=(1,))
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        case(f"{op} last", f32(*SCORES), axis=-1)
    case("Softmax classes", f32(1, 21, 256, 256), axis=1)
    case("LogSoftmax vocabulary", f32(4, 50257), axis=-1)
    case("Softmax vocabulary", f32(1, 50257), axis=-1)
    case("Softmax f64", f64(8, 128, 128), axis=-1)
    case("LayerNormalization", f32(*TOKENS), f32(768), f32(768), weights=(1, 2))
    case("RMSNormalization", f32(*TOKENS), f32(768), weights=(1,), opset=23)
    case("GroupNormalization", f32(1, 64, 64, 64), f32(64), f32(64), weights=(1, 2), num_groups=8)
    case("InstanceNormalization", f32(1, 64, 64, 64), f32(64), f32(64), weights=(1, 2))
    case("BatchNormalization", f32(*IMAGE), f32(64), f32(64), f32(64), positive(64), weights=(1, 2, 3, 4))
    case("LRN", f32(1, 64, 56, 56), size=5)
    case("LpNormalization", f32(*TOKENS), axis=-1, p=2)
    case("MeanVarianceNormalization", f32(1, 64, 64, 64), axes=[2, 3])
    case("SoftmaxCrossEntropyLoss", f32(512, 1000), integers(np.int64, 0, 999, 512))
    case("NegativeLogLikelihoodLoss", f32(512, 1000), integers(np.int64, 0, 999, 512))


def shapes():
    for name, x, perm in (
        ("heads", f32(8, 128, 12, 64), [0, 2, 1, 3]),
        ("keys", f32(8, 128, 12, 64), [0, 2, 3, 1]),
        ("nhwc", f32(1, 64, 112, 112), [0, 2, 3, 1]),
        ("nchw", f32(1, 224, 224, 3), [0, 3, 1, 2]),
        ("matrix", f32(1024, 1024), [1, 0]),
        ("reverse", f32(64, 48, 32, 16), [3, 2, 1, 0]),
        ("windows", f32(8, 8, 7, 8, 7, 96), [0, 1, 3, 2, 4, 5]),
        ("u8 nchw", integers(np.uint8, 0, 255, 1, 480, 640, 3), [0, 3, 1, 2]),
        ("f16 matrix", f16(1024, 1024), [1, 0]),
        ("int64 matrix", integers(np.int64, 0, 9, 512, 1024), [1, 0]),
        ("odd", f32(33, 65, 17, 31), [2, 0, 3, 1]),
    ):
        case(f"Transpose {name}", x, perm=perm)
    case("Concat last", f32(8, 128, 384), f32(8, 128, 384), axis=-1)
    case("Concat channels", f32(1, 64, 56, 56), f32(1, 32, 56, 56), f32(1, 32, 56, 56), axis=1)
    case("Concat cache", f32(1, 12, 1023, 64), f32(1, 12, 1, 64), axis=2)
    case("Split heads", f32(8, 128, 2304), i64(768, 768, 768), axis=2, outputs=3, weights=(1,))
    case("Split channels", f32(1, 64, 56, 56), i64(32, 32), axis=1, outputs=2, weights=(1,))
    for name, starts, ends, axes, steps in (
        ("rows", [16], [112], [1], [1]),
        ("columns", [64], [704], [2], [1]),
        ("strided", [0], [768], [2], [2]),
        ("reversed", [-1], [-99999], [2], [-1]),
        ("reversed rows", [-1], [-99999], [1], [-1]),
    ):
        case(f"Slice {name}", f32(*TOKENS), i64(*starts), i64(*ends), i64(*axes), i64(*steps), weights=(1, 2, 3, 4))
    for mode in ("constant", "reflect", "edge", "wrap"):
        case(f"Pad {mode}", f32(1, 64, 112, 112), i64(0, 0, 3, 3, 0, 0, 3, 3), weights=(1,), mode=mode)
    case("Pad batch", f32(4, 100, 768), i64(0, 0, 0, 4, 28, 0), weights=(1,))
    case("Tile", f32(1, 128, 768), i64(8, 1, 1), weights=(1,))
    case("Tile columns", f32(1024, 64), i64(1, 12), weights=(1,))
    case("Expand", f32(8, 1, 1, 128), i64(8, 12, 128, 128), weights=(1,))
    case("Expand rows", f32(1024, 1), i64(1024, 768), weights=(1,))
    case("Reshape", f32(*TOKENS), i64(8, 128, 12, 64), weights=(1,))
    case("DepthToSpace", f32(1, 64, 64, 64), blocksize=2)
    case("DepthToSpace CRD", f32(1, 64, 64, 64), blocksize=2, mode="CRD")
    case("SpaceToDepth", f32(1, 12, 320, 320), blocksize=2)
    case("ReverseSequence", f32(128, 8, 256), integers(np.int64, 1, 128, 8), batch_axis=1, time_axis=0)
    case("Trilu", f32(8, 512, 512), upper=0)
    case("EyeLike", f32(1024, 1024))
    case("Range", number(0, np.int64), number(500000, np.int64), number(1, np.int64))
    case("ConstantOfShape", i64(8, 128, 768))
    case("OneHot", integers(np.int64, 0, 999, 512), number(1000, np.int64), f32(2), weights=(1, 2))
    case("OneHot first", integers(np.int64, 0, 20, 256, 256), number(21, np.int64), f32(2), weights=(1, 2), axis=0)
    case("CenterCropPad", f32(1, 64, 112, 112), i64(96, 128), axes=[2, 3], weights=(1,))
    case("Shape", f32(*TOKENS))


def indexing():
    ids = integers(np.int64, 0, 30521, 8, 128)
    case("Gather rows", f32(30522, 768), ids, weights=(0,))
    case("Gather rows int32", f32(30522, 768), ids.astype(np.int32), weights=(0,))
    case("Gather rows f16", f16(30522, 768), ids, weights=(0,))
    case("Gather middle", f32(*TOKENS), integers(np.int64, 0, 127, 64), axis=1)
    case("Gather last", f32(*TOKENS), integers(np.int64, 0, 767, 256), axis=2)
    case("Gather narrow", f32(100000, 4), integers(np.int64, 0, 99999, 100000))
    case("Gather one", f32(*TOKENS), number(0, np.int64), axis=1, weights=(1,))
    case("GatherElements last", f32(*TOKENS), integers(np.int64, 0, 767, 8, 128, 64), axis=2)
    case("GatherElements first", f32(1024, 768), integers(np.int64, 0, 1023, 512, 768), axis=0)
    case("GatherND rows", f32(64, 64, 256), integers(np.int64, 0, 63, 1024, 2))
    case("GatherND scalars", f32(64, 64, 64), integers(np.int64, 0, 63, 50000, 3))
    case("GatherND batch", f32(8, 128, 256), integers(np.int64, 0, 127, 8, 64, 1), batch_dims=1)
    case("ScatterElements", f32(*TOKENS), integers(np.int64, 0, 767, 8, 128, 1), f32(8, 128, 1), axis=2)
    case("ScatterElements add", f32(2000, 64), np.tile(integers(np.int64, 0, 1999, 10000, 1), (1, 64)), f32(10000, 64), axis=0, reduction="add")
    case("ScatterElements add scalars", f32(100000), integers(np.int64, 0, 99999, 500000), f32(500000), axis=0, reduction="add", tolerance=1e-3)
    case("ScatterND", f32(1024, 768), rng.permutation(1024)[:512, None].astype(np.int64), f32(512, 768))
    case("ScatterND add", f32(2000, 64), integers(np.int64, 0, 1999, 10000, 1), f32(10000, 64), reduction="add")
    case("ScatterND max", f32(2000, 64), integers(np.int64, 0, 1999, 10000, 1), f32(10000, 64), reduction="max")
    case("TensorScatter", f32(2, 12, 1024, 64), f32(2, 12, 4, 64), i64(100, 200), opset=24)
    case("NonZero", (f32(512, 512) > 1).astype(np.float32))
    case("NonZero bool", f32(8, 128, 128) > 1)
    case("NonZero list", f32(100000) > 0)
    case("Compress", f32(10000, 64), f32(10000) > 0, axis=0)
    case("Unique", integers(np.int64, 0, 999, 20000), outputs=4)
    case("Unique unsorted", integers(np.int64, 0, 999, 20000), outputs=4, sorted=0)
    case("Unique rows", integers(np.int64, 0, 9, 2000, 3), outputs=4, axis=0)
    case("TopK 1000 of detections", positive(1, 25200), i64(1000), outputs=2, weights=(1,))
    case("TopK 50 of vocabulary", f32(4, 50257), i64(50), outputs=2, weights=(1,))
    case("TopK 2 of experts", f32(1024, 8), i64(2), outputs=2, weights=(1,))
    case("TopK 5 of classes", f32(64, 1000), i64(5), outputs=2, weights=(1,))
    case("TopK sort", f32(16, 4096), i64(4096), outputs=2, weights=(1,))
    case("TopK sort one row", f32(1, 100000), i64(100000), outputs=2, weights=(1,))
    case("TopK first axis", f32(1000, 64), i64(10), outputs=2, weights=(1,), axis=0)
    corners = rng.random((1, 2000, 2)).astype(np.float32) * 600
    boxes = np.concatenate([corners, corners + rng.random((1, 2000, 2)).astype(np.float32) * 80 + 5], 2).astype(np.float32)
    case("NonMaxSuppression", boxes, positive(1, 4, 2000), number(200, np.int64), number(0.5), number(0.3), weights=(2, 3, 4))
    case("NonMaxSuppression classes", boxes, positive(1, 80, 2000), number(100, np.int64), number(0.5), number(0.9), weights=(2, 3, 4))


def contractions():
    case("MatMul tokens", f32(512, 768), f32(768, 768), weights=(1,))
    case("MatMul row", f32(1, 768), f32(768, 3072), weights=(1,))
    case("MatMul scores", f32(8, 12, 128, 64), f32(8, 12, 64, 128))
    case("MatMul both", f32(512, 512), f32(512, 512))
    case("MatMul vector", f32(1024, 1024), f32(1024))
    case("MatMul outer", f32(1024, 1), f32(1, 1024))
    case("MatMul f64", f64(256, 256), f64(256, 256))
    case("MatMul f16", f16(256, 256), f16(256, 256), tolerance=3e-3)
    case("MatMul int32", integers(np.int32, -9, 9, 256, 256), integers(np.int32, -9, 9, 256, 256))
    case("MatMul int64", integers(np.int64, -9, 9, 256, 256), integers(np.int64, -9, 9, 256, 256))
    case("Gemm", f32(256, 1024), f32(1000, 1024), f32(1000), weights=(1, 2), transB=1)
    case("Gemm transA", f32(1024, 256), f32(1024, 512), transA=1, alpha=0.5)
    for name, shapes_ in (
        ("bhid,bhjd->bhij", ((8, 12, 128, 64), (8, 12, 128, 64))),
        ("bihd,bjhd->bhij", ((8, 128, 12, 64), (8, 128, 12, 64))),
        ("bij,bjk->bik", ((8, 128, 128), (8, 128, 64))),
        ("bhwc,hkc->bhwk", ((8, 14, 14, 64), (14, 14, 64))),
        ("i,j->ij", ((1024,), (1024,))),
        ("ij->ji", ((1024, 1024),)),
        ("bii->bi", ((64, 128, 128),)),
        ("bij->b", ((8, 512, 128),)),
        ("bld,dr,or->blo", ((2, 128, 256), (256, 16), (256, 16))),
    ):
        case(f"Einsum {name}", *[f32(*s) for s in shapes_], equation=name)
    u8, s8 = integers(np.uint8, 0, 255, 256, 768), integers(np.int8, -128, 127, 768, 768)
    case("MatMulInteger", u8, s8, number(128, np.uint8), weights=(1, 2))
    case("QLinearMatMul", u8, number(0.02), number(128, np.uint8), s8, number(0.01), number(0, np.int8), number(4.0), number(128, np.uint8),
         weights=(1, 2, 3, 4, 5, 6, 7), tolerance=0.02)  # fmt: skip


def convolutions():
    for name, x, w, attributes in (
        ("3x3", f32(1, 64, 56, 56), f32(64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("1x1", f32(1, 256, 56, 56), f32(64, 256, 1, 1), {}),
        ("stem", f32(1, 3, 224, 224), f32(64, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
        ("strided", f32(1, 128, 56, 56), f32(128, 128, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("depthwise", f32(1, 96, 112, 112), f32(96, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 96}),
        ("depthwise 7x7", f32(1, 96, 56, 56), f32(96, 1, 7, 7), {"pads": [3, 3, 3, 3], "group": 96}),
        ("grouped", f32(1, 128, 56, 56), f32(128, 4, 3, 3), {"pads": [1, 1, 1, 1], "group": 32}),
        ("dilated", f32(1, 64, 56, 56), f32(64, 64, 3, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
        ("1d", f32(1, 80, 3000), f32(384, 80, 3), {"pads": [1, 1]}),
        ("1d dilated", f32(1, 64, 4000), f32(64, 64, 3), {"pads": [4, 4], "dilations": [4]}),
        ("1d depthwise", f32(8, 256, 200), f32(256, 1, 31), {"pads": [15, 15], "group": 256}),
        ("3d", f32(1, 16, 16, 56, 56), f32(32, 16, 3, 3, 3), {"pads": [1] * 6}),
        ("patches", f32(1, 3, 224, 224), f32(768, 3, 16, 16), {"strides": [16, 16]}),
    ):
        case(f"Conv {name}", x, w, f32(w.shape[0]), weights=(1, 2), **attributes)
    for name, x, w, attributes in (
        ("2x2", f32(1, 128, 28, 28), f32(128, 64, 2, 2), {"strides": [2, 2]}),
        ("4x4", f32(1, 128, 28, 28), f32(128, 64, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("1d", f32(1, 128, 200), f32(128, 64, 16), {"strides": [8], "pads": [4, 4]}),
        ("depthwise", f32(1, 64, 56, 56), f32(64, 1, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 64}),
    ):
        case(f"ConvTranspose {name}", x, w, weights=(1,), **attributes)
    q, w8 = integers(np.uint8, 0, 255, 1, 64, 56, 56), integers(np.int8, -127, 127, 64, 64, 3, 3)
    case("ConvInteger", q, integers(np.uint8, 0, 255, 64, 64, 3, 3), number(128, np.uint8), number(128, np.uint8), weights=(1, 2, 3), pads=[1, 1, 1, 1])
    case("QLinearConv", q, number(0.02), number(128, np.uint8), w8, number(0.01), number(0, np.int8), number(1.0), number(128, np.uint8),
         weights=(1, 2, 3, 4, 5, 6, 7), pads=[1, 1, 1, 1], tolerance=0.02)  # fmt: skip
    case("DeformConv", f32(1, 64, 28, 28), f32(64, 64, 3, 3), f32(1, 18, 28, 28), weights=(1,), pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    case("MaxPool 3x3", f32(*IMAGE), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    case("MaxPool 2x2", f32(*IMAGE), kernel_shape=[2, 2], strides=[2, 2])
    case("MaxPool 5x5", f32(1, 256, 20, 20), kernel_shape=[5, 5], pads=[2, 2, 2, 2])
    case("MaxPool 1d", f32(8, 128, 1000), kernel_shape=[2], strides=[2])
    case("MaxPool 3d", f32(1, 32, 16, 56, 56), kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    case("MaxPool u8", integers(np.uint8, 0, 255, *IMAGE), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    case("MaxPool indices", f32(*IMAGE), kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    case("AveragePool 3x3", f32(*IMAGE), kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    case("AveragePool 2x2", f32(*IMAGE), kernel_shape=[2, 2], strides=[2, 2])
    case("LpPool", f32(*IMAGE), kernel_shape=[2, 2], strides=[2, 2], p=2)
    case("GlobalAveragePool", f32(8, 512, 14, 14))
    case("GlobalMaxPool", f32(8, 512, 14, 14))
    places = np.arange(56 * 56, dtype=np.int64).reshape(56, 56)
    places = ((places // 56) * 2 * 112 + (places % 56) * 2)[None, None] + (np.arange(64, dtype=np.int64) * 112 * 112)[None, :, None, None]
    case("MaxUnpool", f32(1, 64, 56, 56), places, kernel_shape=[2, 2], strides=[2, 2])
    case("Col2Im", f32(1, 64 * 9, 3136), i64(56, 56), i64(3, 3), weights=(1, 2), pads=[1, 1, 1, 1])


def images():
    x = f32(1, 64, 64, 64)
    empty = np.zeros(0, np.float32)
    for name, mode, sizes, attributes in (
        ("nearest", "nearest", (128, 128), {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
        ("nearest half", "nearest", (128, 128), {}),
        ("linear", "linear", (128, 128), {"coordinate_transformation_mode": "pytorch_half_pixel"}),
        ("linear corners", "linear", (128, 128), {"coordinate_transformation_mode": "align_corners"}),
        ("linear odd", "linear", (100, 150), {}),
        ("linear down", "linear", (32, 32), {}),
        ("linear antialias", "linear", (24, 24), {"antialias": 1}),
        ("cubic", "cubic", (128, 128), {"cubic_coeff_a": -0.75}),
        ("cubic antialias", "cubic", (24, 24), {"antialias": 1}),
    ):
        case(f"Resize {name}", x, empty, empty, i64(1, 64, *sizes), weights=(1, 2, 3), mode=mode, **attributes)
    case("Resize linear nhwc", f32(1, 64, 64, 64), empty, number([1, 2, 2, 1]), weights=(1, 2), mode="linear")
    case("Resize u8 nearest", integers(np.uint8, 0, 255, 1, 3, 240, 320), empty, number([1, 1, 2, 2]), weights=(1, 2), mode="nearest")
    case("Upsample", x, number([1, 1, 2, 2]), weights=(1,), mode="nearest", opset=9)
    grid = unit(1, 64, 64, 2)
    for mode in ("linear", "nearest", "cubic"):
        case(f"GridSample {mode}", x, grid, mode=mode, opset=20)
    case("GridSample 3d", f32(1, 8, 16, 32, 32), unit(1, 16, 32, 32, 3), mode="linear", opset=20)
    case("GridSample reflection", x, grid, mode="linear", padding_mode="reflection", opset=20)
    corners = rng.random((100, 2)).astype(np.float32) * 400
    rois = np.concatenate([corners, corners + 20 + rng.random((100, 2)).astype(np.float32) * 200], 1).astype(np.float32)
    for mode in ("avg", "max"):
        case(f"RoiAlign {mode}", f32(1, 64, 50, 50), rois, np.zeros(100, np.int64), mode=mode, output_height=7, output_width=7, sampling_ratio=2, spatial_scale=0.0625)
    case("AffineGrid", f32(4, 2, 3), i64(4, 3, 128, 128), weights=(1,), opset=20)
    case("Det", f32(1000, 4, 4))


def recurrent():
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for name, length, batch, inputs, hidden, both in (("", 50, 1, 256, 256, False), ("both ways", 40, 4, 128, 128, True), ("small", 20, 1, 32, 32, False)):
            ways = 2 if both else 1
            x, w, r = f32(length, batch, inputs), f32(ways, gates * hidden, inputs, scale=0.05), f32(ways, gates * hidden, hidden, scale=0.05)
            more = {"direction": "bidirectional"} if both else {}
            case(f"{op} {name}".strip(), x, w, r, f32(ways, 2 * gates * hidden, scale=0.1), weights=(1, 2, 3), outputs=2, hidden_size=hidden, **more)


def quantised():
    x, q = f32(*TOKENS), integers(np.uint8, 0, 255, *TOKENS)
    case("QuantizeLinear", x, number(0.02), number(128, np.uint8), weights=(1, 2), tolerance=0.01)
    case("QuantizeLinear int8", x, number(0.02), number(3, np.int8), weights=(1, 2), tolerance=0.01)
    case("QuantizeLinear channels", f32(1, 64, 56, 56), positive(64), integers(np.int8, 0, 0, 64), weights=(1, 2), axis=1, tolerance=0.01)
    case("DequantizeLinear", q, number(0.02), number(128, np.uint8), weights=(1, 2))
    case("DequantizeLinear channels", integers(np.int8, -128, 127, 1, 64, 56, 56), positive(64), integers(np.int8, 0, 0, 64), weights=(1, 2), axis=1)
    case("DequantizeLinear blocks", integers(np.int8, -128, 127, 768, 768), positive(768, 24), weights=(1,), axis=1, block_size=32)
    case("DynamicQuantizeLinear", x, outputs=3, tolerance=0.01)
    a, b = integers(np.uint8, 0, 255, 1, 64, 56, 56), integers(np.uint8, 0, 255, 1, 64, 56, 56)
    one, zero = number(0.02), number(128, np.uint8)
    more = {"domain": MS, "tolerance": 0.01}
    case("QLinearAdd", a, one, zero, b, one, zero, number(0.04), zero, weights=(1, 2, 4, 5, 6, 7), **more)
    case("QLinearMul", a, one, zero, b, one, zero, number(0.04), zero, weights=(1, 2, 4, 5, 6, 7), **more)
    case("QLinearSigmoid", a, one, zero, number(1 / 256), number(0, np.uint8), weights=(1, 2, 3, 4), **more)
    case("QLinearLeakyRelu", a, one, zero, one, zero, weights=(1, 2, 3, 4), alpha=0.1, **more)
    case("QLinearGlobalAveragePool", a, one, zero, one, zero, weights=(1, 2, 3, 4), **more)
    case("QLinearConcat", one, zero, a, one, zero, b, one, zero, weights=(0, 1, 3, 4, 6, 7), axis=1, **more)
    case("QLinearSoftmax", integers(np.uint8, 0, 255, 8, 12, 64, 64), one, zero, number(1 / 256), number(0, np.uint8), axis=-1, weights=(1, 2, 3, 4), **(more | {"tolerance": 0.05}))


def attention():
    b, s, n, h = 2, 128, 12, 64
    hidden = n * h
    q, k, v = f32(b, s, hidden), f32(b, s, hidden), f32(b, s, hidden)
    case("MultiHeadAttention", q, k, v, domain=MS, num_heads=n)
    case("Attention fused", q, f32(hidden, 3 * hidden, scale=0.05), f32(3 * hidden), op="Attention", domain=MS, weights=(1, 2), num_heads=n)
    case("Attention", f32(b, n, s, h), f32(b, n, s, h), f32(b, n, s, h), opset=23)
    case("Attention causal", f32(b, n, s, h), f32(b, n, s, h), f32(b, n, s, h), opset=23, is_causal=1)
    past, total = 511, 512
    angle = np.outer(np.arange(1024), 1.0 / 10000 ** (np.arange(h // 2) / (h // 2)))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    case("GroupQueryAttention decode", f32(1, 1, 32 * h), f32(1, 1, 8 * h), f32(1, 1, 8 * h), f32(1, 8, past, h), f32(1, 8, past, h),
         np.array([past], np.int32), number(total, np.int32), cos, sin, weights=(6, 7, 8), outputs=3, domain=MS, num_heads=32, kv_num_heads=8, do_rotary=1)  # fmt: skip
    case("GroupQueryAttention prompt", f32(1, s, 32 * h), f32(1, s, 8 * h), f32(1, s, 8 * h), f32(1, 8, 0, h), f32(1, 8, 0, h),
         np.array([s - 1], np.int32), number(s, np.int32), cos, sin, weights=(6, 7, 8), outputs=3, domain=MS, num_heads=32, kv_num_heads=8, do_rotary=1)  # fmt: skip
    case("RotaryEmbedding", f32(b, n, s, h), np.tile(np.arange(s, dtype=np.int64), (b, 1)), cos, sin, weights=(2, 3), domain=MS)
    for op in ("Gelu", "QuickGelu"):
        case(f"{op} microsoft", f32(*TOKENS), op=op, domain=MS)
    for op in ("BiasGelu", "FastGelu"):
        case(op, f32(*TOKENS), f32(768), weights=(1,), domain=MS)
    case("SkipLayerNormalization", f32(*TOKENS), f32(*TOKENS), f32(768), f32(768), f32(768), weights=(2, 3, 4), domain=MS)
    case("SkipSimplifiedLayerNormalization", f32(*TOKENS), f32(*TOKENS), f32(768), weights=(2,), outputs=[True, False, False, True], domain=MS)
    case("SimplifiedLayerNormalization", f32(*TOKENS), f32(768), weights=(1,), axis=-1, opset=17)
    case("EmbedLayerNormalization", integers(np.int32, 0, 30521, 8, 128), integers(np.int32, 0, 1, 8, 128), f32(30522, 768), f32(512, 768), f32(2, 768),
         f32(768), f32(768), weights=(2, 3, 4, 5, 6), outputs=2, domain=MS)  # fmt: skip
    case("FusedMatMul", f32(8, 12, 128, 64), f32(8, 12, 128, 64), domain=MS, transB=1, alpha=0.125)
    case("FusedConv", f32(1, 64, 56, 56), f32(64, 64, 3, 3), f32(64), weights=(1, 2), domain=MS, activation="Relu", pads=[1, 1, 1, 1])
    for name, rows in (("row", 1), ("rows", 64)):
        case(f"MatMulNBits {name}", f32(rows, 1024), integers(np.uint8, 0, 255, 1024, 32, 16), positive(1024 * 32), weights=(1, 2),
             domain=MS, K=1024, N=1024, bits=4, block_size=32, tolerance=1e-3)  # fmt: skip
    case("DynamicQuantizeMatMul", f32(128, 768), integers(np.int8, -128, 127, 768, 768), number(0.02), weights=(1, 2), domain=MS, tolerance=1e-3)
    case("MatMulIntegerToFloat", integers(np.uint8, 0, 255, 128, 768), integers(np.int8, -128, 127, 768, 768), number(0.02), number(0.02),
         number(128, np.uint8), weights=(1, 2, 3, 4), domain=MS)  # fmt: skip


def signal():
    case("DFT real", f32(16, 1024, 1), None, number(1, np.int64), weights=(2,), opset=20)
    case("DFT complex", f32(16, 400, 2), None, number(1, np.int64), weights=(2,), opset=20)
    case("DFT inverse", f32(16, 480, 2), None, number(1, np.int64), weights=(2,), opset=20, inverse=1, tolerance=1e-3)
    case("DFT large prime", f32(16, 1009, 2), None, number(1, np.int64), weights=(2,), opset=20, tolerance=1e-3)
    case("DFT one long row", f32(1, 65536, 2), None, number(1, np.int64), weights=(2,), opset=20)
    case("STFT", f32(1, 16000), number(160, np.int64), positive(400), number(400, np.int64), weights=(1, 2, 3), opset=17, tolerance=1e-3)
    case("HannWindow", number(4096, np.int64), opset=17)
    case("MelWeightMatrix", number(80, np.int64), number(400, np.int64), number(16000, np.int64), number(0.0), number(8000.0), opset=17)


def classical():
    from contrib_ml import forest

    case("TreeEnsembleRegressor", f32(100, 20), domain=ML, n_targets=1, **forest(100, 6, 20, 1, "target"))
    case("TreeEnsembleRegressor row", f32(1, 20), domain=ML, n_targets=1, **forest(100, 6, 20, 1, "target"))
    case("TreeEnsembleClassifier", f32(100, 20), outputs=2, domain=ML, classlabels_int64s=[0, 1, 2], **forest(100, 6, 20, 3, "class"))
    case("LinearClassifier", f32(1000, 50), outputs=2, domain=ML, opset=1, coefficients=f32(500).tolist(), intercepts=f32(10).tolist(), classlabels_ints=list(range(10)), post_transform="SOFTMAX")
    case("LinearRegressor", f32(1000, 50), domain=ML, opset=1, coefficients=f32(50).tolist(), intercepts=[0.1])
    case("Scaler", f32(10000, 50), domain=ML, opset=1, offset=f32(50).tolist(), scale=positive(50).tolist())
    case("Normalizer", f32(10000, 50), domain=ML, opset=1, norm="L2")
    case("Imputer", f32(10000, 50), domain=ML, opset=1, imputed_value_floats=[1.0] * 50, replaced_value_float=float("nan"))
    case("Binarizer", f32(10000, 50), domain=ML, opset=1, threshold=0.1)
    case("SVMRegressor", f32(200, 20), domain=ML, opset=1, coefficients=f32(100).tolist(), support_vectors=f32(2000).tolist(), kernel_params=[0.05, 0.0, 3.0], kernel_type="RBF", n_supports=100, rho=[0.4])
    case("OneHotEncoder", integers(np.int64, 0, 9, 10000), domain=ML, opset=1, cats_int64s=list(range(10)), zeros=1)
    case("LabelEncoder", integers(np.int64, 0, 999, 10000), domain=ML, opset=2, keys_int64s=list(range(1000)), values_int64s=list(range(1000, 2000)))
    case("ArrayFeatureExtractor", f32(10000, 50), i64(1, 7, 30), domain=ML, opset=1)


def all_cases():
    global rng
    for family in (pointwise, binary, reductions, shapes, indexing, contractions, convolutions, images, recurrent, quantised, attention, signal, classical):
        rng = np.random.default_rng(3)  # a family's numbers do not depend on the others
        family()
    return CASES


def model_of(item):
    """The ONNX model of one case, and what it is given by name."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(item.inputs)]
    wanted = [True] * item.outputs if isinstance(item.outputs, int) else item.outputs
    results = [f"y{i}" if want else "" for i, want in enumerate(wanted)]
    node = helper.make_node(item.op, names, results, domain=item.domain, **item.attributes)
    values, initializers, given = [], [], {}
    for i, x in enumerate(item.inputs):
        if x is None:
            continue
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        if i in item.weights:
            initializers.append(helper.make_tensor(names[i], kind, x.shape, x.tobytes(), raw=True))
        else:
            values.append(helper.make_tensor_value_info(names[i], kind, x.shape))
            given[names[i]] = x
    outputs = [helper.make_empty_tensor_value_info(r) for r in results if r]
    graph = helper.make_graph([node], "op", values, outputs, initializers)
    opsets = {"": 21, MS: 1, ML: 3} | {item.domain: item.opset}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()], ir_version=10), given
