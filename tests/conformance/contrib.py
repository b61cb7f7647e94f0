"""Tests of operators that have no public suite: com.microsoft and ai.onnx.ml, over a grid of attributes and shapes.

    python tests/conformance/contrib.py DATA [name...]

Writes one folder a test (model.onnx, test_data_set_0, tolerance) below DATA/node, laid out as the public suite is, with
onnxruntime's results as what is expected. tests/conformance/contrib.sh runs them on both engines.
"""

import sys

import binary_trees
import numpy as np
import unpooling
from contrib_case import MS, TESTS, case, integers, normal, restart, rng, write
from contrib_ml import models, trees
from onnx import helper

# ---- attention ----------------------------------------------------------------------------------------------


def caches(positions, half):
    angle = np.outer(np.arange(positions), 1.0 / 10000 ** (np.arange(half) / half))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rotary():
    cos, sin = caches(32, 4)
    for interleaved in (0, 1):
        case(f"rotary_{interleaved}", "RotaryEmbedding", [normal(2, 3, 16), np.array([5], np.int64), cos, sin], interleaved=interleaved)
        case(f"rotary_ids_{interleaved}", "RotaryEmbedding",
             [normal(2, 2, 3, 8), integers(0, 31, (2, 3), np.int64), cos, sin], interleaved=interleaved)  # fmt: skip
        case(f"rotary_part_{interleaved}", "RotaryEmbedding",
             [normal(2, 3, 32), integers(0, 31, (2, 3), np.int64), cos, sin],
             interleaved=interleaved, num_heads=2, rotary_embedding_dim=8)  # fmt: skip
    for layout, section in ((0, [2, 1, 1]), (1, [2, 1, 1]), (0, [4, 0, 0]), (1, [1, 2, 1])):
        for interleaved in (0, 1):
            where = integers(0, 31, (3, 2, 3), np.int64)
            case(f"mrotary_{layout}_{section[0]}_{interleaved}", "MRotaryEmbedding", [normal(2, 3, 16), where, cos, sin], num_heads=2, rotary_embedding_dim=8,
                 mrope_section=section, mrope_layout=layout, interleaved=interleaved)  # fmt: skip
            case(f"mrotary_part_{layout}_{section[0]}_{interleaved}", "MRotaryEmbedding", [normal(2, 2, 3, 12), where, cos, sin],
                 mrope_section=section, mrope_layout=layout, interleaved=interleaved, num_heads=2, rotary_embedding_dim=8, scale=0.5)  # fmt: skip


def attention():
    for past in (0, 3):
        for mask in (None, "lengths", "both", "keys", "full"):
            for one_way in (0, 1):
                if past and mask in ("both", "full"):
                    continue
                b, s, n, h = 2, 4, 2, 8
                hidden, total = n * h, s + past
                m = {None: None, "lengths": np.array([total - 1, total], np.int32),
                     "both": np.array([total - 1, total, 0, 1], np.int32),
                     "keys": integers(0, 1, (b, total), np.int32),
                     "full": integers(0, 1, (b, s, total), np.int32)}[mask]  # fmt: skip
                if mask in ("keys", "full"):
                    m[..., 0] = 1
                case(f"attention_{past}_{mask}_{one_way}", "Attention",
                     [normal(b, s, hidden), normal(hidden, 3 * hidden, scale=0.3), normal(3 * hidden), m,
                      normal(2, b, n, past, h) if past else None],
                     2 if past else 1, num_heads=n, unidirectional=one_way)  # fmt: skip
    case("attention_sizes_bias", "Attention",
         [normal(2, 3, 8), normal(8, 8 + 8 + 12, scale=0.3), normal(28), None, None, normal(2, 2, 3, 3)],
         num_heads=2, qkv_hidden_sizes=[8, 8, 12], scale=0.2)  # fmt: skip
    case("qattention", "QAttention",
         [integers(0, 255, (2, 3, 8), np.uint8), integers(0, 255, (8, 24), np.uint8), normal(24),
          np.array(0.02, np.float32), np.array(0.03, np.float32), np.array([2, 3], np.int32),
          np.array(120, np.uint8), np.array(130, np.uint8)],
         num_heads=2)  # fmt: skip


