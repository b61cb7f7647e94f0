// Eigenvalues and right eigenvectors of one square matrix, real or complex: the implementation of the routine
// "eigen" of library.def.
//
// This text is compiled into the interpreter and pasted into kernels, so it includes no header; int64_t is
// predefined. T is the type of the numbers in memory; all arithmetic is of doubles.
//
// Methods: Golub and Van Loan, Matrix Computations, chapter 7: balancing, Householder's reduction to the form
// of Hessenberg, Francis' steps with two shifts for real matrices and with one for complex ones, and back
// substitution in the (quasi-)triangular form of Schur. Vectors are LAPACK's (geev): of norm 1, and the
// largest component of a complex vector is real.

namespace stridec::eigen {

#ifdef __clang__
#pragma clang fp contract(off)
inline double root(double x) { return __builtin_elementwise_sqrt(x); }
#elif defined(__CUDACC__)
inline double root(double x) { return sqrt(x); }
#else
inline double root(double x) { return __builtin_sqrt(x); }
#endif
inline double size(double x) { return x < 0 ? -x : x; }
inline double larger(double x, double y) { return x < y ? y : x; }

struct Complex {
  double re, im;
};
inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
inline Complex operator-(Complex a) { return {-a.re, -a.im}; }
inline Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline Complex operator*(double a, Complex b) { return {a * b.re, a * b.im}; }
inline Complex conjugate(Complex a) { return {a.re, -a.im}; }
inline bool is_zero(Complex a) { return a.re == 0 && a.im == 0; }
inline double size(Complex a) {
  const double most = larger(size(a.re), size(a.im));
  if (!(most > 0)) return most;
  const double re = a.re / most, im = a.im / most;
  return most * root(re * re + im * im);
}
inline double span(Complex a) { return size(a.re) + size(a.im); }
inline Complex operator/(Complex a, Complex b) {  // R. L. Smith, 1962
  if (size(b.re) >= size(b.im)) {
    const double part = b.im / b.re, under = b.re + b.im * part;
    return {(a.re + a.im * part) / under, (a.im - a.re * part) / under};
  }
  const double part = b.re / b.im, under = b.re * part + b.im;
  return {(a.re * part + a.im) / under, (a.im * part - a.re) / under};
}
inline Complex square_root(Complex a) {
  const double r = size(a);
  if (r == 0) return {0, 0};
  const double t = root((r + size(a.re)) / 2);
  if (a.re >= 0) return {t, a.im / (2 * t)};
  return {size(a.im) / (2 * t), a.im < 0 ? -t : t};
}

constexpr double kEpsilon = 0x1p-52;
constexpr int kMostSteps = 60;  // of one eigenvalue

// The matrix, which becomes its form of Schur, and the unitary matrix that transforms it.
struct Schur {
  int64_t n;
  Complex *t, *z;  // row-major; z: null if it is not wanted
  double* scale;   // of rows, by balancing

  Complex& at(int64_t i, int64_t j) const { return t[i * n + j]; }

  // Powers of 2 that bring the sums of rows and columns near to each other.
  void balance() const {
    for (int64_t i = 0; i < n; ++i) scale[i] = 1;
    bool done = false;
    for (int turn = 0; !done && turn < 1000; ++turn) {
      done = true;
      for (int64_t i = 0; i < n; ++i) {
        double row = 0, column = 0, factor = 1;
        for (int64_t j = 0; j < n; ++j) {
          if (j == i) continue;
          row += span(at(i, j));
          column += span(at(j, i));
        }
        if (!(row > 0 && column > 0 && row < 1e300 && column < 1e300)) continue;
        const double before = row + column;
        for (; column < row / 2 && factor < 1e150; factor *= 2) column *= 4;
        for (; column >= row * 2 && factor > 1e-150; factor /= 2) column /= 4;
        if (!((column + row) / factor < 0.95 * before)) continue;
        done = false;
        scale[i] *= factor;
        for (int64_t j = 0; j < n; ++j) at(i, j) = 1 / factor * at(i, j);
        for (int64_t j = 0; j < n; ++j) at(j, i) = factor * at(j, i);
      }
    }
  }

