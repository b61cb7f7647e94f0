"""Runs what gpu_matrix_jobs wrote (folder) on the GPU: outputs poisoned, compared with float64, timed beside cuBLAS and
cuDNN in CUDA graphs over rotated buffers. Prints a line per job, failures and a summary last.

    python3 tests/gpu/matrix.py FOLDER [race]

`race`: jobs of the same work, and the library, take turns; what is printed is the median of each. Above a millisecond of
tensor cores' work the power limit sets the clock, and what runs first is the fastest.
"""
import ctypes, json, math, sys, torch
import torch.nn.functional as F

cu = ctypes.CDLL("libcuda.so.1")
u32, u64, vp = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "tf32": torch.float32,
          "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "f8e4m3fn": torch.float8_e4m3fn,
          "f8e5m2": torch.float8_e5m2}
MAP_TYPES = {"f16": 6, "bf16": 9, "f32": 7, "tf32": 7, "f64": 8}  # others: bytes
LIMIT = {"f16": 1e-3, "bf16": 6e-3, "f32": 3e-6, "f64": 1e-13, "i32": 0, "u8": 0}

def limit(job, kind, dtype):
    """Tensor cores cut sums and do not round them: f32 by half a unit on average in each instruction of 8 products of tf32;
    at 14 bits in the four instructions of a step of fp8."""
    if kind.startswith("f8"): return 2**-12
    return max(LIMIT[dtype], 2**-28 * depth(job)) if kind == "tf32" else LIMIT[dtype]

def ok(status, what):
    if status:
        raise RuntimeError(f"CUDA error {status}: {what}")

class Attribute(ctypes.Structure): _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", u32 * 16)]
class Config(ctypes.Structure):
    _fields_ = [("grid", u32 * 3), ("block", u32 * 3), ("shared", u32), ("stream", vp), ("attributes", vp), ("count", u32)]

def tensor_map(pointer, m):
    n = len(m["dims"])
    raw = (ctypes.c_char * 192)()
    at = (ctypes.addressof(raw) + 63) // 64 * 64
    steps = m["steps"] or [1] * n
    swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[m["swizzle"]]
    l2 = {0: 0, 64: 1, 128: 2, 256: 3}[m["l2"]]
    if m["lower"]:
        corner = ctypes.c_int * len(m["lower"])
        ok(cu.cuTensorMapEncodeIm2col(vp(at), MAP_TYPES.get(m["dtype"], 0), n, vp(pointer), (u64 * n)(*m["dims"]),
                                      (u64 * (n - 1))(*m["strides"]), corner(*m["lower"]), corner(*m["upper"]),
                                      m["box"][0], m["box"][1], (u32 * n)(*steps), 0, swizzle, l2, 0), f"tensor map {m}")
        return raw, at
    ok(cu.cuTensorMapEncodeTiled(vp(at), MAP_TYPES.get(m["dtype"], 0), n, vp(pointer), (u64 * n)(*m["dims"]),
                                 (u64 * max(1, n - 1))(*m.get("strides", [])), (u32 * n)(*m["box"]), (u32 * n)(*steps), 0,
                                 swizzle, l2, 0), f"tensor map {m}")
    return raw, at

modules = {}
def function(folder, cubin, shared):
    if cubin not in modules:
        module, f = vp(), vp()
        ok(cu.cuModuleLoadData(ctypes.byref(module), open(f"{folder}/{cubin}", "rb").read()), f"load {cubin}")
        ok(cu.cuModuleGetFunction(ctypes.byref(f), module, b"kernel"), cubin)
        modules[cubin] = [f, 0]
    if shared > modules[cubin][1]:
        ok(cu.cuFuncSetAttribute(modules[cubin][0], 8, shared), f"{cubin}: {shared} bytes")
        modules[cubin][1] = shared
    return modules[cubin][0]

def bind(folder, job, tensors):
    """A function that launches the job's kernels on torch's current stream."""
    calls = []
    for launch in job["launches"]:
        keep, pointers = [tensors], []
        for m in launch["maps"]:
            raw, at = tensor_map(tensors[m["buffer"]].data_ptr() + m["offset"], m)
            keep.append(raw); pointers.append(at)
        words = [tensors[b].data_ptr() for b in launch["buffers"]] + launch["sizes"]
        if launch["workspace"]:
            keep.append(torch.empty(launch["workspace"], dtype=torch.uint8, device="cuda").fill_(255))
            words.append(keep[-1].data_ptr())
        if launch["counters"]:
            keep.append(torch.zeros(launch["counters"], dtype=torch.uint8, device="cuda"))
            words.append(keep[-1].data_ptr())
        for word in words:
            value = ctypes.c_int64(word)
            keep.append(value); pointers.append(ctypes.addressof(value))
        array = (vp * len(pointers))(*pointers)
        attribute = Attribute(6, 0, (u32 * 16)(1))  # programmatic stream serialization
        keep.append(attribute)
        config = Config((u32 * 3)(*launch["grid"]), (u32 * 3)(launch["threads"], 1, 1), launch["shared"], None,
                        ctypes.addressof(attribute), 1 if launch["dependent"] else 0)
        calls.append((config, function(folder, launch["cubin"], launch["shared"]), array, keep))
    def go():
        for config, f, array, keep in calls:
            if 0 in config.grid: continue
            config.stream = torch.cuda.current_stream().cuda_stream
            ok(cu.cuLaunchKernelEx(ctypes.byref(config), f, array, None), job["case"])
    return go

