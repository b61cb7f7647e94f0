"""Small versions of known architectures, with symbolic sizes, as functions that answer with a Net; the table is at the end.

They are not the ten models of this folder: what they have in common with those is that nothing was written for them.
"""

import numpy as np
from net import Net, helper, onnx


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


# ---- sequences ----


def t5(name="t5", vocabulary=50, width=32, heads=4, depth=8, inner=48, layers=2, buckets=8):
    """Encoder and decoder with relative positions in buckets that are computed from the lengths."""
    net = Net(name)
    source = net.input("source", ["batch", "length"], "i64", below=vocabulary)
    mask = net.input("mask", ["batch", "length"], "i64")
    target = net.input("target", ["batch", "words"], "i64", below=vocabulary)
    table = net.weight(vocabulary, width)
    f32 = onnx.TensorProto.FLOAT

    def positions(length, both_ways):
        at = net.Range(np.int64(0), net.Squeeze(length), np.int64(1))
        apart = net.Sub(net.Unsqueeze(at, [0]), net.Unsqueeze(at, [1]))
        if both_ways:
            half = buckets // 2
            side = net.Mul(net.Cast(net.Greater(apart, [0]), to=onnx.TensorProto.INT64), [half])
            distance = net.Abs(apart)
        else:
            half, side = buckets, None
            distance = net.Neg(net.Min(apart, [0]))
        exact = half // 2
        log = net.Log(net.Div(net.Cast(net.Max(distance, [1]), to=f32), float(exact)))
        far = net.Cast(net.Mul(net.Div(log, float(np.log(128 / exact))), float(half - exact)), to=onnx.TensorProto.INT64)
        far = net.Min(net.Add(far, [exact]), [half - 1])
        bucket = net.Where(net.Less(distance, [exact]), distance, far)
        bucket = net.Add(bucket, side) if side else bucket
        return net.Unsqueeze(net.Transpose(net.Gather(net.weight(buckets, heads), bucket), perm=[2, 0, 1]), [0])

    def attend(x, memory, bias):
        q, k, v = (net.heads(net.linear(y, width, heads * depth, bias=False), heads, depth) for y in (x, memory, memory))
        y = net.joined(net.attention(q, k, v, depth, bias), heads * depth)
        return net.linear(y, heads * depth, width, bias=False)

    def feed_forward(x):
        y = net.rms_norm(x, width)
        y = net.Mul(net.gelu(net.linear(y, width, inner, bias=False)), net.linear(y, width, inner, bias=False))
        return net.Add(x, net.linear(y, inner, width, bias=False))

    hidden = net.Mul(net.Sub(1.0, net.Cast(mask, to=f32)), float(np.finfo(np.float32).min))
    hidden = net.Unsqueeze(hidden, [1, 2])
    x, bias = net.Gather(table, source), net.Add(positions(net.size(source, 1), True), hidden)
    for _ in range(layers):
        y = net.rms_norm(x, width)
        x = feed_forward(net.Add(x, attend(y, y, bias)))
    memory = net.rms_norm(x, width)
    x, length = net.Gather(table, target), net.size(target, 1)
    causal = net.Trilu(net.Expand(net.const(np.float32(-1e9)), net.Concat(length, length, axis=0)), np.int64(1), upper=1)
    bias = net.Add(positions(length, False), causal)
    for _ in range(layers):
        y = net.rms_norm(x, width)
        x = net.Add(x, attend(y, y, bias))
        x = feed_forward(net.Add(x, attend(net.rms_norm(x, width), memory, hidden)))
    net.output(net.MatMul(net.rms_norm(x, width), net.Transpose(table, perm=[1, 0])), "logits")
    return net


def whisper_encoder(net, audio, bands=20, width=32, heads=2, inner=64, layers=2, positions=64):
    x = net.gelu(net.conv(audio, bands, width, [3]))
    x = net.gelu(net.conv(x, width, width, [3], strides=[2]))
    x = net.Transpose(x, perm=[0, 2, 1])
    x = net.Add(x, net.Slice(net.weight(positions, width), [0], net.size(x, 1), [0]))
    for _ in range(layers):
        x = net.pre_norm_layer(x, width, heads, inner, key_bias=False)
    return net.layer_norm(x, width)


def causal_bias(net, before, new):
    """[new, before + new]: minus infinity where a key is later than the query. Both are tensors of one element."""
    rows = net.Add(net.Range(np.int64(0), net.Squeeze(new), np.int64(1)), before)
    columns = net.Range(np.int64(0), net.Squeeze(net.Add(before, new)), np.int64(1))
    return net.Where(net.Greater(net.Unsqueeze(columns, [0]), net.Unsqueeze(rows, [1])), float("-inf"), 0.0)


