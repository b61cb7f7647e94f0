# Makes the polynomials and split constants of compiler/codegen/math_text.cpp (needs mpmath; not run by any test).
from mpmath import mp, mpf, chebyfit, exp, log, sin, cos, tan, atan, asin, erf, erfc, tanh, sqrt, pi, polyval, taylor
mp.dps = 50
import struct
def f32(x): return struct.unpack('f', struct.pack('f', float(x)))[0]
def show(name, f, a, b, n, single):
    c, err = chebyfit(f, [a, b], n, error=True)
    c = c[::-1]  # constant first
    lit = [ (repr(f32(x)) if False else "%.9gf" % f32(x)) if single else "%.17g" % float(x) for x in c]
    lit = [l if ('.' in l or 'e' in l or 'inf' in l) else (l[:-1]+'.0f' if single else l+'.0') for l in lit]
    print("// %s on [%s, %s], error %s" % (name, mp.nstr(mpf(a),6), mp.nstr(mpf(b),6), mp.nstr(err,3)))
    print(name, ", ".join(lit))
# p(z) / q(z), both of degree n, z = x^2, of (f(x) - f(b)) / (b^2 - z) up to b: least squares of the linear form, with
# weights that grow where the relative error of f is large (Lawson 1961).
def show_quotient(name, f, b, n, points=120, rounds=25):
    end = mpf(f32(b*b))
    xs = [b*(1-mp.cos(pi*(i+mpf(1)/2)/points))/2 for i in range(points)]
    zs, fs = [x*x for x in xs], [f(x) for x in xs]
    gs, counts = [(y-f(b))/(end-z) for y, z in zip(fs, zs)], [(end-z)/y for y, z in zip(fs, zs)]
    weights, below, best = [mpf(1)]*points, [mpf(1)]*points, None
    for _ in range(rounds):
        rows, right = [], []
        for z, g, c, w, q in zip(zs, gs, counts, weights, below):
            s = sqrt(w)*c/q
            rows.append([s*(z/end)**k for k in range(n+1)] + [-s*g*(z/end)**k for k in range(1, n+1)])
            right.append(g*s)
        found = mp.lu_solve(mp.matrix(rows), mp.matrix(right))
        p = [found[k]/end**k for k in range(n+1)]
        q = [mpf(1)] + [found[n+k]/end**k for k in range(1, n+1)]
        below = [polyval(q[::-1], z) for z in zs]
        errors = [abs(polyval(p[::-1], z)/d-g)*c for z, d, g, c in zip(zs, below, gs, counts)]
        if best is None or max(errors) < best[0]: best = max(errors), p, q
        weights = [w*(e/max(errors)+mpf('.001')) for w, e in zip(weights, errors)]
    print("// %s, b = %s, b^2 = %.9gf, 1/b = %.9gf, error %s" % (name, mp.nstr(b, 6), float(end), f32(1/b), mp.nstr(best[0], 3)))
    for c in best[1:]: print(name, ", ".join("%.9gf" % f32(x) for x in c))
tiny = mpf(10)**-12
def at(f, lim):  # removable singularity at 0
    return lambda x: f(x) if abs(x) > tiny else f(tiny*10) if lim is None else lim
def mills(b):  # in t = a / (b + a) - 1/2
    return lambda t: (lambda a: (b+a)*exp(a*a/2)*erfc(a/sqrt(2))/2)(b*(t+mpf('.5'))/(mpf('.5')-t))