def multi_head():
    b, s, t, n, h = 2, 3, 5, 2, 8
    hidden = n * h
    case("mha_plain", "MultiHeadAttention", [normal(b, s, hidden), normal(b, t, hidden), normal(b, t, hidden)], num_heads=n)
    case("mha_bias", "MultiHeadAttention",
         [normal(b, s, hidden), normal(b, t, hidden), normal(b, t, hidden), normal(3 * hidden)], num_heads=n, scale=0.4)  # fmt: skip
    case("mha_packed", "MultiHeadAttention", [normal(b, s, n, 3, h)], num_heads=n)
    case("mha_packed_kv", "MultiHeadAttention", [normal(b, s, hidden), normal(b, t, n, 2, h)], num_heads=n)
    case("mha_cross_heads", "MultiHeadAttention", [normal(b, s, hidden), normal(b, n, t, h), normal(b, n, t, h)], num_heads=n)
    case("mha_v_wider", "MultiHeadAttention", [normal(b, s, hidden), normal(b, t, hidden), normal(b, t, n * 12)], num_heads=n)
    for kind, mask in (("lengths", np.array([3, 5], np.int32)), ("keys", np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], np.int32)),
                       ("full", np.tril(np.ones((b, s, t), np.int32), 1))):  # fmt: skip
        case(f"mha_mask_{kind}", "MultiHeadAttention",
             [normal(b, s, hidden), normal(b, t, hidden), normal(b, t, hidden), None, mask], num_heads=n)  # fmt: skip
    for bias_batch in (1, b):
        case(f"mha_scores_{bias_batch}", "MultiHeadAttention",
             [normal(b, s, hidden), normal(b, t, hidden), normal(b, t, hidden), None, None, normal(bias_batch, n, s, t)],
             num_heads=n)  # fmt: skip
    for one_way in (0, 1):
        case(f"mha_past_{one_way}", "MultiHeadAttention",
             [normal(b, s, hidden), normal(b, s, hidden), normal(b, s, hidden), None, None, None,
              normal(b, n, 4, h), normal(b, n, 4, h)],
             3, num_heads=n, unidirectional=one_way)  # fmt: skip
    for mask in (None, integers(0, 1, (b, 5), np.int32) | np.array([1, 0, 0, 0, 0], np.int32)):
        for bias in (None, normal(b, n, 1, 5)):
            for projected in (None, normal(3 * hidden)):
                tag = "_".join(k for k, v in (("mask", mask), ("scores", bias), ("bias", projected)) if v is not None)
                case(f"decoder_{tag}", "DecoderMaskedMultiHeadAttention",
                     [normal(b, 1, hidden), normal(b, 1, hidden), normal(b, 1, hidden), mask, bias, normal(b, n, 9, h), normal(b, n, 9, h),
                      np.array([4], np.int32), None, None, projected],
                     3, num_heads=n, past_present_share_buffer=1)  # fmt: skip
    case("decoder_cross", "DecoderMaskedMultiHeadAttention", [normal(b, 1, hidden), normal(b, n, t, h), normal(b, n, t, h)], num_heads=n)
    case("mha_one_way", "MultiHeadAttention", [normal(b, s, hidden)] * 3, num_heads=n, unidirectional=1)


