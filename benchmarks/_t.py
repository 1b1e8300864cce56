
import sys, time, torch, triton
sys.path.insert(0, "benchmarks")
import gpu_check as g
import _v2
from headcount.kernels.pool_triton import pool_triton
M=256
def bench(name, f, T, **tuning):
    data = g.draw((M, 8000, 256, T, 4, 32, 4, False, False, False, 1.0))
    leaves = [data[n].requires_grad_() for n in g.NAMES[:3]]
    t0=time.time()
    try:
        out = f(**data, **tuning); d = torch.randn_like(out)
        torch.autograd.grad(out, leaves, d, retain_graph=True)
        t1=time.time()
        a = triton.testing.do_bench(lambda: f(**data, **tuning), warmup=5, rep=20, return_mode="median")/M*1e3
        b = triton.testing.do_bench(lambda: torch.autograd.grad(out, leaves, d, retain_graph=True), warmup=5, rep=20, return_mode="median")/M*1e3
        print(name, T, tuning, "fwd %.3f bwd %.3f compile %.1f" % (a, b, t1-t0), flush=True)
    except Exception as e:
        print(name, T, tuning, "failed", str(e)[:100], flush=True)
for T, toks in ((128,((32,1,0),(16,1,0),(64,2,0),(32,1,128),(16,1,128))),(32,((32,1,0),(64,2,0),(16,1,128)))):
    for tok, w, r in toks:
        bench("v3", pool_triton, T, tokens=tok, warps=w, registers=r)
for T, toks in ((128,((32,1),(64,2),(32,2))),(32,((32,1),(64,2))),(8,((32,1),(16,1)))):
    for tok, w in toks:
        for tiles in (4,8):
            bench("v2", _v2.pool_triton, T, tokens=tok, warps=w, tiles=tiles)