def make(job, seed):
    torch.manual_seed(seed)
    out = []
    for b in job["buffers"]:
        if "order" in b:
            out.append(out[b["from"]].permute(b["order"]).contiguous())
            continue
        if b["dtype"] in ("i8", "u8", "i32"):
            low = 0 if b["dtype"] == "u8" else -128
            t = torch.randint(low, low + 256, b["shape"], device="cuda").to(DTYPES[b["dtype"]])
            if b["output"]: t.fill_(77)
            out.append(t)
            continue
        t = torch.rand(b["shape"], device="cuda", dtype=torch.float32 if b["dtype"] != "f64" else torch.float64) * 2 - 1
        if b["dtype"] == "tf32": t = (t.view(torch.int32) & ~0x1fff).view(torch.float32)
        if job["reference"].get("quantized") and b["name"] == "c": t *= 5e-3 / math.sqrt(job["buffers"][0]["shape"][-1])
        t = t.to(DTYPES[b["dtype"]])
        if b["output"]: t.fill_(float("nan"))
        out.append(t)
    return out

def reference(job, tensors, wide=torch.float64):
    r = job["reference"]
    x, w = (t.float().to(wide) if "float8" in str(t.dtype) else t.to(wide) for t in tensors[:2])
    if r["op"] in ("paired", "gated"):
        y = x @ (w.transpose(-1, -2) if r["transposed"] else w)
        if r["op"] == "gated": return F.silu(tensors[2].to(wide)) * y
        gate, up = (part.reshape(*y.shape[:-1], -1) for part in y.unflatten(-1, (-1, 2, 8)).unbind(-2))  # kernels/dual_gemm.h
        if r["beside"]: gate = gate + tensors[2].to(wide)
        return F.silu(gate) * up + (tensors[3].to(wide) if r["beside"] else 0)
    if r["op"] == "matmul":
        y = x @ (w.transpose(-1, -2) if r["transposed"] else w)
        if r.get("quantized"): return ((y.float() * tensors[2]).round() + 3).clamp(0, 255).to(wide)
        if r["gelu"]: y = F.gelu(y + tensors[2].to(wide))
        if r["residual"]: y = y + tensors[3].to(wide)
        return y
    if r["channels_last"]: x, w = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
    y = F.conv2d(x, w, None, r["stride"], r["pad"], r["dilation"], r["groups"])
    if r["relu"]: y = y.relu()
    return y.permute(0, 2, 3, 1) if r["channels_last"] else y

def peers(job, tensors):
    """name -> call of the same work through torch, as (bare, with epilogue)."""
    r, x, w = job["reference"], tensors[0], tensors[1]
    if r["op"] in ("paired", "gated"):
        wt = w.transpose(-1, -2) if r["transposed"] else w
        halves = wt.chunk(2, -1)
        bare = lambda: torch.matmul(x, wt)
        return bare, (lambda: F.silu(x @ halves[0]) * (x @ halves[1])) if r["op"] == "paired" else bare
    if r["op"] == "matmul":
        wt = w.transpose(-1, -2) if r["transposed"] else w
        if x.dtype == torch.int8 and w.dtype == torch.int8:
            scaled = lambda: ((torch._int_mm(x, wt).float() * tensors[2]).round() + 3).clamp(0, 255).to(torch.uint8)
            bare = lambda: torch._int_mm(x, wt)
            return bare, scaled if r["quantized"] else bare
        if x.dtype == torch.float8_e4m3fn:
            one = torch.ones((), device="cuda")
            bare = lambda: torch._scaled_mm(x, wt, one, one, out_dtype=torch.float32)
            return bare, bare
        out = torch.empty_like(next(t for t, b in zip(tensors, job["buffers"]) if b["output"]))
        bare = lambda: torch.matmul(x, wt, out=out)
        with_gelu = lambda: F.gelu(torch.addmm(tensors[2], x, wt))
        return bare, (lambda: with_gelu() + tensors[3]) if r["residual"] else with_gelu if r["gelu"] else bare
    if x.dtype == torch.uint8: return (lambda: None), (lambda: None)  # no such convolution
    xc, wc = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
    conv = lambda: F.conv2d(xc, wc, None, r["stride"], r["pad"], r["dilation"], r["groups"])
    return conv, (lambda: conv().relu_())

