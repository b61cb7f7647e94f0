"""Small versions of known architectures, with symbolic sizes, as functions that answer with a Net: those of sequences are
in sequence_architectures.py, the table is at the end.

They are not the ten models of this folder: what they have in common with those is that nothing was written for them.
"""

import numpy as np
from net import Net, onnx
from sequence_architectures import conformer, experts, rotary, state_space, t5, translator, wavenet, whisper


# ---- images ----


def inverted_residual(net, x, width, inner, out, kernel, stride, act, squeeze=None, gain=1.0):
    """squeeze is (inner channels, activation, gate) of squeeze and excitation."""
    y = net.conv_norm(x, width, inner, 1, act) if inner != width else x
    y = net.conv_norm(y, inner, inner, kernel, act, stride, group=inner)
    y = net.squeeze_excite(y, inner, *squeeze) if squeeze else y
    y = net.conv_norm(y, inner, out, 1, gain=gain)
    return net.Add(y, x) if stride == 1 and width == out else y


SMALL_EFFICIENTNET = ((16, 1, 3, 1), (24, 4, 3, 2), (24, 4, 5, 1), (40, 6, 5, 2), (40, 6, 3, 1))


def efficientnet(name="efficientnet", multiple=8, stem=16, blocks=SMALL_EFFICIENTNET, head=64, classes=10):
    """Inverted residuals with squeeze and excitation; any image that is a multiple of `multiple`.
    A block is (channels, times as many within, kernel, stride)."""
    net = Net(name, opset=14)
    x = net.input("image", ["batch", 3, f"{multiple}*h", f"{multiple}*w"])
    x = net.conv_norm(x, 3, stem, 3, net.silu, 2)
    width = stem
    for out, expand, kernel, stride in blocks:
        squeeze = max(width // 4, 1), net.silu, net.Sigmoid
        x = inverted_residual(net, x, width, width * expand, out, kernel, stride, net.silu, squeeze)
        width = out
    x = net.Flatten(net.GlobalAveragePool(net.silu(net.conv(x, width, head, [1, 1]))))
    net.output(net.Gemm(x, net.weight(head, classes), net.weight(classes)), "logits")
    return net


def densenet(name="densenet", multiple=16, stem=16, blocks=(4, 4), growth=12, bottleneck=24, classes=10):
    """Every layer reads the concatenation of all before it; normalisation comes first, so that it folds into nothing."""
    net = Net(name, opset=12)
    x = net.input("image", ["batch", 3, f"{multiple}*h", f"{multiple}*w"])
    x = net.conv_norm(x, 3, stem, 7, net.Relu, 2)
    x = net.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = stem
    for number, layers in enumerate(blocks):
        for _ in range(layers):
            y = net.conv(net.Relu(net.batch_norm(x, width)), width, bottleneck, [1, 1])
            y = net.conv(net.Relu(net.batch_norm(y, bottleneck)), bottleneck, growth, [3, 3])
            x = net.Concat(x, y, axis=1)
            width += growth
        if number + 1 < len(blocks):
            x = net.conv(net.Relu(net.batch_norm(x, width)), width, width // 2, [1, 1])
            x = net.AveragePool(x, kernel_shape=[2, 2], strides=[2, 2])
            width //= 2
    x = net.ReduceMean(net.Relu(net.batch_norm(x, width)), axes=[2, 3], keepdims=0)
    net.output(net.linear(x, width, classes), "logits")
    return net


def swin(name="swin", image=("16*h", "16*w"), window=4, width=32, stages=((2, 2, 2),), expand=2, merged=1, classes=None):
    """Shifted windows over an image of any size: rolls, window masks made from sizes, relative position tables.
    A stage is (blocks, heads, shift of every second block); behind the first `merged` of them four pixels become one."""
    net = Net(name)
    x = net.input("image", ["batch", 3, *image])
    x = net.conv(x, 3, width, [4, 4], strides=[4, 4], pads=[0, 0, 0, 0])
    batch, rows, columns = net.size(x, 0), net.size(x, 2), net.size(x, 3)
    x = net.layer_norm(net.Transpose(x, perm=[0, 2, 3, 1]), width)

    def roll(y, shift, axis):
        first = net.Slice(y, [shift], [2**62], [axis])
        return net.Concat(first, net.Slice(y, [0], [shift], [axis]), axis=axis)

    def windows(y, channels):
        parts = net.Concat([-1], net.Div(rows, [window]), [window], net.Div(columns, [window]), [window], [channels], axis=0)
        y = net.Transpose(net.Reshape(y, parts), perm=[0, 1, 3, 2, 4, 5])
        return net.Reshape(y, [-1, window * window, channels])

    def regions(size, shift):
        """0, 1 or 2 for every row: which of the regions that a shift brings together it is from."""
        at = net.Range(np.int64(0), net.Squeeze(size), np.int64(1))
        late = net.Cast(net.GreaterOrEqual(at, net.Sub(size, [window])), to=onnx.TensorProto.FLOAT)
        last = net.Cast(net.GreaterOrEqual(at, net.Sub(size, [shift])), to=onnx.TensorProto.FLOAT)
        return net.Add(late, last)

    def block(x, heads, shift):
        start, mask = x, None
        y = net.layer_norm(x, width)
        if shift:
            y = roll(roll(y, shift, 1), shift, 2)
            region = net.Add(net.Mul(net.Unsqueeze(regions(rows, shift), [1]), 3.0), net.Unsqueeze(regions(columns, shift), [0]))
            region = windows(net.Unsqueeze(region, [0, 3]), 1)
            other = net.Sub(net.Transpose(region, perm=[0, 2, 1]), region)
            mask = net.Where(net.Equal(other, 0.0), 0.0, -100.0)
        y = windows(y, width)
        qkv = net.Reshape(net.linear(y, width, 3 * width), [0, 0, 3, heads, width // heads])
        q, k, v = net.Split(net.Transpose(qkv, perm=[2, 0, 3, 1, 4]), count=3, axis=0, num_outputs=3)
        q, k, v = (net.Squeeze(part, [0]) for part in (q, k, v))
        at = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
        apart = at[:, :, None] - at[:, None, :] + window - 1
        table = net.Gather(net.weight((2 * window - 1) ** 2, heads), apart[0] * (2 * window - 1) + apart[1])
        bias = net.Unsqueeze(net.Transpose(table, perm=[2, 0, 1]), [0])
        scores = net.Add(net.MatMul(net.Mul(q, float((width // heads) ** -0.5)), net.Transpose(k, perm=[0, 1, 3, 2])), bias)
        if mask:
            tokens = window * window
            count = net.size(mask, 0)
            scores = net.Reshape(scores, net.Concat([-1], count, [heads, tokens, tokens], axis=0))
            scores = net.Add(scores, net.Unsqueeze(mask, [0, 2]))
            scores = net.Reshape(scores, [-1, heads, tokens, tokens])
        y = net.linear(net.joined(net.MatMul(net.Softmax(scores, axis=-1), v), width), width, width)
        parts = net.Concat(batch, net.Div(rows, [window]), net.Div(columns, [window]), [window, window, width], axis=0)
        y = net.Transpose(net.Reshape(y, parts), perm=[0, 1, 3, 2, 4, 5])
        y = net.Reshape(y, net.Concat(batch, rows, columns, [width], axis=0))
        if shift:
            y = roll(roll(y, -shift, 1), -shift, 2)
        x = net.Add(start, y)
        return net.Add(x, net.feed_forward(net.layer_norm(x, width), width, expand * width))

    for stage, (blocks, heads, shift) in enumerate(stages):
        for number in range(blocks):
            x = block(x, heads, shift if number % 2 else 0)
        if stage < merged:
            # Every second row and column.
            corners = [net.Slice(net.Slice(x, [i], [2**62], [1], [2]), [j], [2**62], [2], [2]) for j in (0, 1) for i in (0, 1)]
            x = net.layer_norm(net.Concat(*corners, axis=-1), 4 * width)
            x = net.linear(x, 4 * width, 2 * width, bias=False)
            rows, columns, width = net.Div(rows, [2]), net.Div(columns, [2]), 2 * width
    x = net.ReduceMean(net.layer_norm(x, width) if classes else x, [1, 2], keepdims=0)
    net.output(net.linear(x, width, classes) if classes else x, "logits" if classes else "features")
    return net


def split_stage(net, x, width_in, width, count=1, residual=True):
    """Half of the channels goes through `count` blocks; what each of them makes is read in the end."""
    half = width // 2
    parts = net.Split(net.conv_norm(x, width_in, width, 1, net.silu), [half, half], count=2, axis=1)
    for _ in range(count):
        y = net.conv_norm(net.conv_norm(parts[-1], half, half, 3, net.silu), half, half, 3, net.silu)
        parts.append(net.Add(parts[-1], y) if residual else y)
    return net.conv_norm(net.Concat(*parts, axis=1), (2 + count) * half, width, 1, net.silu)


def pooling_pyramid(net, x, width):
    pools = [net.conv_norm(x, width, width // 2, 1, net.silu)]
    for _ in range(3):
        pools.append(net.MaxPool(pools[-1], kernel_shape=[5, 5], pads=[2] * 4))
    return net.conv_norm(net.Concat(*pools, axis=1), 2 * width, width, 1, net.silu)


def twice_as_large(net, x):
    return net.Resize(x, None, np.array([1, 1, 2, 2], np.float32), mode="nearest",
                      coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip


def yolo():
    """A detector to its boxes: pooling pyramid, nearest upsampling, grids made from sizes, and suppression."""
    net = Net("yolo")
    x = net.input("image", ["batch", 3, "32*h", "32*w"])
    x = net.conv_norm(net.conv_norm(x, 3, 8, 3, net.silu, 2), 8, 16, 3, net.silu, 2)
    fine = split_stage(net, net.conv_norm(x, 16, 32, 3, net.silu, 2), 32, 32)
    coarse = pooling_pyramid(net, split_stage(net, net.conv_norm(fine, 32, 64, 3, net.silu, 2), 64, 64), 64)
    fine = net.conv_norm(net.Concat(twice_as_large(net, coarse), fine, axis=1), 96, 32, 3, net.silu)
    boxes, scores = [], []
    for level, width, stride in ((fine, 32, 8), (coarse, 64, 16)):
        head = net.conv(level, width, 4 + 3, [1, 1])
        rows, columns = (net.Squeeze(net.size(head, axis)) for axis in (2, 3))
        y, x = (net.Cast(net.Range(np.int64(0), n, np.int64(1)), to=onnx.TensorProto.FLOAT) for n in (rows, columns))
        grid = net.Concat(net.Unsqueeze(rows, [0]), net.Unsqueeze(columns, [0]), axis=0)
        y, x = net.Expand(net.Unsqueeze(y, [1]), grid), net.Expand(net.Unsqueeze(x, [0]), grid)
        centre = net.Unsqueeze(net.Reshape(net.Concat(net.Unsqueeze(x, [0]), net.Unsqueeze(y, [0]), axis=0), [2, -1]), [0])
        head = net.Reshape(head, [0, 7, -1])
        position, extent, classes = net.Split(head, [2, 2, 3], count=3, axis=1)
        position = net.Mul(net.Add(net.Sigmoid(position), centre), float(stride))
        boxes.append(net.Concat(position, net.Mul(net.Exp(extent), float(stride)), axis=1))
        scores.append(net.Sigmoid(classes))
    boxes = net.Transpose(net.Concat(*boxes, axis=2), perm=[0, 2, 1])
    scores = net.Concat(*scores, axis=2)
    kept = net.NonMaxSuppression(boxes, scores, np.int64(20), np.float32(0.5), np.float32(0.55), center_point_box=1)
    of_image, of_class, of_box = (net.Gather(kept, np.int64(i), axis=1) for i in range(3))
    pairs = net.Concat(net.Unsqueeze(of_image, [1]), net.Unsqueeze(of_box, [1]), axis=1)
    net.output(net.GatherND(boxes, pairs), "boxes")
    net.output(of_class, "classes", "i64")
    net.output(scores, "scores")
    return net


def volumes():
    """3-D convolutions down and up again, with instance normalisation, over any volume of even sizes."""
    net = Net("volumes")
    x = net.input("scan", ["batch", 1, "4*d", "4*h", "4*w"])

    def block(y, width_in, width_out, stride=1):
        y = net.conv(y, width_in, width_out, [3, 3, 3], strides=[stride] * 3)
        return net.LeakyRelu(net.InstanceNormalization(y, net.positive(width_out), net.weight(width_out)), alpha=0.01)

    first = block(x, 1, 8)
    second = block(first, 8, 16, 2)
    deep = net.MaxPool(second, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    deep = net.conv(deep, 16, 16, [1, 3, 3], group=4, dilations=[1, 2, 2], pads=[0, 2, 2, 0, 2, 2])
    up = net.Resize(deep, None, np.array([1, 1, 2, 2, 2], np.float32), mode="linear")
    y = block(net.Concat(up, second, axis=1), 32, 16)
    y = net.ConvTranspose(y, net.weight(16, 8, 2, 2, 2), net.weight(8), strides=[2, 2, 2])
    y = block(net.Concat(y, first, axis=1), 16, 8)
    net.output(net.Softmax(net.conv(y, 8, 3, [1, 1, 1]), axis=1), "labels")
    return net


def super_resolution():
    """Channels become pixels; the colour is what a cubic resize makes of it."""
    net = Net("super_resolution", opset=13)
    x = net.input("image", ["batch", 3, "h", "w"])
    y = net.Tanh(net.conv(x, 3, 16, [5, 5]))
    y = net.PRelu(net.conv(y, 16, 8, [3, 3]), net.positive(8, 1, 1))
    y = net.DepthToSpace(net.conv(y, 8, 27, [3, 3]), blocksize=3, mode="CRD")
    large = net.Resize(x, None, np.array([1, 1, 3, 3], np.float32), mode="cubic", cubic_coeff_a=-0.75)
    net.output(net.Clip(net.Add(y, large), 0.0, 1.0), "large")
    return net


def spatial_transformer():
    """A small network finds an affine map, by which the image is read."""
    net = Net("spatial_transformer", opset=20)
    x = net.input("image", ["batch", 3, "h", "w"])
    y = net.GlobalMaxPool(net.Relu(net.conv(x, 3, 8, [3, 3])))
    theta = net.linear(net.Flatten(y), 8, 6)
    theta = net.Add(net.Mul(theta, 0.1), np.array([1, 0, 0, 0, 1, 0], np.float32))
    grid = net.AffineGrid(net.Reshape(theta, [-1, 2, 3]), net.Shape(x), align_corners=0)
    net.output(net.GridSample(x, grid, mode="linear", padding_mode="border", align_corners=0), "aligned")
    return net


# ---- others ----


def graph_network():
    """Messages along edges, gathered, and added up where they arrive."""
    net, width = Net("graph_network"), 16
    x = net.input("nodes", ["n", width])
    edges = net.input("edges", [2, "m"], "i64", below=3)
    source, target = (net.Squeeze(part, [0]) for part in net.Split(edges, count=2, axis=0, num_outputs=2))
    for _ in range(2):
        pair = net.Concat(net.Gather(x, source), net.Gather(x, target), axis=1)
        message = net.Relu(net.linear(pair, 2 * width, width))
        zeros = net.Mul(x, 0.0)
        at = net.Expand(net.Unsqueeze(target, [1]), net.Shape(message))
        total = net.ScatterElements(zeros, at, message, axis=0, reduction="add")
        most = net.ScatterElements(zeros, at, message, axis=0, reduction="max")
        x = net.Add(x, net.linear(net.Concat(total, most, axis=1), 2 * width, width))
    net.output(net.ReduceLogSumExp(x, [0], keepdims=0), "graph")
    net.output(net.LpNormalization(x, axis=1, p=2), "embedding")
    return net


def quantised():
    """A network as quantisers write it: scales around every operator, weights in int8 by channel."""
    net = Net("quantised", opset=13)
    x = net.input("image", ["batch", 3, "4*h", "4*w"])

    def around(y, scale, zero=128):
        scale, zero = net.const(np.float32(scale)), net.const(np.uint8(zero))
        return net.DequantizeLinear(net.QuantizeLinear(y, scale, zero), scale, zero)

    def weight(*shape):
        # 7 bits, as quantisers choose for processors without VNNI: there onnxruntime's sums of u8 * s8 saturate at 16 bits.
        values = net.rng.integers(-63, 64, shape).astype(np.int8)
        scales = net.rng.uniform(0.5, 1, shape[0]).astype(np.float32) / (20 * np.sqrt(np.prod(shape[1:])))
        return net.DequantizeLinear(values, scales.astype(np.float32), np.zeros(shape[0], np.int8), axis=0)

    y = around(x, 0.03)
    y = net.Conv(y, weight(16, 3, 3, 3), net.weight(16), pads=[1] * 4, strides=[2, 2])
    y = start = around(net.Relu(y), 0.02, 0)
    y = around(net.Relu(net.Conv(y, weight(16, 1, 3, 3), net.weight(16), pads=[1] * 4, group=16)), 0.02, 0)
    y = around(net.Conv(y, weight(16, 16, 1, 1), net.weight(16)), 0.03)
    y = around(net.Add(y, start), 0.03)
    y = around(net.Flatten(net.GlobalAveragePool(y)), 0.02)
    y = net.Gemm(y, weight(10, 16), net.weight(10), transB=1)
    net.output(y, "logits")
    return net


def diffusion():
    """A block of a diffusion model: time embedding, group norm, and attention over pixels and over a text."""
    net, width = Net("diffusion"), 32
    x = net.input("latent", ["batch", 4, "2*h", "2*w"])
    time = net.input("time", ["batch"])
    text = net.input("text", ["batch", "words", 24])
    rates = np.exp(-np.log(10000.0) * np.arange(16) / 16).astype(np.float32)
    angles = net.Mul(net.Unsqueeze(net.Mul(time, 100.0), [1]), rates[None])
    about = net.linear(net.silu(net.linear(net.Concat(net.Cos(angles), net.Sin(angles), axis=-1), 32, 64)), 64, width)

    def group_norm(y, channels, groups=8):
        shape = net.Shape(y)
        y = net.InstanceNormalization(net.Reshape(y, [0, groups, -1]), np.ones(groups, np.float32), np.zeros(groups, np.float32))
        y = net.Reshape(y, shape)
        return net.Add(net.Mul(y, net.positive(channels, 1, 1)), net.weight(channels, 1, 1))

    def residual(y):
        z = net.conv(net.silu(group_norm(y, width)), width, width, [3, 3])
        z = net.Add(z, net.Unsqueeze(net.linear(net.silu(about), width, width), [2, 3]))
        return net.Add(y, net.conv(net.silu(group_norm(z, width)), width, width, [3, 3]))

    def attend(y, memory, memory_width):
        q, k, v = (net.heads(net.linear(net.layer_norm(y, width), width, width, False), 4, 8),
                   net.heads(net.linear(memory, memory_width, width, False), 4, 8),
                   net.heads(net.linear(memory, memory_width, width, False), 4, 8))  # fmt: skip
        return net.Add(y, net.linear(net.joined(net.attention(q, k, v, 8), width), width, width))

    y = start = net.conv(x, 4, width, [3, 3])
    y = residual(net.conv(y, width, width, [3, 3], strides=[2, 2], pads=[0, 0, 1, 1]))
    shape = net.Shape(y)
    z = net.Transpose(net.Reshape(y, [0, 0, -1]), perm=[0, 2, 1])
    z = attend(attend(z, z, width), text, 24)
    first, gate = net.Split(net.linear(net.layer_norm(z, width), width, 64), count=2, axis=-1, num_outputs=2)
    z = net.Add(z, net.linear(net.Mul(first, net.gelu(gate)), 32, width))
    y = net.Add(y, net.Reshape(net.Transpose(z, perm=[0, 2, 1]), shape))
    up = net.Concat(net.Slice(net.Shape(start), [0], [2]), net.Slice(net.Shape(start), [2], [4]), axis=0)
    y = residual(net.Add(net.Resize(y, None, None, up, mode="nearest"), start))
    net.output(net.conv(net.silu(group_norm(y, width)), width, 4, [3, 3]), "noise")
    return net


# name: (function, --dim, sizes of three cases)
ARCHITECTURES = {
    "efficientnet": (efficientnet, "batch=1..16,h=1..32,w=1..32", [(1, 4, 4), (3, 1, 2), (2, 7, 5)]),
    "densenet": (densenet, "batch=1..16,h=1..32,w=1..32", [(1, 2, 2), (3, 1, 3), (2, 3, 1)]),
    "swin": (swin, "batch=1..16,h=1..16,w=1..16", [(1, 1, 1), (3, 2, 3), (2, 4, 2)]),
    "yolo": (yolo, "batch=1..16,h=1..16,w=1..16", [(1, 2, 2), (3, 1, 2), (2, 3, 4)]),
    "volumes": (volumes, "batch=1..4,d=1..16,h=1..16,w=1..16", [(1, 1, 2, 3), (2, 3, 1, 1), (1, 2, 4, 5)]),
    "super_resolution": (super_resolution, "batch=1..4,h=1..64,w=1..64", [(1, 1, 1), (3, 7, 5), (2, 16, 33)]),
    "spatial_transformer": (spatial_transformer, "batch=1..16,h=2..64,w=2..64", [(1, 8, 8), (3, 5, 9), (2, 31, 2)]),
    "t5": (t5, "batch=1..8,length=1..128,words=1..128", [(1, 7, 1), (3, 1, 5), (2, 33, 40)]),
    "whisper": (whisper, "batch=1..8,frames=1..120,new=1..16,past=0..24", [(1, 40, 4, 0), (3, 17, 1, 11), (2, 120, 3, 21)]),
    "rotary": (rotary, "batch=1..8,length=1..128", [(1, 1), (3, 7), (2, 65)]),
    "wavenet": (wavenet, "batch=1..8,time=1..4096", [(1, 1), (3, 50), (2, 333)]),
    "translator": (translator, "length=1..64,batch=1..16,words=1..64", [(1, 1, 1), (5, 3, 7), (17, 2, 4)]),
    "experts": (experts, "batch=1..16,length=1..64", [(1, 1), (3, 5), (2, 37)]),
    "state_space": (state_space, "batch=1..16,time=1..512", [(1, 1), (3, 7), (2, 65)]),
    "conformer": (conformer, "batch=1..16,time=1..512", [(1, 1), (3, 7), (2, 50)]),
    "graph_network": (graph_network, "n=3..10000,m=0..100000", [(3, 0), (5, 17), (100, 333)]),
    "quantised": (quantised, "batch=1..16,h=1..64,w=1..64", [(1, 1, 1), (3, 5, 7), (2, 16, 16)]),
    "diffusion": (diffusion, "batch=1..8,h=1..32,w=1..32,words=1..77", [(1, 1, 1, 1), (3, 3, 5, 7), (2, 8, 8, 20)]),
}

# Sizes at which tests/bench/race.py times them, behind the first of the cases above.
RACES = {
    "efficientnet": [(1, 7, 7), (4, 7, 7)],
    "densenet": [(1, 7, 7)],
    "swin": [(1, 4, 4), (3, 4, 4)],
    "yolo": [(1, 8, 8), (2, 10, 10)],
    "volumes": [(1, 4, 8, 8)],
    "super_resolution": [(1, 32, 48)],
    "spatial_transformer": [(1, 32, 32)],
    "t5": [(1, 64, 32), (4, 33, 40)],
    "whisper": [(1, 120, 1, 11), (2, 120, 3, 21)],
    "rotary": [(1, 64), (2, 128)],
    "wavenet": [(1, 1000)],
    "translator": [(17, 2, 24), (32, 4, 32)],
    "experts": [(1, 33), (2, 64)],
    "state_space": [(1, 65), (4, 200)],
    "conformer": [(1, 100), (4, 200)],
    "graph_network": [(1000, 5000)],
    "quantised": [(1, 32, 32)],
    "diffusion": [(1, 16, 16, 20), (2, 16, 16, 40)],
}


def arrays_of(net, dims, sizes, number):
    """{input: array} of the network at these sizes, in the order of its dims."""
    named = dict(zip([part.split("=")[0] for part in dims.split(",")], sizes))
    rng = np.random.default_rng(number)
    arrays = {}
    for value in net.inputs:
        shape = []
        for dim in value.type.tensor_type.shape.dim:
            factors = dim.dim_param.split("*") if dim.dim_param else [str(dim.dim_value)]
            shape.append(int(np.prod([named[factor] if factor in named else int(factor) for factor in factors])))
        if value.type.tensor_type.elem_type == 1:
            arrays[value.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            arrays[value.name] = rng.integers(0, net.below[value.name], shape)
    return arrays
