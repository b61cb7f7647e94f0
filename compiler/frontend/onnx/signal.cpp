// Fourier transforms and random numbers.
#include "compiler/ops/composite/signal.h"

#include "compiler/base/text.h"
#include "compiler/frontend/onnx/import_rows.h"
#include "compiler/ops/composite/random.h"

namespace stridec::onnx {
namespace {

using namespace ops;

Outputs dft(Context& c) {
  const Term x = c.in(0);
  std::vector<sym::Expr> given{c.integer("axis", c.version >= 20 ? -2 : 1)};
  if (c.version >= 20 && c.has(2)) given = c.sizes_of(2, "axis", -x.rank(), x.rank() - 2);
  if (given.size() != 1) c.does_not_fit("axis must be one number");
  const Axes axes = axes_of(c.b, given, x.rank());
  SpectrumOptions o{
      .length = {}, .inverse = c.integer("inverse", 0) != 0, .one_sided = c.integer("onesided", 0) != 0};
  if (c.has(1)) o.length = c.size_of(1, "dft_length", 1, kLargestSize);
  return {spectrum_along(x, axes, o)};
}

Outputs stft(Context& c) {
  // Onnxruntime also accepts real signals of rank 2.
  const Term x = c.in(0).rank() == 2 ? unsqueeze(c.in(0), {2}) : c.in(0);
  FrameOptions o{.step = c.size_of(1, "frame_step", 1, kLargestSize),
                 .window = c.optional(2),
                 .one_sided = c.integer("onesided", 1) != 0};
  if (c.has(3))
    o.length = c.size_of(3, "frame_length", 1, x.dim(1));
  else if (c.has(2))
    o.length = c.in(2).dim(0);
  else
    c.unsupported("STFT needs a window or a frame_length");
  return {short_time_spectrum(x, o)};
}

Outputs mel_weight_matrix(Context& c) {
  const MelOptions o{.bins = c.size_of(0, "num_mel_bins", 0, kLargestSize),
                     .length = c.size_of(1, "dft_length", 0, kLargestSize),
                     .rate = c.in(2),
                     .low = c.in(3),
                     .high = c.in(4)};
  return {mel_filters(o, c.dtype("output_datatype", DType::kF32))};
}

// Without a seed, every node has its own stream, which is the same in each build.
int64_t seed_of(const Context& c) {
  return c.has_attribute("seed") ? static_cast<int64_t>(c.number("seed", 0) * 65536) : c.node.index * 2;
}

template <bool gaussian, bool like>
Outputs random(Context& c) {
  Shape shape;
  if (like)
    shape = c.in(0).shape();
  else
    for (int64_t d : c.integers("shape")) shape.emplace_back(d);
  const DType type = c.dtype("dtype", like && is_float(c.in(0).dtype()) ? c.in(0).dtype() : DType::kF32);
  return {gaussian ? normal(c.b, shape, c.number("mean", 0), c.number("scale", 1), type, seed_of(c))
                   : uniform(c.b, shape, c.number("low", 0), c.number("high", 1), type, seed_of(c))};
}

Outputs op_bernoulli(Context& c) {
  return {bernoulli(c.in(0), c.dtype("dtype", c.in(0).dtype()), seed_of(c))};
}

Outputs op_multinomial(Context& c) {
  return {multinomial(c.in(0), c.integer("sample_size", 1), c.dtype("dtype", DType::kI32), seed_of(c))};
}

constexpr Row kRows[] = {
    {"Bernoulli", op_bernoulli},
    {"DFT", dft},
    {"MelWeightMatrix", mel_weight_matrix},
    {"Multinomial", op_multinomial},
    {"RandomNormal", random<true, false>},
    {"RandomNormalLike", random<true, true>},
    {"RandomUniform", random<false, false>},
    {"RandomUniformLike", random<false, true>},
    {"STFT", stft},
};

}  // namespace

std::span<const Row> signal_rows() { return kRows; }

}  // namespace stridec::onnx