  // Reflects `count` rows from `first` of the columns from `from`, or so many columns of the rows before
  // `to`: x becomes x - 2 v v^H x, |v| = 1.
  void reflect_rows(const Complex* v, int64_t first, int64_t count, int64_t from) const {
    for (int64_t j = from; j < n; ++j) {
      Complex sum{0, 0};
      for (int64_t i = 0; i < count; ++i) sum = sum + conjugate(v[i]) * at(first + i, j);
      for (int64_t i = 0; i < count; ++i) at(first + i, j) = at(first + i, j) - 2 * (v[i] * sum);
    }
  }
  void reflect_columns(Complex* of, const Complex* v, int64_t first, int64_t count, int64_t to) const {
    for (int64_t i = 0; i < to; ++i) {
      Complex* row = of + i * n + first;
      Complex sum{0, 0};
      for (int64_t j = 0; j < count; ++j) sum = sum + row[j] * v[j];
      for (int64_t j = 0; j < count; ++j) row[j] = row[j] - 2 * (sum * conjugate(v[j]));
    }
  }
  // Makes v, of which `count` elements are given, the unit vector of the reflection that maps them to a
  // multiple of the first axis. False: they are that already.
  static bool reflection(Complex* v, int64_t count) {
    double most = 0, rest = 0, norm = 0;
    for (int64_t i = 0; i < count; ++i) most = larger(most, span(v[i]));
    for (int64_t i = 1; i < count; ++i) rest = larger(rest, span(v[i]));
    if (!(rest > 0)) return false;
    for (int64_t i = 0; i < count; ++i) {
      v[i] = {v[i].re / most, v[i].im / most};
      norm += v[i].re * v[i].re + v[i].im * v[i].im;
    }
    norm = root(norm);
    const double head = size(v[0]);
    v[0] = v[0] + (head > 0 ? norm / head * v[0] : Complex{norm, 0});
    double length = 0;
    for (int64_t i = 0; i < count; ++i) length += v[i].re * v[i].re + v[i].im * v[i].im;
    length = 1 / root(length);
    for (int64_t i = 0; i < count; ++i) v[i] = length * v[i];
    return true;
  }

  void reduce(Complex* v) const {
    if (z)
      for (int64_t i = 0; i < n * n; ++i) z[i] = {i / n == i % n ? 1.0 : 0.0, 0};
    for (int64_t k = 0; k + 2 < n; ++k) {
      const int64_t count = n - k - 1;
      for (int64_t i = 0; i < count; ++i) v[i] = at(k + 1 + i, k);
      if (!reflection(v, count)) continue;
      reflect_rows(v, k + 1, count, k);
      reflect_columns(t, v, k + 1, count, n);
      if (z) reflect_columns(z, v, k + 1, count, n);
      for (int64_t i = k + 2; i < n; ++i) at(i, k) = {0, 0};
    }
  }

  // The first row of the block that ends with row `last`: what is above it is negligible.
  int64_t first_of(int64_t last, double norm) const {
    int64_t l = last;
    for (; l > 0; --l) {
      const double beside = span(at(l - 1, l - 1)) + span(at(l, l));
      if (span(at(l, l - 1)) <= kEpsilon * (beside > 0 ? beside : norm)) break;
    }
    if (l > 0) at(l, l - 1) = {0, 0};
    return l;
  }

  // A step of Francis with the shifts of the last two rows, for a real block of at least three rows.
  void real_step(int64_t l, int64_t last, bool exceptional) const {
    const double y = at(last - 1, last - 1).re, x = at(last, last).re;
    double sum = x + y, product = x * y - at(last, last - 1).re * at(last - 1, last).re;
    if (exceptional) {
      const double s = size(at(last, last - 1).re) + size(at(last - 1, last - 2).re), own = 0.75 * s + x;
      sum = 2 * own;
      product = own * own + 0.4375 * s * s;
    }
    const double h = at(l, l).re, below = at(l + 1, l).re;
    Complex v[3] = {{h * (h - sum) + product + at(l, l + 1).re * below, 0},
                    {below * (h + at(l + 1, l + 1).re - sum), 0},
                    {below * at(l + 2, l + 1).re, 0}};
    for (int64_t k = l; k < last; ++k) {
      const int64_t count = k + 2 <= last ? 3 : 2;
      if (k > l)
        for (int64_t i = 0; i < count; ++i) v[i] = at(k + i, k - 1);
      if (!reflection(v, count)) continue;
      reflect_rows(v, k, count, k > l ? k - 1 : k);
      reflect_columns(t, v, k, count, (k + 3 < last ? k + 3 : last) + 1);
      if (z) reflect_columns(z, v, k, count, n);
      if (k > l)
        for (int64_t i = 1; i < count; ++i) at(k + i, k - 1) = {0, 0};
    }
  }