def whisper():
    """Audio encoder, and one step of a decoder whose self-attention cache is an input and an output."""
    net, width, heads, depth = Net("whisper", opset=17), 32, 2, 16
    audio = net.input("mel", ["batch", 20, "frames"])
    tokens = net.input("tokens", ["batch", "new"], "i64", below=60)
    past = [net.input(f"past.{i}.{part}", ["batch", heads, "past", depth]) for i in range(2) for part in ("key", "value")]
    memory = whisper_encoder(net, audio)
    before, new = net.size(past[0], 2), net.size(tokens, 1)
    x = net.Add(net.Gather(net.weight(60, width), tokens), net.Slice(net.weight(40, width), before, net.Add(before, new), [0]))
    causal = causal_bias(net, before, new)

    def project(x, bias=True):
        return net.heads(net.linear(x, width, width, bias), heads, depth)

    for i in range(2):
        y = net.layer_norm(x, width)
        key = net.Concat(past[2 * i], project(y, False), axis=2)
        value = net.Concat(past[2 * i + 1], project(y), axis=2)
        net.output(key, f"present.{i}.key")
        net.output(value, f"present.{i}.value")
        y = net.attention(project(y), key, value, depth, causal)
        x = net.Add(x, net.linear(net.joined(y, width), width, width))
        y = net.layer_norm(x, width)
        y = net.attention(project(y), project(memory, False), project(memory), depth)
        x = net.Add(x, net.linear(net.joined(y, width), width, width))
        x = net.Add(x, net.feed_forward(net.layer_norm(x, width), width, 64))
    last = net.Gather(net.layer_norm(x, width), np.int64(-1), axis=1)
    net.output(net.ArgMax(net.linear(last, width, 60), axis=-1, keepdims=0), "token", "i64")
    return net


def rotary_angles(net, positions, depth):
    """(cosines, sines) of positions [batch, length], for heads."""
    rates = (10000.0 ** (-np.arange(0, depth, 2) / depth)).astype(np.float32)
    angles = net.MatMul(net.Unsqueeze(net.Cast(positions, to=onnx.TensorProto.FLOAT), [2]), rates[None])
    angles = net.Unsqueeze(net.Concat(angles, angles, axis=-1), [1])
    return net.Cos(angles), net.Sin(angles)


