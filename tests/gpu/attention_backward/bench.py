"""Checks and times the attention backward kernels of cubins/, beside PyTorch's.

usage: bench.py check NAME-PREFIX [PREFIX...]            every cubin kind, odd sizes, against float64
       bench.py time ROUNDS SHAPE:prefix,prefix...       SHAPE: D,B,H,HKV,S,causal[,f16]
A cubin is PREFIX + 'd{D}_{causal}{bias}{f16}.cubin'.  Environment: SECTION (key heads side by side), PEERS: which of torch,torch-det,flash,cudnn.
"""
import ctypes as C
import glob, json, math, os, random, statistics, sys
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

here = os.path.dirname(os.path.abspath(__file__))
cu = C.CDLL('libcuda.so.1')
P, I, F32, L = C.c_void_p, C.c_int, C.c_float, C.c_longlong


def ok(code):
    if code:
        s = C.c_char_p()
        cu.cuGetErrorString(code, C.byref(s))
        raise RuntimeError('CUDA %d %s' % (code, s.value))


class Args(C.Structure):
    _fields_ = [(n, I) for n in 'sq sk heads group key_heads q_tiles key_tiles section causal_off'.split()] + [('scale', F32), ('scale_log2', F32)] + [
        (n, P) for n in 'lse2 delta dq turns ticket bias'.split()] + [(n, L) for n in 'bias_batch bias_head bias_row'.split()]


class RowArgs(C.Structure):
    _fields_ = [('o', P), ('grad', P)] + [(n, L) for n in 'o_row o_head o_batch grad_row grad_head grad_batch'.split()] + [
        (n, P) for n in 'lse lse2 delta turns ticket'.split()] + [(n, I) for n in 'sq heads q_tiles'.split()]


class DqArgs(C.Structure):
    _fields_ = [('dq', P), ('out', P)] + [(n, L) for n in 'row head batch'.split()] + [('a', Args)]


class Module:
    def __init__(self, path):
        torch.cuda.current_stream()
        self.persistent = not os.path.basename(path).startswith('e')  # e: one tile a block
        self.causal = int(os.path.basename(path).split('_')[-1][0])
        data = open(path, 'rb').read()
        self.m = P()
        ok(cu.cuModuleLoadData(C.byref(self.m), data))
        self.f = {}
        for n in ('attention_backward_rows', 'attention_backward', 'attention_backward_dq'):
            f = P()
            ok(cu.cuModuleGetFunction(C.byref(f), self.m, n.encode()))
            self.f[n] = f
        at, size = P(), C.c_size_t()
        ok(cu.cuModuleGetGlobal_v2(C.byref(at), C.byref(size), self.m, b'attention_backward_info'))
        info = (I * 4)()
        ok(cu.cuMemcpyDtoH_v2(info, at, 16))
        self.smem, self.bm, self.keys, self.threads = info
        ok(cu.cuFuncSetAttribute(self.f['attention_backward'], 8, self.smem))

    def launch(self, name, grid, threads, smem, params):
        ptrs = (P * len(params))(*[C.cast(C.byref(p), P) if not isinstance(p, int) else P(p) for p in params])
        ok(cu.cuLaunchKernel(self.f[name], grid[0], grid[1], 1, threads, 1, 1, smem, P(torch.cuda.current_stream().cuda_stream), ptrs, None))


modules = {}


def module(prefix, d, causal, bias, f16):
    name = '%sd%d_%d%d%d' % (prefix, d, causal, bias, f16)
    if name not in modules:
        modules[name] = Module('%s/cubins/%s.cubin' % (here, name))
    return modules[name]