  // Likewise with one shift, for a complex block of at least two rows.
  void complex_step(int64_t l, int64_t last, bool exceptional) const {
    const Complex a = at(last - 1, last - 1), d = at(last, last);
    Complex shift = d;
    if (exceptional) {
      shift.re += 0.75 * span(at(last, last - 1));
    } else {  // the eigenvalue of the last two rows that is nearer to the last element
      const Complex p = 0.5 * (a - d), bc = at(last - 1, last) * at(last, last - 1);
      Complex q = square_root(p * p + bc);
      if (p.re * q.re + p.im * q.im < 0) q = -q;
      if (!is_zero(p + q)) shift = d - bc / (p + q);
    }
    Complex v[2] = {at(l, l) - shift, at(l + 1, l)};
    for (int64_t k = l; k < last; ++k) {
      if (k > l) {
        v[0] = at(k, k - 1);
        v[1] = at(k + 1, k - 1);
      }
      if (!reflection(v, 2)) continue;
      reflect_rows(v, k, 2, k > l ? k - 1 : k);
      reflect_columns(t, v, k, 2, (k + 2 < last ? k + 2 : last) + 1);
      if (z) reflect_columns(z, v, k, 2, n);
      if (k > l) at(k + 1, k - 1) = {0, 0};
    }
  }

  // Makes a real block of the last two rows triangular if its eigenvalues are real.
  void split(int64_t last) const {
    const double a = at(last - 1, last - 1).re, b = at(last - 1, last).re, c = at(last, last - 1).re,
                 d = at(last, last).re;
    const double p = (a - d) / 2, most = larger(size(p), larger(size(b), size(c)));
    const double q = p / most * p + b / most * c;
    if (!(q >= 0)) return;
    // The vector of the eigenvalue d + y, with which the first axis changes places.
    const double square = root(q) * root(most), y = p + (p < 0 ? -square : square);
    Complex v[2] = {{y, 0}, {c, 0}};
    if (!reflection(v, 2)) return;
    reflect_rows(v, last - 1, 2, last - 1);
    reflect_columns(t, v, last - 1, 2, last + 1);
    if (z) reflect_columns(z, v, last - 1, 2, n);
    at(last, last - 1) = {0, 0};
  }

  // False: it does not converge.
  bool iterate(bool real) const {
    double norm = 0;
    for (int64_t i = 0; i < n * n; ++i) norm = larger(norm, span(t[i]));
    int steps = 0;
    for (int64_t last = n - 1; last > 0;) {
      const int64_t l = first_of(last, norm);
      if (l == last || (real && l == last - 1)) {
        if (l < last) split(last);
        last = l - 1;
        steps = 0;
        continue;
      }
      if (++steps > kMostSteps) return false;
      if (real)
        real_step(l, last, steps % 10 == 0);
      else
        complex_step(l, last, steps % 10 == 0);
    }
    return true;
  }

  bool ends_pair(int64_t i) const { return i > 0 && !is_zero(at(i, i - 1)); }
  // The eigenvalue of row i; of the block of rows i - 1 and i, the one with a positive imaginary part.
  Complex value(int64_t i) const {
    if (!ends_pair(i)) return at(i, i);
    const double a = at(i - 1, i - 1).re, d = at(i, i).re, b = at(i - 1, i).re, c = at(i, i - 1).re;
    const double p = (a - d) / 2, most = larger(size(p), larger(size(b), size(c)));
    const double q = p / most * p + b / most * c;
    return {d + p, root(size(q)) * root(most)};
  }

  // x[0 .. i]: the vector of the eigenvalue in the basis of the form of Schur.
  void substitute(Complex* x, int64_t i, double least) const {
    const Complex of = value(i);
    int64_t k = i - 1;
    x[i] = {1, 0};
    if (ends_pair(i)) {
      const Complex b = at(i - 1, i), c = at(i, i - 1);
      if (span(b) >= span(c)) {
        x[i - 1] = b;
        x[i] = of - at(i - 1, i - 1);
      } else {
        x[i - 1] = of - at(i, i);
        x[i] = c;
      }
      --k;
    }
    for (int64_t from = k + 1; k >= 0; from = k + 1) {
      const int64_t rows = ends_pair(k) ? 2 : 1;
      Complex sum[2] = {{0, 0}, {0, 0}};
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = from; j <= i; ++j) sum[r] = sum[r] - at(k - r, j) * x[j];
      Complex d = at(k, k) - of;
      if (rows == 1) {
        if (span(d) < least) d = {least, 0};
        x[k] = sum[0] / d;
      } else {
        const Complex a = at(k - 1, k - 1) - of, b = at(k - 1, k), c = at(k, k - 1);
        Complex det = a * d - b * c;
        if (span(det) < least * least) det = {least * least, 0};
        x[k - 1] = (d * sum[1] - b * sum[0]) / det;
        x[k] = (a * sum[0] - c * sum[1]) / det;
      }
      k -= rows;
      const double most = larger(span(x[k + 1]), span(x[from - 1]));
      if (most > 1e100)
        for (int64_t j = k + 1; j <= i; ++j) x[j] = 1 / most * x[j];
    }
  }