def rotary_layer(net, x, width, heads, groups, depth, inner, angles, bias, past=None):
    """(x, keys, values) behind a layer with grouped queries and gated units; past is (keys, values) of what was before."""
    cos, sin = angles

    def rotate(x):
        half = net.Concat(net.Neg(net.Slice(x, [depth // 2], [2**62], [3])), net.Slice(x, [0], [depth // 2], [3]), axis=-1)
        return net.Add(net.Mul(x, cos), net.Mul(half, sin))

    def repeat(x):
        shape = net.Concat(net.Slice(net.Shape(x), [0], [2]), [heads // groups], net.Slice(net.Shape(x), [2], [4]), axis=0)
        return net.Reshape(net.Expand(net.Unsqueeze(x, [2]), shape), [0, heads, -1, depth])

    y = net.rms_norm(x, width)
    q = rotate(net.heads(net.linear(y, width, heads * depth, False), heads, depth))
    k = rotate(net.heads(net.linear(y, width, groups * depth, False), groups, depth))
    v = net.heads(net.linear(y, width, groups * depth, False), groups, depth)
    if past:
        k, v = (net.Concat(old, new, axis=2) for old, new in zip(past, (k, v)))
    y = net.joined(net.attention(q, repeat(k), repeat(v), depth, bias), heads * depth)
    x = net.Add(x, net.linear(y, heads * depth, width, False))
    y = net.rms_norm(x, width)
    y = net.Mul(net.silu(net.linear(y, width, inner, False)), net.linear(y, width, inner, False))
    return net.Add(x, net.linear(y, inner, width, False)), k, v


def rotary():
    """Rotary positions from position ids, grouped queries, gated units, a causal window."""
    net, width, heads, groups, depth = Net("rotary"), 48, 6, 2, 8
    tokens = net.input("tokens", ["batch", "length"], "i64", below=40)
    at = net.input("positions", ["batch", "length"], "i64", below=100)
    length = net.size(tokens, 1)
    one = helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [1.0])
    ones = net.ConstantOfShape(net.Concat(length, length, axis=0), value=one)
    seen = net.Sub(net.Trilu(ones, upper=0), net.Trilu(ones, np.int64(-5), upper=0))
    bias = net.Where(net.Cast(seen, to=onnx.TensorProto.BOOL), 0.0, -1e9)
    angles = rotary_angles(net, at, depth)
    x = net.Gather(net.weight(40, width), tokens)
    for _ in range(2):
        x, _, _ = rotary_layer(net, x, width, heads, groups, depth, 96, angles, bias)
    net.output(net.linear(net.rms_norm(x, width), width, 40, False), "logits")
    return net


def wavenet():
    """Dilated causal convolutions over time with gates, skips and a condition."""
    net, width = Net("wavenet"), 16
    x = net.input("audio", ["batch", 1, "time"])
    speaker = net.input("speaker", ["batch"], "i64", below=4)
    about = net.Unsqueeze(net.Gather(net.weight(4, 2 * width), speaker), [2])
    x = net.conv(x, 1, width, [1])
    skips = None
    for dilation in (1, 2, 4, 8, 16):
        y = net.conv(x, width, 2 * width, [2], dilations=[dilation], pads=[dilation, 0])
        kept, gate = net.Split(net.Add(y, about), count=2, axis=1, num_outputs=2)
        y = net.Mul(net.Tanh(kept), net.Sigmoid(gate))
        skip = net.conv(y, width, 24, [1])
        skips = net.Add(skips, skip) if skips else skip
        x = net.Add(x, net.conv(y, width, width, [1]))
    y = net.conv(net.Relu(net.conv(net.Relu(skips), 24, 24, [1])), 24, 32, [1])
    net.output(net.LogSoftmax(y, axis=1), "log_probability")
    return net


def translator():
    """A bidirectional GRU over sentences of different lengths, and an LSTM that attends to what it found."""
    net, width = Net("translator", opset=14), 24
    source = net.input("source", ["length", "batch"], "i64", below=30)
    lengths = net.input("lengths", ["batch"], "i64", below=3)
    target = net.input("target", ["words", "batch"], "i64", below=30)
    i32 = onnx.TensorProto.INT32
    lengths = net.Cast(net.Min(net.Add(lengths, [1]), net.size(source, 0)), to=i32)
    x = net.Gather(net.weight(30, width), source)
    y, last = net.GRU(x, net.weight(2, 3 * 16, width), net.weight(2, 3 * 16, 16), net.weight(2, 6 * 16), lengths,
                      count=2, hidden_size=16, direction="bidirectional", linear_before_reset=1)  # fmt: skip
    memory = net.Reshape(net.Transpose(y, perm=[2, 0, 1, 3]), [0, 0, 32])
    start = net.Unsqueeze(net.Reshape(net.Transpose(last, perm=[1, 0, 2]), [0, 32]), [0])
    z = net.Gather(net.weight(30, width), target)
    z, _, _ = net.LSTM(z, net.weight(1, 4 * 32, width), net.weight(1, 4 * 32, 32), net.weight(1, 8 * 32), None, start, start,
                       count=3, hidden_size=32)  # fmt: skip
    query = net.Transpose(net.Squeeze(z, [1]), perm=[1, 0, 2])
    scores = net.MatMul(query, net.Transpose(memory, perm=[0, 2, 1]))
    at = net.Unsqueeze(net.Range(np.int64(0), net.Squeeze(net.size(source, 0)), np.int64(1)), [0])
    padding = net.GreaterOrEqual(at, net.Unsqueeze(net.Cast(lengths, to=onnx.TensorProto.INT64), [1]))
    scores = net.Where(net.Unsqueeze(padding, [1]), -1e9, scores)
    context = net.MatMul(net.Softmax(scores, axis=-1), memory)
    net.output(net.linear(net.Tanh(net.linear(net.Concat(context, query, axis=-1), 64, 32)), 32, 30), "logits")
    return net


def experts():
    """A mixture of experts in both usual forms: gates scattered over all experts, and rows sent to those that chose them."""
    net, width, count, chosen = Net("experts"), 16, 6, 2
    x = net.input("tokens", ["batch", "length", width])
    rows = net.Reshape(x, [-1, width])
    values, experts = net.TopK(net.linear(rows, width, count), [chosen], count=2, axis=-1)
    gates = net.Softmax(values, axis=-1)
    everywhere = net.Expand(net.const(np.float32(0)), net.Concat(net.size(rows, 0), [count], axis=0))
    everywhere = net.ScatterElements(everywhere, experts, gates, axis=1)
    inner = net.gelu(net.Einsum(rows, net.weight(count, width, 20), equation="nd,edh->neh"))
    dense = net.Einsum(inner, net.weight(count, 20, width), everywhere, equation="neh,ehd,ne->nd")
    net.output(net.Reshape(dense, net.Shape(x)), "dense")
    total = net.ConstantOfShape(net.Shape(rows), value=helper.make_tensor("v", onnx.TensorProto.FLOAT, [1], [0.0]))
    for expert in range(count):
        at = net.NonZero(net.Equal(experts, [expert]))
        row, slot = (net.Gather(at, np.int64(i), axis=0) for i in (0, 1))
        gate = net.GatherND(gates, net.Transpose(at, perm=[1, 0]))
        mine = net.linear(net.silu(net.linear(net.Gather(rows, row), width, 20)), 20, width)
        mine = net.Mul(mine, net.Unsqueeze(gate, [1]))
        total = net.ScatterND(total, net.Unsqueeze(row, [1]), mine, reduction="add")
    net.output(net.Reshape(total, net.Shape(x)), "sparse")
    return net


def state_space():
    """A selective state space: a scan over time whose step mixes per-channel states."""
    net, width, state = Net("state_space"), 16, 4
    x = net.input("x", ["batch", "time", width])
    y = net.Transpose(net.linear(x, width, width), perm=[0, 2, 1])
    y = net.silu(net.conv(y, width, width, [4], group=width, pads=[3, 0]))
    y = net.Transpose(y, perm=[0, 2, 1])
    step = net.Softplus(net.linear(y, width, width))
    into, out = net.linear(y, width, state, False), net.linear(y, width, state, False)
    decay = net.Exp(net.Mul(net.Unsqueeze(step, [3]), net.Neg(net.positive(width, state))))
    drive = net.Mul(net.Unsqueeze(net.Mul(step, y), [3]), net.Unsqueeze(into, [2]))
    body = Net("step")
    body.scope = "step/"
    for name, shape in (("h", None), ("a", None), ("b", None), ("c", None)):
        body.input(name, shape)
    h = body.Add(body.Mul("h", "a"), "b")
    body.output(h, "h_next")
    body.output(body.ReduceSum(body.Mul(h, body.Unsqueeze("c", [1])), [2], keepdims=0), "y")
    batch = net.size(x, 0)
    start = net.Expand(net.const(np.float32(0)), net.Concat(batch, [width, state], axis=0))
    _, z = net.Scan(start, decay, drive, out, count=2, body=body.graph(), num_scan_inputs=3,
                    scan_input_axes=[1, 1, 1], scan_output_axes=[1])  # fmt: skip
    z = net.Mul(net.Add(z, net.Mul(y, net.weight(width))), net.silu(net.linear(x, width, width)))
    net.output(net.linear(z, width, width), "y")
    return net


def conformer():
    """Half-step feed-forwards, relative positions by the shift of a padded matrix, and a gated convolution."""
    net, width, heads, depth = Net("conformer"), 32, 2, 16
    x = net.input("frames", ["batch", "time", 32])
    length = net.size(x, 1)
    at = net.Range(net.Squeeze(net.Sub(length, [1])), net.Neg(net.Squeeze(length)), np.int64(-1))
    rates = np.exp(-np.log(10000.0) * np.arange(0, width, 2) / width).astype(np.float32)
    angles = net.Mul(net.Unsqueeze(net.Cast(at, to=onnx.TensorProto.FLOAT), [1]), rates[None])
    places = net.Unsqueeze(net.Concat(net.Sin(angles), net.Cos(angles), axis=-1), [0])

    def feed_forward(x):
        y = net.linear(net.silu(net.linear(net.layer_norm(x, width), width, 64)), 64, width)
        return net.Add(x, net.Mul(y, 0.5))

    x = feed_forward(x)
    y = net.layer_norm(x, width)
    q, k, v = (net.heads(net.linear(y, width, width), heads, depth) for _ in range(3))
    p = net.heads(net.linear(places, width, width, False), heads, depth)
    content = net.MatMul(net.Add(q, net.weight(heads, 1, depth)), net.Transpose(k, perm=[0, 1, 3, 2]))
    place = net.MatMul(net.Add(q, net.weight(heads, 1, depth)), net.Transpose(p, perm=[0, 1, 3, 2]))
    place = net.Pad(place, [0, 0, 0, 1, 0, 0, 0, 0])
    place = net.Reshape(place, net.Concat([0, 0, -1], length, axis=0))
    place = net.Reshape(net.Slice(place, [1], [2**62], [2]), net.Concat([0, 0], length, [-1], axis=0))
    place = net.Slice(place, [0], length, [3])
    weights = net.Softmax(net.Mul(net.Add(content, place), float(depth**-0.5)), axis=-1)
    x = net.Add(x, net.linear(net.joined(net.MatMul(weights, v), width), width, width))
    y = net.conv(net.Transpose(net.layer_norm(x, width), perm=[0, 2, 1]), width, 2 * width, [1])
    kept, gate = net.Split(y, count=2, axis=1, num_outputs=2)
    y = net.conv(net.Mul(kept, net.Sigmoid(gate)), width, width, [7], group=width)
    y = net.conv(net.silu(net.batch_norm(y, width)), width, width, [1])
    x = feed_forward(net.Add(x, net.Transpose(y, perm=[0, 2, 1])))
    net.output(net.layer_norm(x, width), "y")
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