def tensor_map(t, rows, f16):
    """t: [B, H, S, D]; box of {64, rows, D / 64}"""
    raw = C.create_string_buffer(128 + 64)
    at = (C.addressof(raw) + 63) // 64 * 64
    b, h, s, d = t.shape
    dims = (C.c_ulonglong * 5)(64, s, d // 64, h, b)
    strides = (C.c_ulonglong * 4)(t.stride(2) * 2, 128, t.stride(1) * 2, t.stride(0) * 2)
    box = (C.c_uint * 5)(64, rows, d // 64, 1, 1)
    one = (C.c_uint * 5)(1, 1, 1, 1, 1)
    ok(cu.cuTensorMapEncodeTiled(P(at), 6 if f16 else 9, 5, P(t.data_ptr()), dims, strides, box, one, 0, 3, 2, 0))
    return raw, at


class Backward:
    def __init__(self, mod, q, k, v, o, do, lse, scale, causal_off=0, bias=None, section=None):
        b, h, sq, d = q.shape
        hk, sk = k.shape[1], k.shape[2]
        f16 = q.dtype == torch.float16
        self.mod, self.keep = mod, (q, k, v, o, do, lse, bias)
        self.dq, self.dk, self.dv = (torch.full_like(x, float('nan')) for x in (q, k, v))
        qt, kt = -(-sq // mod.bm), -(-sk // mod.keys)
        dev = dict(device='cuda')
        self.lse2, self.delta = (torch.full((b * h * qt * mod.bm,), float('nan'), **dev) for _ in range(2))
        self.ws = torch.full((b * h * qt * 2 * 4096,), float('nan'), **dev)
        self.turns = torch.full((b * h * qt * 2,), 77, dtype=torch.int32, **dev)
        self.ticket = torch.full((1,), 77, dtype=torch.int32, **dev)
        section = int(os.environ.get('SECTION', 0)) or section or ((32 if d == 64 else 16) if mod.causal else 8 if sq > 2048 else 16)
        a = Args(sq, sk, h, h // hk, b * hk, qt, kt, min(section, b * hk), causal_off, scale, scale / math.log(2), self.lse2.data_ptr(),
                 self.delta.data_ptr(), self.ws.data_ptr(), self.turns.data_ptr(), self.ticket.data_ptr())
        if bias is not None:
            a.bias, a.bias_batch, a.bias_head, a.bias_row = bias.data_ptr(), bias.stride(0), bias.stride(1), bias.stride(2)
        r = RowArgs(o.data_ptr(), do.data_ptr(), o.stride(2), o.stride(1), o.stride(0), do.stride(2), do.stride(1), do.stride(0), lse.data_ptr(),
                    a.lse2, a.delta, a.turns, a.ticket, sq, h, qt)
        e = DqArgs(a.dq, self.dq.data_ptr(), self.dq.stride(2), self.dq.stride(1), self.dq.stride(0), a)
        self.maps = [tensor_map(*x, f16) for x in ((q, mod.bm), (do, mod.bm), (k, mod.keys), (v, mod.keys), (self.dk, 64), (self.dv, 64))]
        rows = 128 // (d // 8)
        self.launches = [('attention_backward_rows', (-(-qt * mod.bm // rows), b * h), 128, 0, [r]),
                         ('attention_backward', (min(kt * b * hk, torch.cuda.get_device_properties(0).multi_processor_count) if mod.persistent else kt * b * hk, 1), mod.threads, mod.smem, [m[1] for m in self.maps] + [a]),
                         ('attention_backward_dq', (qt * 2, b * h), 128, 0, [e])]

    def __call__(self):
        for l in self.launches:
            self.mod.launch(*l)


def ratio(x, ref):
    return ((x.double() - ref).norm() / ref.norm().clamp_min(1e-30)).item()


def reference(q, k, v, do, scale, causal, off, bias):
    q, k, v, do = (x.double() for x in (q, k, v, do))
    g = q.shape[1] // k.shape[1]
    kk, vv = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    s = q @ kk.transpose(-1, -2) * scale
    if bias is not None:
        s = s + bias.double()
    if causal:
        i, j = torch.arange(q.shape[2], device='cuda')[:, None], torch.arange(k.shape[2], device='cuda')[None]
        s = s.masked_fill(j > i + off, float('-inf'))
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - lse[..., None]).nan_to_num(0)
    o = p @ vv
    dv = p.transpose(-1, -2) @ do
    ds = p * (do @ vv.transpose(-1, -2) - (do * o).sum(-1, keepdim=True))
    dq, dk = ds @ kk * scale, ds.transpose(-1, -2) @ q * scale
    fold = lambda x: x.unflatten(1, (k.shape[1], g)).sum(2)
    return o, lse, dq, fold(dk), fold(dv)


def check(prefixes):
    bad = 0
    for prefix in prefixes:
        worst = {}
        for d in (128, 64):
            for b, h, hk, sq, sk, off, spread in ((1, 1, 1, 64, 128, 0, 1), (1, 1, 1, 128, 128, 0, 1), (1, 2, 2, 256, 256, 0, 1), (2, 4, 2, 333, 333, 0, 1), (1, 8, 2, 1000, 1000, 0, 1),
                                                  (2, 3, 3, 1, 1, 0, 1), (1, 2, 1, 77, 515, 438, 1), (1, 2, 1, 515, 77, 0, 1), (1, 2, 1, 300, 40, -260, 1), (1, 2, 2, 2049, 2049, 0, 1), (1, 2, 2, 640, 640, 0, 12), (2, 20, 20, 700, 700, 0, 1)):
                for causal in (0, 1):
                    for f16 in (0, 1):
                        for biased in (0, 1, 2):
                            if not os.path.exists('%s/cubins/%sd%d_%d%d%d.cubin' % (here, prefix, d, causal, biased, f16)):
                                continue
                            t = torch.float16 if f16 else torch.bfloat16
                            new = lambda *s: torch.randn(*s, device='cuda', dtype=torch.float32).to(t)
                            # [B, S, H, D] in memory for one of two cases
                            lay = (lambda n, s: new(b, n, s, d)) if sq % 2 else (lambda n, s: new(b, s, n, d).transpose(1, 2))
                            q, k, v, do = lay(h, sq), lay(hk, sk), lay(hk, sk), lay(h, sq)
                            q = (q * spread)
                            bias = None
                            if biased:
                                bias = torch.randn(b, 1, sq, sk, device='cuda').to(t if biased == 1 else torch.float32).expand(b, h, sq, sk)
                            scale = d ** -0.5
                            o, lse, *want = reference(q, k, v, do, scale, causal, off, bias)
                            run = Backward(module(prefix, d, causal, biased, f16), q, k, v, o.to(t), do, lse.float().contiguous(), scale, off, bias)
                            run()
                            torch.cuda.synchronize()
                            got = [x.clone() for x in (run.dq, run.dk, run.dv)]
                            errors = [ratio(x, w) for x, w in zip(got, want)]
                            for x in (run.dq, run.dk, run.dv, run.ws):
                                x.fill_(float('nan'))
                            run()
                            torch.cuda.synchronize()
                            same = all(torch.equal(x, y) for x, y in zip(got, (run.dq, run.dk, run.dv)))
                            limit = 2e-3 if f16 else 1e-2
                            good = same and all(e < limit or w.norm() < 1e-9 and x.double().norm() < 1e-4 * do.double().norm() for e, w, x in zip(errors, want, got))  # NaN fails
                            key = (d, causal, biased, f16)
                            worst[key] = [max(x, y) for x, y in zip(worst.get(key, [0] * 3), errors)] if sk > 1 else worst.get(key, [0] * 3)
                            if not good:
                                bad += 1
                                print('BAD', prefix, 'd%d b%d h%d/%d %dx%d off %d causal %d bias %d f16 %d' % (d, b, h, hk, sq, sk, off, causal, biased, f16),
                                      'same bits' if same else 'BITS DIFFER', ' '.join('%.2e' % e for e in errors), flush=True)
        for key in sorted(worst):
            print('%-8s d%d causal %d bias %d f16 %d: worst of dq %.2e dk %.2e dv %.2e' % ((prefix,) + key + tuple(worst[key])), flush=True)
    print('check:', 'PASS' if not bad else '%d FAILED' % bad, flush=True)
    return bad


def graph_of(run):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        run()
    return g


e0, e1 = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def time_us(run, n):
    e0.record()
    for _ in range(n):
        run()
    e1.record()
    e1.synchronize()
    return e0.elapsed_time(e1) / n * 1e3


def timing(rounds, jobs):
    table = []
    for job in jobs:
        shape, names = job.split(':')
        d, b, h, hk, s, causal, *rest = map(int, shape.split(','))
        f16 = rest[0] if rest else 0
        t = torch.float16 if f16 else torch.bfloat16
        q, do = (torch.randn(b, h, s, d, device='cuda', dtype=t) for _ in range(2))
        k, v = (torch.randn(b, hk, s, d, device='cuda', dtype=t) for _ in range(2))
        for x in (q, k, v):
            x.requires_grad_()
        g = h // hk
        with torch.no_grad():
            kk, vv = (x.repeat_interleave(g, 1) for x in (k, v))
            o, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, kk, vv, 0.0, bool(causal))[:2]
            lse = lse.contiguous()
        runs, grads, keep = {}, {}, []

        def peer(name, backends, deterministic):
            try:
                torch.use_deterministic_algorithms(deterministic)
                if backends:
                    with sdpa_kernel(backends):
                        out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=g > 1)
                else:
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=g > 1)

                def run():
                    return torch.autograd.grad(out, (q, k, v), do, retain_graph=True)
                grads[name] = run()
                try:
                    gr = graph_of(run)
                except Exception:  # the first capture in a process can fail while a library starts
                    torch.cuda.synchronize()
                    gr = graph_of(run)
                keep.append((gr, out))
                runs[name] = gr.replay
                print('#', name, out.grad_fn.name(), flush=True)
            except Exception as e:
                print('#', name, 'failed:', str(e).splitlines()[0][:150])
            finally:
                torch.use_deterministic_algorithms(False)
        chosen = os.environ.get('PEERS', 'torch,torch-det,flash,cudnn').split(',')
        for name, backends, deterministic in (('torch', None, False), ('torch-det', None, True), ('flash', [SDPBackend.FLASH_ATTENTION], False),
                                              ('cudnn', [SDPBackend.CUDNN_ATTENTION], False)):
            if name in chosen:
                peer(name, backends, deterministic)
        notes = {}
        for name in names.split(','):
            prefix, _, section = name.partition('@')
            prefix = '' if prefix == '-' else prefix
            try:
                bw = Backward(module(prefix, d, causal, 0, f16), q.detach(), k.detach(), v.detach(), o, do, lse, d ** -0.5, section=int(section or 0))
                bw()
                torch.cuda.synchronize()
                first = [x.clone() for x in (bw.dq, bw.dk, bw.dv)]
                for x in (bw.dq, bw.dk, bw.dv, bw.ws):
                    x.fill_(float('nan'))
                bw()
                torch.cuda.synchronize()
                same = all(torch.equal(x, y) for x, y in zip(first, (bw.dq, bw.dk, bw.dv)))
                note = 'same bits' if same else 'BITS DIFFER'
                if grads:
                    ref = next(iter(grads.values()))
                    note += ' vs torch ' + ' '.join('%.1e' % ratio(x, y.double()) for x, y in zip(first, ref))
                if True:
                    gr = graph_of(bw)
                    keep.append((gr, bw))
                    runs['ours ' + name] = gr.replay
                    parts = []
                    for l in (bw.launches[0], bw.launches[2]):
                        ten = graph_of(lambda: [bw.mod.launch(*l) for _ in range(10)])
                        ten.replay()
                        parts.append(time_us(ten.replay, 3) / 10)
                    note += ' rows %.0f dq %.0f us' % tuple(parts)
                notes['ours ' + name] = note
            except Exception as e:
                print('#', name, 'failed:', str(e).splitlines()[0][:150], flush=True)
        times = {n: [] for n in runs}
        grads.clear()
        count = {n: max(2, min(60, int(8000 / time_us(runs[n], 2)))) for n in runs}
        for i in range(rounds + 1):
            order = list(runs)
            random.shuffle(order)
            for n in order:
                us = time_us(runs[n], count[n])
                if i:
                    times[n].append(us)
        flop = 10e-6 * b * h * s * s * d * (0.5 if causal else 1)
        print('## D%d B%d H%d/%d S%d causal %d f16 %d (%s)' % (d, b, h, hk, s, causal, f16, torch.cuda.get_device_name()))
        base = {n: statistics.median(times[n]) for n in times}
        for n in times:
            print('%-16s %9.1f us (min %9.1f) %6.1f TFLOP/s  x%s torch x%s det  %s' % (
                n, base[n], min(times[n]), flop / base[n], '%.3f' % (base['torch'] / base[n]) if 'torch' in base else '-',
                '%.3f' % (base['torch-det'] / base[n]) if 'torch-det' in base else '-', notes.get(n, '')), flush=True)
        table.append(dict(shape=shape, us=base, tflops={n: flop / base[n] for n in base}, all=times))
        runs.clear(), keep.clear()
        del q, k, v, do, o, lse, kk, vv
    if os.environ.get('OUT'):
        json.dump(table, open(os.environ['OUT'] + '/times_%d.json' % os.getpid(), 'w'))


if __name__ == '__main__':
    if sys.argv[1] == 'check':
        sys.exit(check([x if x != '-' else '' for x in sys.argv[2:]]) != 0)
    timing(int(sys.argv[2]), sys.argv[3:])
