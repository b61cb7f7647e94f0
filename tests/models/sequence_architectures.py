"""Small versions of known architectures of sequences, for the table of architectures.py."""

import numpy as np
from net import Net, helper, onnx

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