def group_query():
    n, h = 4, 16
    cos, sin = caches(64, h // 2)
    for kv in (1, 2, 4):
        for step in ("prompt", "decode", "chunk"):
            for variant in ("plain", "rotary", "interleaved", "packed", "window", "softcap", "smooth", "bias", "sink", "scale"):
                if kv != 2 and variant not in ("plain", "rotary", "packed"):
                    continue
                b = 1 if step == "chunk" else 2
                s = {"prompt": 5, "decode": 1, "chunk": 3}[step]
                past = 0 if step == "prompt" else 6
                total = s + past
                lengths = np.array([total - 1] * b, np.int32)
                if step == "decode":
                    lengths[0] -= 2
                q, k, v = normal(b, s, n * h), normal(b, s, kv * h), normal(b, s, kv * h)
                ks, vs = normal(b, kv, past, h), normal(b, kv, past, h)
                if step == "decode":  # beyond its length a row's cache holds nothing
                    ks[0, :, past - 2:] = 0
                    vs[0, :, past - 2:] = 0
                inputs = [q, k, v, ks, vs, lengths, np.array(total, np.int32)]
                attributes = {"num_heads": n, "kv_num_heads": kv}
                if variant in ("rotary", "interleaved", "packed"):
                    inputs += [cos, sin]
                    attributes |= {"do_rotary": 1, "rotary_interleaved": int(variant == "interleaved")}
                if variant == "packed":
                    inputs[:3] = [np.concatenate([q, k, v], 2), None, None]
                if variant == "window":
                    attributes["local_window_size"] = 3
                if variant == "softcap":
                    attributes["softcap"] = 2.0
                if variant == "smooth":
                    attributes["smooth_softmax"] = 1
                if variant == "scale":
                    attributes["scale"] = 0.7
                if variant == "bias":
                    inputs += [None, None, None, normal(b, n, s, total)]
                    attributes["softcap"] = 3.0
                if variant == "sink":
                    inputs += [None, None, None, None, normal(n)]
                case(f"gqa_{kv}_{step}_{variant}", "GroupQueryAttention", inputs, 3, given=(6,), **attributes)


# ---- products and convolutions ------------------------------------------------------------------------------


def blocks():
    for bits in (4, 8):
        for block in (16, 32, 128):
            for k in (64, 72):
                for zero in ("none", "packed"):
                    n, m = 6, 3
                    count = -(-k // block)
                    packed = integers(0, 255, (n, count, block * bits // 8), np.uint8)
                    scales = normal(n, count, scale=0.1)
                    if packed.shape[1] * block != k:  # what pads the last block is zero
                        packed[:, -1, (k - (count - 1) * block) * bits // 8:] = 0
                    inputs = [normal(m, k), packed, scales.reshape(-1) if bits == 4 else scales]
                    if zero == "packed":
                        inputs.append(integers(0, 255, (n, -(-count * bits // 8)), np.uint8))
                    case(f"matmul_nbits_{bits}_{block}_{k}_{zero}", "MatMulNBits", inputs, given=(1, 2, 3), K=k, N=n,
                         bits=bits, block_size=block, tolerance=(1e-3, 1e-3))  # fmt: skip
                    if k % block == 0:  # the data are rounded to bytes by blocks
                        case(f"matmul_nbits_bytes_{bits}_{block}_{k}_{zero}", "MatMulNBits", inputs, given=(1, 2, 3), K=k,
                             N=n, bits=bits, block_size=block, accuracy_level=4, tolerance=(1e-3, 1e-3))  # fmt: skip
    case("gather_blocks", "GatherBlockQuantized",
         [integers(0, 255, (8, 32), np.uint8), integers(0, 7, (2, 3), np.int64), normal(8, 4, scale=0.1)],
         block_size=16, bits=4, quantize_axis=1, gather_axis=0)  # fmt: skip
    case("gather_blocks_zero", "GatherBlockQuantized",
         [integers(0, 255, (8, 32), np.uint8), integers(0, 7, (2, 3), np.int64), normal(8, 4, scale=0.1),
          integers(0, 255, (8, 2), np.uint8)],
         block_size=16, bits=4, quantize_axis=1, gather_axis=0)  # fmt: skip


def products():
    case("fused_matmul", "FusedMatMul", [normal(2, 3, 4), normal(2, 5, 4)], alpha=0.5, transB=1)
    case("fused_matmul_a", "FusedMatMul", [normal(2, 4, 3), normal(2, 4, 5)], transA=1)
    case("fused_matmul_batch", "FusedMatMul", [normal(3, 2, 4), normal(4, 2, 5)], transBatchA=1, transBatchB=1)
    case("fused_matmul_batch_trans", "FusedMatMul", [normal(4, 2, 3), normal(5, 2, 4)], transBatchA=1, transBatchB=1, transA=1, transB=1)
    for kind, extra in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Sigmoid", {}), ("Tanh", {})):
        case(f"fused_gemm_{kind}", "FusedGemm", [normal(3, 4), normal(4, 5), normal(5)], activation=kind, alpha=0.7, beta=0.3, **extra)
    for kind, params in (("Relu", None), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", None), ("Sigmoid", None)):
        extra = {"activation_params": params} if params else {}
        case(f"fused_conv_{kind}", "FusedConv", [normal(1, 4, 6, 7), normal(6, 2, 3, 3), normal(6)], activation=kind, group=2, pads=[1, 1, 1, 1], **extra)
    case("fused_conv_sum", "FusedConv", [normal(2, 4, 6, 7), normal(6, 4, 1, 1), normal(6), normal(2, 6, 6, 7)], activation="Relu")
    for op in ("NhwcConv", "NhwcFusedConv"):
        attributes = dict(group=2, pads=[1, 0, 1, 2], strides=[1, 2], kernel_shape=[3, 3]) | ({"activation": "Relu"} if "Fused" in op else {})

        def channels_second(names, results, op=op, attributes=attributes):
            order = lambda x, y, perm: helper.make_node("Transpose", [x], [y], perm=perm)  # noqa: E731
            added = names[3:]
            return [order(x, f"{x}_channels_second", [0, 3, 1, 2]) for x in (names[0], *added)] + [
                helper.make_node(op.removeprefix("Nhwc"), [f"{names[0]}_channels_second", *names[1:3], *(f"{x}_channels_second" for x in added)],
                                 ["y_channels_second"], domain=MS if "Fused" in op else "", **attributes),
                order("y_channels_second", results[0], [0, 2, 3, 1])]  # fmt: skip

        added = [normal(2, 6, 4, 6)] if "Fused" in op else []
        case(op, op, [normal(2, 6, 7, 4), normal(6, 2, 3, 3), normal(6), *added], reference=channels_second, **attributes)
    case("transpose_matmul", "TransposeMatMul", [normal(2, 4, 3), normal(2, 5, 4)], transA=1, transB=1, alpha=0.5)
    for axis in (0, 1, -1):
        case(f"expand_dims_{axis}", "ExpandDims", [normal(2, 3), np.array(axis, np.int32)], given=(1,))
    for metric in ("euclidean", "sqeuclidean"):
        case(f"cdist_{metric}", "CDist", [normal(5, 7), normal(4, 7)], metric=metric)
    for kind in (0, 1):
        for block in (16, 64):
            case(f"matmul_bnb4_{kind}_{block}", "MatMulBnb4",
                 [normal(3, 64), integers(0, 255, (64 * 6 // 2,), np.uint8), abs(normal(64 * 6 // block))], given=(1, 2),
                 K=64, N=6, block_size=block, quant_type=kind)  # fmt: skip
    regions = np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [-0.2, 0.3, 0.5, 1.3], [0.9, 0.8, 0.1, 0.2]], np.float32)
    for mode in ("bilinear", "nearest"):
        for size in ((3, 4), (1, 5)):
            case(f"crop_and_resize_{mode}_{size[0]}", "CropAndResize",
                 [normal(2, 3, 7, 9), regions, np.array([0, 1, 1, 0], np.int32), np.array(size, np.int32)], given=(3,), mode=mode,
                 extrapolation_value=0.5)  # fmt: skip
    case("max_roi_pool", "MaxRoiPool",
         [normal(2, 3, 9, 11), np.array([[0, 0, 0, 10, 8], [1, 2, 1, 7, 9], [0, 4, 4, 4, 4], [1, 9, 7, 20, 20]], np.float32)],
         domain="", pooled_shape=[3, 4], spatial_scale=0.9)  # fmt: skip
    for mode in ("avg", "max"):  # ai.onnx's, with regions of several images
        corners = np.array([[0, 0, 10, 8], [3, 1, 15, 9], [2, 6, 7, 20], [-3, 1, 4, 4], [5, 5, 5.5, 6]], np.float32)
        case(f"roi_align_{mode}", "RoiAlign", [normal(3, 5, 9, 11), corners, np.array([2, 0, 1, 1, 2], np.int64)], domain="",
             mode=mode, output_height=3, output_width=4, sampling_ratio=2, spatial_scale=0.5)  # fmt: skip
    for at, pads in enumerate(([-1, 2, 1, -3], [0, -2, 3, 0], [2, 0, -3, 6])):  # what negative pads leave repeats
        case(f"pad_wrap_negative_{at}", "Pad", [normal(4, 6), np.array(pads, np.int64)], domain="", version=19, given=(1,), mode="wrap")
    case("inverse", "Inverse", [normal(3, 5, 5) + 3 * np.eye(5, dtype=np.float32)])
    case("inverse_2d", "Inverse", [np.array([[0, 2, 1], [1, 0, 0], [3, 1, 0]], np.float32)])
    case("trilu", "Trilu", [normal(2, 3, 4), np.array(1, np.int64)], upper=1)
    for op, dims in (("Gelu", 1), ("QuickGelu", 1), ("FastGelu", 2), ("BiasGelu", 2)):
        case(op.lower(), op, [normal(2, 3, 8), normal(8)][:dims])
    case("skip_layer_norm", "SkipLayerNormalization",
         [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)], [True, False, False, True])  # fmt: skip
    case("skip_simplified", "SkipSimplifiedLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8)], [True, False, False, True])
    case("skip_broadcast", "SkipLayerNormalization", [normal(2, 3, 8), normal(1, 3, 8), normal(8), normal(8)])
    case("simplified", "SimplifiedLayerNormalization", [normal(2, 3, 8), normal(8)], domain="", axis=-1)
    ids, kinds = integers(0, 9, (2, 4), np.int32), integers(0, 1, (2, 4), np.int32)
    tables = [normal(10, 8), normal(6, 8), normal(2, 8), normal(8), normal(8)]
    case("embed", "EmbedLayerNormalization", [ids, kinds, *tables, np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)], 2)
    case("embed_plain", "EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, tables[3], tables[4]], 2)
    case("embed_positions", "EmbedLayerNormalization", [ids, kinds, *tables, None, integers(0, 5, (2, 4), np.int32)], 2)


    table = lambda *shape: integers(0, 255, shape, np.uint8)  # noqa: E731
    number = lambda v, kind: np.array(v, kind)  # noqa: E731
    scales = [number(0.01 * (i + 1), np.float32) for i in range(5)]
    zeros = [number(120 + i, np.uint8) for i in range(5)]
    for segments in (False, True):
        case(f"qembed_{segments}", "QEmbedLayerNormalization",
             [ids, kinds if segments else None, table(10, 8), table(6, 8), table(2, 8) if segments else None, table(8), table(8),
              np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32), *(v if segments or i != 2 else None for i, v in enumerate(scales)),
              *(v if segments or i != 2 else None for i, v in enumerate(zeros))],
             2, types=None)  # fmt: skip
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (0, 1):
                grid = (rng.random((2, 4, 5, 2)) * 2.6 - 1.3).astype(np.float32)
                case(f"grid_sample_{mode}_{padding}_{align}", "GridSample", [normal(2, 3, 6, 7), grid], mode=mode, padding_mode=padding,
                     align_corners=align, tolerance=(1e-3, 1e-4))  # fmt: skip
    for mode in ("constant", "reflect", "edge"):
        for row in (False, True):
            pads = np.array([0, 1, 2, 1, 0, 1], np.int64)
            value = [np.array(0.5 if not row else [0.5], np.float32)] if mode == "constant" else []
            case(f"pad_{mode}_{row}", "Pad", [normal(2, 4, 5), pads[None] if row else pads, *value], mode=mode)
    for kind, past in (("none", False), ("none", True), ("silu", True)):
        case(f"causal_conv_{kind}_{past}", "CausalConvWithState",
             [normal(2, 4, 6), normal(4, 1, 3), normal(4) if kind == "silu" else None, normal(2, 4, 2) if past else None], 2,
             activation=kind)  # fmt: skip
    case("causal_conv_dilated", "CausalConvWithState", [normal(2, 4, 6), normal(4, 1, 3), normal(4), normal(2, 4, 4)], 2, dilation=2)
    case("causal_conv_channels_last", "CausalConvWithState", [normal(2, 6, 4), normal(4, 1, 3), normal(4), normal(2, 2, 4)], 2, channels_last=1)
    case("scaled_silu", "ScaledSiLU", [normal(2, 3, 8)], alpha=1.5)
    case("scaled_silu_input", "ScaledSiLU", [normal(2, 3, 8), np.array(0.7, np.float32)], alpha=1.5)
    case("gated_add", "GatedAdd", [normal(2, 3, 8), normal(2, 3, 8), normal(2, 3, 1)])
    for kind in ("silu", "sigmoid"):
        case(f"gated_rms_norm_{kind}", "GatedRMSNorm", [normal(2, 3, 8), normal(4), normal(2, 3, 8)], activation=kind, epsilon=1e-4)

    def split_up(names, results):
        return [helper.make_node("MatMul", names[:2], ["product"]), helper.make_node("FastGelu", ["product", *names[2:]], results, domain=MS)]

    case("gemm_fast_gelu", "GemmFastGelu", [normal(2, 3, 4), normal(4, 5), normal(5)], reference=split_up)


def experts():
    t, e, h, n = 6, 4, 16, 8
    for kind in ("relu", "gelu", "silu", "identity"):
        for normalise in (0, 1):
            case(f"moe_{kind}_{normalise}", "MoE", [normal(t, h), normal(t, e), normal(e, n, h), normal(e, n), normal(e, h, n), normal(e, h)],
                 k=2, activation_type=kind, normalize_routing_weights=normalise, tolerance=(1e-3, 1e-3))  # fmt: skip
    swiglu = {"activation_type": "swiglu", "normalize_routing_weights": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 3.0}
    for fusion in (1, 2):
        case(f"moe_swiglu_{fusion}", "MoE", [normal(1, t, h), normal(t, e), normal(e, 2 * n, h), normal(e, 2 * n), normal(e, h, n), normal(e, h)],
             k=2, swiglu_fusion=fusion, tolerance=(1e-3, 1e-3), **swiglu)  # fmt: skip
    for bits in (4, 8):
        for block in (0, 16):
            if bits == 8 and block:
                continue  # onnxruntime 1.31.1 leaves its own documented formula here, by up to 1
            h, n = 32, 16
            code = lambda *shape: integers(0, 255, shape[:-1] + (shape[-1] * bits // 8,), np.uint8)  # noqa: B023, E731
            scale = lambda out, k: abs(normal(e, out, *((k // block,) if block else ()), scale=0.02))  # noqa: B023, E731
            extra = {"block_size": block} if block else {}
            case(f"qmoe_{bits}_{block}", "QMoE",
                 [normal(t, h), normal(t, e), code(e, 2 * n, h), scale(2 * n, h), normal(e, 2 * n), code(e, h, n), scale(h, n), normal(e, h)],
                 k=2, expert_weight_bits=bits, swiglu_fusion=1, tolerance=(2e-2, 2e-2), given=(2, 3, 4, 5, 6, 7), **extra, **swiglu)  # fmt: skip


# ---- quantised ----------------------------------------------------------------------------------------------


def quantised():
    one = lambda v: np.array(v, np.float32)  # noqa: E731
    step = (0.0, 1.01)  # a number that lies between two codes may become either
    for dtype in (np.uint8, np.int8):
        low, high, z = (0, 255, 120) if dtype == np.uint8 else (-128, 127, -3)
        # Weights of 7 bits: on processors without VNNI onnxruntime adds two products of u8 and s8 in 16 bits, which saturate.
        code_range = (low, high) if dtype == np.uint8 else (-64, 63)
        x, y = integers(low, high, (2, 4, 6, 6), dtype), integers(low, high, (2, 4, 6, 6), dtype)
        zero = np.array(z, dtype)
        tag = dtype.__name__
        for op in ("QLinearAdd", "QLinearMul"):
            case(f"{op}_{tag}", op, [x, one(0.02), zero, y[:1, :, :1], one(0.03), np.array(z + 4, dtype), one(0.05), zero], tolerance=step)
        case(f"QLinearSigmoid_{tag}", "QLinearSigmoid", [x, one(0.02), zero, one(1 / 256), np.array(low, dtype)], given=(1, 2, 3, 4), tolerance=step)
        case(f"QLinearLeakyRelu_{tag}", "QLinearLeakyRelu", [x, one(0.02), zero, one(0.03), zero], given=(1, 2, 3, 4), alpha=0.2, tolerance=step)
        for last in (0, 1):
            case(f"QLinearGlobalAveragePool_{tag}_{last}", "QLinearGlobalAveragePool", [x, one(0.02), zero, one(0.01), zero], channels_last=last, tolerance=step)
            case(f"QLinearAveragePool_{tag}_{last}", "QLinearAveragePool", [x, one(0.02), zero, one(0.02), zero],
                 channels_last=last, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], count_include_pad=last, tolerance=step)  # fmt: skip
        case(f"QLinearConcat_{tag}", "QLinearConcat", [one(0.04), zero, x, one(0.02), zero, y[:, :2], one(0.05), np.array(z + 4, dtype)], axis=1, tolerance=step)
        case(f"QLinearSoftmax_{tag}", "QLinearSoftmax", [x, one(0.02), zero, one(1 / 256), np.array(low, dtype)], axis=-1, opset=13, given=(1, 2, 3, 4), tolerance=step)
        case(f"QLinearWhere_{tag}", "QLinearWhere", [x > z, x, one(0.02), zero, y, one(0.03), np.array(z + 4, dtype), one(0.04), zero], tolerance=step)
        weights = integers(low, high, (6, 2, 3, 3), dtype)
        for last in (0, 1):
            case(f"QLinearConv_{tag}_{last}", "QLinearConv",
                 [x.transpose(0, 2, 3, 1).copy() if last else x, one(0.02), zero, weights, abs(normal(6, scale=0.03)) + np.float32(0.01),
                  np.full(6, 0 if dtype == np.int8 else z, dtype), one(0.5), zero, integers(-99, 99, (6,), np.int32)],
                 given=(3, 4, 5), channels_last=last, group=2, pads=[1, 0, 1, 2], strides=[1, 2], kernel_shape=[3, 3], tolerance=step)  # fmt: skip
        a, b = integers(low, high, (3, 8), dtype if dtype == np.uint8 else np.uint8) if dtype == np.uint8 else integers(0, 255, (3, 8), np.uint8), integers(*code_range, (8, 5), dtype)
        case(f"DynamicQuantizeMatMul_{tag}", "DynamicQuantizeMatMul", [normal(3, 8), b, normal(5, scale=0.02), np.full(5, z, dtype), normal(5)])
        case(f"DynamicQuantizeMatMul_one_{tag}", "DynamicQuantizeMatMul", [normal(2, 3, 8), b, normal(1, scale=0.02)])
        case(f"MatMulIntegerToFloat_{tag}", "MatMulIntegerToFloat",
             [a, b, one(0.02), normal(5, scale=0.02), np.array(100, np.uint8), np.full(5, z, dtype), normal(5)])  # fmt: skip
        case(f"QGemm_{tag}", "QGemm",
             [a, one(0.02), np.array(100, np.uint8), b, one(0.03), np.array(z, dtype), integers(-99, 99, (5,), np.int32), one(0.2), np.array(128, np.uint8)],
             tolerance=step)  # fmt: skip
        case(f"QGemm_float_{tag}", "QGemm", [a, one(0.02), np.array(100, np.uint8), b.T.copy(), normal(5, scale=0.1), np.full(5, z, dtype)], transB=1, alpha=0.5)


def recurrent():
    steps, b, n, h = 4, 2, 5, 3
    for direction, count in (("forward", 1), ("bidirectional", 2)):
        for dtype in (np.uint8, np.int8):
            for each in (False, True):
                low, high, z = (0, 255, 126) if dtype == np.uint8 else (-64, 63, 0)
                shape = (count, 4 * h) if each else (count,)
                quantities = lambda: (rng.random(shape, np.float32) * np.float32(0.004) + np.float32(0.002), np.full(shape, z, dtype))  # noqa: B023, E731
                # onnxruntime rounds X and H to bytes at every step.
                case(f"quantised_lstm_{direction}_{dtype.__name__}_{each}", "DynamicQuantizeLSTM",
                     [normal(steps, b, n), integers(low, high, (count, n, 4 * h), dtype), integers(low, high, (count, h, 4 * h), dtype),
                      normal(count, 8 * h, scale=0.2), None, normal(count, b, h, scale=0.3), normal(count, b, h, scale=0.3), None,
                      *quantities(), *quantities()],
                     3, given=(1, 2, 3, 8, 9, 10, 11), hidden_size=h, direction=direction, tolerance=(0.02, 0.02))  # fmt: skip


def main():
    folder, names = sys.argv[1], sys.argv[2:]
    for family in (rotary, attention, multi_head, group_query, blocks, products, experts, quantised, recurrent, trees, models):
        restart()  # a family's numbers do not depend on the others
        family()
    for more in (unpooling, binary_trees):
        more.cases(case, np.random.default_rng(7))
    refused = []
    for test in TESTS:
        if names and not any(n in test[0] for n in names):
            continue
        try:
            write(folder, test)
        except Exception as e:  # onnxruntime has no kernel for it, or refuses the case
            refused.append((test[0], str(e).replace("\n", " ")[:160]))
    for name, why in refused:
        print(f"onnxruntime refuses {name}: {why}")
    print(f"{len(TESTS) - len(refused)} tests written, {len(refused)} refused")


if __name__ == "__main__":
    main()
