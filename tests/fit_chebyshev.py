"""Makes the Chebyshev series of compiler/ops/composite/bessel.cpp and special.cpp (needs mpmath; not run by any test)."""

from mpmath import airyai, airybi, besseli, besselj, besselk, bessely, cos, erfc, exp, log, mp, mpf, pi, sin, sqrt

mp.dps = 40
TINY = mpf(10) ** -12  # instead of 0, where a function is a limit


def series(name, f, most):
    """Prints the coefficients of f on [-1, 1], without the last ones, which are below the rounding of f64."""
    points = [cos(pi * (k + mpf(1) / 2) / (2 * most)) for k in range(2 * most)]
    values = [f(x) for x in points]
    c = [(2 if j else 1) / mpf(2 * most) * sum(v * cos(j * pi * (k + mpf(1) / 2) / (2 * most)) for k, v in enumerate(values))
         for j in range(most)]  # fmt: skip
    while abs(c[-1]) < max(map(abs, c)) * mpf(10) ** -17:
        c.pop()
    print(f"constexpr double {name}[] = {{{', '.join('%.17g' % float(x) for x in c)}}};")


def of_square(f, end):
    """f(x) in 2 (x / end)^2 - 1."""
    return lambda u: f(max(end * sqrt((u + 1) / 2), TINY))


def of_inverse(f, start, power):
    """f(x) from x = start on, in 2 (start / x)^power - 1."""
    return lambda v: f(start / max((v + 1) / 2, mpf(10) ** -9) ** (mpf(1) / power))


def turned(angle, amplitude, first, second, sign, sine, x):
    """The factor of the cosine, or of the sine over x, in first = a (p cos + sign q sin), second = a (q cos - sign p sin)."""
    c, s = cos(angle), sin(angle)
    return (c * second + sign * s * first) / amplitude * x if sine else (c * first - sign * s * second) / amplitude


def bessel_wave(n, sine):
    # J = a (P cos - Q sin), Y = a (P sin + Q cos)
    return lambda x: turned(x - (2 * n + 1) * pi / 4, sqrt(2 / (pi * x)), besselj(n, x), bessely(n, x), -1, sine, x)


def airy_wave(sine):
    # Ai(-x) = a (P cos + Q sin), Bi(-x) = a (Q cos - P sin)
    def wave(z):
        x = (z * 3 / 2) ** (mpf(2) / 3)
        return turned(z - pi / 4, 1 / (sqrt(pi) * x ** mpf("0.25")), airyai(-x), airybi(-x), 1, sine, z)

    return wave


def airy_decay(z):
    x = (z * 3 / 2) ** (mpf(2) / 3)
    return 2 * sqrt(pi) * x ** mpf("0.25") * exp(z) * airyai(x)


def airy_argument(x):
    return 2 * mpf(x) ** mpf("1.5") / 3


def erfcx(t):
    x = mpf("3.75") * (1 + t) / max(1 - t, mpf(10) ** -9)
    return (1 + 2 * x) * (exp(x * x) * erfc(x) if x < 1000 else (1 - 1 / (2 * x * x) + 3 / (4 * x**4)) / (x * sqrt(pi)))


def main():
    series("kJ0", of_square(lambda x: besselj(0, x), 8), 30)
    series("kJ1", of_square(lambda x: besselj(1, x) / x, 8), 30)
    series("kY0", of_square(lambda x: bessely(0, x) - 2 / pi * log(x) * besselj(0, x), 8), 30)
    series("kY1", of_square(lambda x: (bessely(1, x) - 2 / pi * (log(x) * besselj(1, x) - 1 / x)) / x, 8), 30)
    for n in (0, 1):
        series(f"kP{n}", of_inverse(bessel_wave(n, False), 8, 2), 40)
        series(f"kQ{n}", of_inverse(bessel_wave(n, True), 8, 2), 40)
    series("kK0Near", of_square(lambda x: besselk(0, x) + log(x / 2) * besseli(0, x), 2), 20)
    series("kK1Near", of_square(lambda x: (besselk(1, x) - log(x / 2) * besseli(1, x)) * x, 2), 20)
    for n in (0, 1):
        series(f"kK{n}Far", of_inverse(lambda x, n=n: exp(x) * sqrt(x) * besselk(n, x), 2, 1), 45)
    series("kAiryNear", lambda t: airyai(mpf("3.5") * t - mpf("1.5")), 45)
    series("kAiryDecay", of_inverse(airy_decay, airy_argument(2), 1), 45)
    series("kAiryP", of_inverse(airy_wave(False), airy_argument(5), 2), 60)
    series("kAiryQ", of_inverse(airy_wave(True), airy_argument(5), 2), 60)
    series("kErfcx", erfcx, 45)


main()