def graph_of(calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for c in calls[:2]: c()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for c in calls: c()
    return graph

def race_us(lists, replays):
    """Medians, a call's each, of lists of calls that take turns."""
    graphs = [graph_of(calls) for calls in lists]
    times = [[] for _ in graphs]
    for turn in range(2 + replays):
        for graph, calls, mine in zip(graphs, lists, times):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(); graph.replay(); b.record(); b.synchronize()
            if turn >= 2: mine.append(a.elapsed_time(b) * 1e3 / len(calls))
    return [sorted(mine)[len(mine) // 2] for mine in times]

def graph_us(calls, replays=10): return race_us([calls], replays)[0]

def depth(job):
    shapes = [b["shape"] for b in job["buffers"]]
    return math.prod(shapes[1][1:]) if job["reference"]["op"] == "conv" else shapes[0][-1]

def flops(job):
    output = next(b["shape"] for b in job["buffers"] if b["output"])
    return 2 * math.prod(output) * depth(job) * (2 if job["reference"]["op"] == "paired" else 1)

def race(folder, group):
    """Of jobs of the same work, with their labels and errors."""
    size = sum(math.prod(b["shape"]) * DTYPES[b["dtype"]].itemsize for b in group[0][0]["buffers"])
    count = max(3, min(24, int(3 * 60e6 / size) + 1))
    loops = max(1, 20 // count)
    kind = group[0][0]["buffers"][0]["dtype"]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
    lists, library = [], None
    for job, *_ in group:
        sets = [make(job, 1000 + i) for i in range(count)]
        lists.append([bind(folder, job, t) for t in sets] * loops)
        library = library or [peers(job, t)[0] for t in sets] * loops
    *ours, bare = race_us(lists + [library], 15)
    for (job, label, error), us in zip(group, ours):
        print(f"{label}: {us:.1f} us {flops(job) / us / 1e6:.0f} TFLOP/s; library {bare:.1f} us (x{bare / us:.3f}), first {ours[0]:.1f} (x{ours[0] / us:.3f}); error {error:.2g}", flush=True)

def main(folder, races):
    jobs = json.load(open(f"{folder}/jobs.json"))
    torch.backends.cudnn.benchmark = True
    failures, timed, last, group = [], {}, None, []
    for number, job in enumerate(jobs):
        label = f"{job['case']} {job['schedule'].split(':')[0]}{' split' + job['schedule'].split('split')[1] if 'split' in job['schedule'] else ''} choice {job['choice']}{' expected ' + str(job['cycles']) if 'cycles' in job else ''} {job['sizes'] or [b['shape'] for b in job['buffers'][:2]]}"
        print(label, file=sys.stderr, flush=True)
        try:
            tensors = make(job, number)
            go = bind(folder, job, tensors)
            go()
            torch.cuda.synchronize()
            output = next(t for t, b in zip(tensors, job["buffers"]) if b["output"])
            dtype = next(b["dtype"] for b in job["buffers"] if b["output"])
            kind = job["buffers"][0]["dtype"]
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            big = flops(job) > 2e11
            want = reference(job, tensors, torch.float32 if big and dtype != "f64" and dtype[0] in "fb" else torch.float64)
            error = ((output.to(want.dtype) - want).norm() / want.norm().clamp(min=1e-30)).item()
            good = error <= limit(job, kind, dtype) * (10 if big and dtype == "f32" else 1)
            first = output.clone()
            go(); torch.cuda.synchronize()
            same = bool((first == output).all())
            if not good or not same: failures.append(f"{label}: error {error:.3g}, repeatable {same}")
            if not job["time"]: continue
            if races:
                work = json.dumps([job["case"], job["reference"], [b["shape"] for b in job["buffers"] if "order" not in b]])
                if group and work != last: race(folder, group); group = []
                last = work
                group.append((job, label, error))
                continue
            size = sum(t.numel() * t.element_size() for t in tensors)
            count = max(3, min(24, int(3 * 60e6 / size) + 1))
            loops = max(1, 20 // count)
            key = json.dumps([job["reference"], [b["shape"] for b in job["buffers"]], job["buffers"][0]["dtype"]])
            if key != last: sets = [make(job, 1000 + i) for i in range(count)]
            last = key
            ours = graph_us([bind(folder, job, t) for t in sets] * loops)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
            if key not in timed:
                pairs = [peers(job, t) for t in sets]
                timed[key] = [graph_us([p[i] for p in pairs] * loops) for i in (0, 1)]
            bare, fused = timed[key]
            rate = flops(job) / ours / 1e6
            print(f"{label}: {ours:.1f} us {rate:.0f} TFLOP/s; library {bare:.1f} us (x{bare / ours:.2f}), with epilogue {fused:.1f} (x{fused / ours:.2f}); error {error:.2g}", flush=True)
        except Exception as e:
            failures.append(f"{label}: {e}")
            print(failures[-1], file=sys.stderr, flush=True)
            if "CUDA error" in str(e) and ("700" in str(e) or "illegal" in str(e)): break
    if group: race(folder, group)
    print("\n".join(failures[:40]))
    print(f"{len(jobs) - len(failures)} passed, {len(failures)} failed of {len(jobs)} jobs")

if __name__ == "__main__": main(sys.argv[1], "race" in sys.argv[2:])