  // Column i of the vectors, as y [n].
  void vector(Complex* y, const Complex* x, int64_t i, bool turns) const {
    double most = 0, norm = 0;
    for (int64_t r = 0; r < n; ++r) {
      Complex sum{0, 0};
      for (int64_t j = 0; j <= i; ++j) sum = sum + z[r * n + j] * x[j];
      y[r] = scale[r] * sum;
      most = larger(most, span(y[r]));
    }
    if (!(most > 0)) return;
    int64_t largest = 0;
    double best = -1;
    for (int64_t r = 0; r < n; ++r) {
      y[r] = {y[r].re / most, y[r].im / most};
      const double square = y[r].re * y[r].re + y[r].im * y[r].im;
      norm += square;
      if (square > best) {
        best = square;
        largest = r;
      }
    }
    norm = 1 / root(norm);
    const Complex turn = turns ? norm / root(best) * conjugate(y[largest]) : Complex{norm, 0};
    for (int64_t r = 0; r < n; ++r) y[r] = turn * y[r];
    if (turns) y[largest].im = 0;
  }
};

template <class T>
inline void store(T* to, Complex x) {
  to[0] = (T)x.re;
  to[1] = (T)x.im;
}

// How many numbers `room` of solve() needs.
constexpr int64_t room_of(int64_t n, bool vectors) { return (vectors ? 2 : 1) * n * n + 3 * n; }

// x: n x n numbers, or pairs if `complex`. values: n pairs. vectors: n x n pairs, in columns; null: not
// wanted. Where the iteration does not converge, and of matrices with infinities or NaN, all are NaN.
template <class T>
inline void solve(const T* x, int64_t n, bool complex, T* values, T* vectors, Complex* room) {
  const int64_t all = n * n;
  Complex *own = room, *y = own + n, *z = vectors ? y + n + all : nullptr;
  const Schur s{n, y + n, z, (double*)(room + room_of(n, vectors != nullptr) - n)};
  double norm = 0, unit = 1;
  for (int64_t i = 0; i < all; ++i) {
    s.t[i] = complex ? Complex{(double)x[2 * i], (double)x[2 * i + 1]} : Complex{(double)x[i], 0};
    const double part = span(s.t[i]);
    norm = part - part == 0 ? larger(norm, part) : part - part;
    if (norm != norm) break;
  }
  bool found = norm == norm;
  if (found && norm > 0) {  // numbers near 1, so that their products are finite and not 0
    for (; unit <= norm / 2; unit *= 2);
    for (; unit > norm; unit /= 2);
    for (int64_t i = 0; i < all; ++i) s.t[i] = {s.t[i].re / unit, s.t[i].im / unit};
  }
  if (found) {
    s.balance();
    s.reduce(own);
    found = s.iterate(!complex);
  }
  if (!found) {
    const double none = norm == norm ? (norm - norm) / (norm - norm) : norm;
    for (int64_t i = 0; i < n; ++i) store(values + 2 * i, {none, none});
    for (int64_t i = 0; vectors && i < all; ++i) store(vectors + 2 * i, {none, none});
    return;
  }
  double least = 0;
  for (int64_t i = 0; i < all; ++i) least = larger(least, span(s.t[i]));
  least = larger(least * kEpsilon, 0x1p-1000);
  for (int64_t i = n - 1; i >= 0; --i) {
    const bool pair = s.ends_pair(i);
    const Complex value = unit * s.value(i);
    store(values + 2 * i, pair ? conjugate(value) : value);
    if (pair) store(values + 2 * (i - 1), value);
    if (vectors) {
      s.substitute(own, i, least);
      s.vector(y, own, i, complex || pair);
      for (int64_t r = 0; r < n; ++r) {
        store(vectors + 2 * (r * n + i), pair ? conjugate(y[r]) : y[r]);
        if (pair) store(vectors + 2 * (r * n + i - 1), y[r]);
      }
    }
    if (pair) --i;
  }
}

}  // namespace stridec::eigen