ln2h = log(2)/2*mpf('1.01')
def sq(x): return sqrt(x)
for single in (True, False):
    n = lambda a, b: a if single else b
    print("=== ", "f32" if single else "f64")
    show("exp_q (exp(r)-1-r)/r^2", lambda r: sum(r**k/mp.factorial(k+2) for k in range(40)), -ln2h, ln2h, n(5, 11), single)
    if single:
        lo, hi = sqrt(mpf(.5))-1, sqrt(mpf(2))-1
        show("log_q (log1p(f)-f+f^2/2)/f^3", lambda f: (log(1+f)-f+f*f/2)/f**3 if abs(f)>mpf(10)**-9 else mpf(1)/3-f/4, lo, hi, 9, True)
        show("normal_cdf: (b+a) exp(a^2/2) erfc(a/sqrt(2)) / 2 over a/(b+a) - 1/2, b = 2.5", mills(mpf('2.5')), -mpf('.5'), mpf('14.5')/17-mpf('.5'), 10, True)
        show_quotient("erf(x)/x - 1/b over (b^2 - z)", lambda x: erf(x)/x, mpf(f32('3.94')), 5)
        # by interval of x^2 + 1 = 2^e (1 + q/4 + 1/8 + r); a word's bits from 21 on, of which the last four count, are its place
        tables = [[0]*16 for _ in range(6)]
        for e in range(4):
            for q in range(4):
                g = lambda r: (lambda z: erf(sq(z))/sq(z) if z>mpf(10)**-25 else 2/sqrt(pi))(mpf(2)**e*(1+mpf(q)/4+mpf(1)/8+r)-1)
                for k, c in enumerate(chebyfit(g, [-mpf(1)/8, mpf(1)/8], 6)[::-1]): tables[k][(127+e)%4*4+q] = c
        for k, row in enumerate(tables): print("erf by interval, c%d" % k, ", ".join("%.9gf" % f32(c) for c in row))
    else:
        zmax = (3-2*sqrt(mpf(2)))**2*mpf('1.001')
        show("log_R (log((1+s)/(1-s))-2s)/s^3 over z", lambda z: 2*sum(z**k/(2*k+3) for k in range(40)), 0, zmax, 8, False)
        show("atan_q (atan x - x)/x^3 over z", lambda z: (atan(sq(z))-sq(z))/sq(z)**3 if z>mpf(10)**-18 else -mpf(1)/3, 0, (tan(pi/8)*mpf('1.001'))**2, 12, False)
        show("asin_q (asin x - x)/x^3 over z", lambda z: (asin(sq(z))-sq(z))/sq(z)**3 if z>mpf(10)**-18 else mpf(1)/6, 0, mpf('.2501'), 14, False)
        show("erf_q erf(x)/x-1 over z", lambda z: erf(sq(z))/sq(z)-1 if z>mpf(10)**-18 else 2/sqrt(pi)-1, 0, 1, 15, False)
        show("normal_cdf, b = 3.5", mills(mpf('3.5')), -mpf('.5'), mpf('38.7')/mpf('42.2')-mpf('.5'), 24, False)
        # erfcx over t=(x-a)/(x+a)
        K=mpf(3)
        g=lambda t: (lambda x: exp(x*x)*erfc(x)*(1+2*x))(K*(1+t)/(1-t))
        show("erfcx*(1+2x) over t=(x-3)/(x+3)", g, (mpf(1)-K)/(1+K)-mpf('.001'), (mpf(6)-K)/(6+K), 19, False)
    show("sin_q (sin x - x)/x^3 over z", lambda z: sum((-1)**(k+1)*z**k/mp.factorial(2*k+3) for k in range(30)), 0, (pi/4*mpf('1.01'))**2, n(4,7), single)
    show("cos_q (cos x - 1 + z/2)/z^2 over z", lambda z: sum((-1)**k*z**k/mp.factorial(2*k+4) for k in range(30)), 0, (pi/4*mpf('1.01'))**2, n(4,7), single)
def parts(name, v, bits):
    out=[]
    for b in bits[:-1]:
        m,e=mp.frexp(v); h=mp.ldexp(mp.nint(mp.ldexp(m,b)),int(e)-b); out.append(h); v-=h
    out.append(v)
    print(name, [float(x).hex() for x in out], [mp.nstr(x,25) for x in out])
parts("ln2 f64", log(2), [32,53]); parts("pio2", pi/2, [33,33,33,53]); parts("ln2 f32", log(2), [9+3,24,24])
parts("log2e", 1/log(2), [53,53]); parts("pi",pi,[53,53]); parts("pio2 53", pi/2,[53,53]); parts("pio4 53", pi/4,[53,53]);parts("2/3", mpf(2)/3,[53,53])
two_over_pi = 2/pi
mp.dps=450
v = mpf(2)/pi
words=[]
for i in range(20):
    v *= mpf(2)**64; w=int(mp.floor(v)); words.append(w); v-=w
print("2/pi words", ", ".join("0x%016xul"%w for w in words))
