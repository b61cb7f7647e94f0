// Body: reduce statements.
//
// Sums in f32 run in blocks (blocked summation; Higham, Accuracy and Stability of Numerical Algorithms, 4.2):
// a chain of n additions is off by up to n * 2^-24 of the sum of the magnitudes, two levels of blocks of b
// additions by (b + n / b) * 2^-24.
#include <algorithm>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/loop/vectorize_analysis.h"

namespace stridec::codegen {
namespace {

constexpr int64_t kLongestChain = 4096;  // additions to one accumulator

std::vector<std::string> elements(const std::vector<std::string>& arrays, const std::string& index) {
  std::vector<std::string> out;
  for (const std::string& array : arrays) out.push_back(cat(array, "[", index, "]"));
  return out;
}

}  // namespace

std::vector<DType> Body::dtypes_of(const loop::Reduce& reduce) const {
  std::vector<DType> dtypes;
  for (loop::ValueId id : reduce.results) dtypes.push_back(nest_.values[id.value].dtype);
  return dtypes;
}

std::optional<Body::Blocks> Body::blocks_of(const loop::Reduce& reduce, const std::vector<loop::Dim>& loops,
                                            int64_t at_once, int64_t tail) {
  if (reduce.combine != loop::Combine::kSum) return std::nullopt;
  bool rounds = false;
  for (const DType dtype : dtypes_of(reduce)) rounds = rounds || (is_float(dtype) && dtype != DType::kF64);
  if (!rounds) return std::nullopt;
  int64_t inside = 1;  // additions in a point of the loop
  for (size_t l = loops.size(); l-- > 0; at_once = 1, tail = 0) {
    const sym::Interval range = facts_.bounds(loops[l].extent);
    const int64_t most = std::max<int64_t>(1, kLongestChain / inside);
    if (!range.has_hi() || range.hi > most * at_once)
      return Blocks{l, most * at_once, at_once, text_.fresh("n")};
    inside *= std::max<int64_t>(1, (range.hi + at_once - 1) / at_once + std::min(range.hi, tail));
  }
  return std::nullopt;
}

void Body::print_start(const loop::Reduce& reduce, const std::vector<std::string>& parts, int width) {
  const std::vector<DType> dtypes = dtypes_of(reduce);
  for (size_t p = 0; p < parts.size(); ++p)
    text_.line(cat(parts[p], " = (", text_.value_type(dtypes[p], width), ")(",
                   identity(reduce.combine, dtypes[p], p), ");"));
}

void Body::set_results(const loop::Reduce& reduce, const std::vector<std::string>& parts, int width) {
  const std::vector<DType> dtypes = dtypes_of(reduce);
  for (size_t p = 0; p < parts.size(); ++p)
    is_storage_float(dtypes[p]) ? define(reduce.results[p], rounded(parts[p], dtypes[p], width), width)
                                : set_value(reduce.results[p], {parts[p], dtypes[p], width});
}

void Body::print_reduce(const loop::Reduce& reduce) {
  for (size_t d = reduce.dims.size(); width_ == 1 && d-- > 0;) {
    const sym::Expr var = reduce.dims[d].var;
    if (inner_.width.count(var) && !loop::moves_extents(reduce.body, var))
      return print_reduce_along(reduce, d);
  }
  print_reduces({this, 1}, reduce, [&] { print(reduce.body); });
}

void Body::print_reduces(std::span<Body> bodies, const loop::Reduce& reduce,
                         const std::function<void()>& inside) {
  Body& first = bodies[0];
  KernelText& text = first.text_;
  const std::vector<DType> dtypes = first.dtypes_of(reduce);
  const auto names = [&] {
    std::vector<std::vector<std::string>> out(bodies.size());
    for (std::vector<std::string>& of_one : out)
      for (size_t p = 0; p < dtypes.size(); ++p) of_one.push_back(text.fresh("a"));
    return out;
  };
  const auto accumulators = names();
  std::optional<Blocks> blocks = first.blocks_of(reduce, reduce.dims, 1, 0);
  const auto totals = blocks ? names() : accumulators;
  int width = 1;  // known once the terms are printed
  if (blocks)
    blocks->print_flush = [&] {
      for (size_t b = 0; b < bodies.size(); ++b) {
        first.print_combine(reduce.combine, totals[b], accumulators[b], dtypes, width);
        first.print_start(reduce, accumulators[b], width);
      }
    };
  const std::string loops = text.capture([&] {
    const auto add = [&] {
      first.prefetch_next_row(reduce);
      inside();
      for (const Body& body : bodies)
        for (loop::ValueId id : reduce.yields) width = std::max(width, body.value(id).width);
      for (size_t b = 0; b < bodies.size(); ++b) {
        std::vector<std::string> from;
        for (loop::ValueId id : reduce.yields) from.push_back(bodies[b].widened(bodies[b].value(id), width));
        bodies[b].print_combine(reduce.combine, accumulators[b], from, dtypes, width);
      }
    };
    first.print_loops(reduce.dims, 0, add, blocks ? &*blocks : nullptr);
  });
  const auto declare = [&](const std::vector<std::vector<std::string>>& parts) {
    for (const std::vector<std::string>& of_one : parts)
      for (size_t p = 0; p < of_one.size(); ++p)
        text.line(cat(text.value_type(dtypes[p], width), " ", of_one[p], " = (",
                      text.value_type(dtypes[p], width), ")(", first.identity(reduce.combine, dtypes[p], p),
                      ");"));
  };
  declare(accumulators);
  if (blocks) {
    declare(totals);
    text.line(cat("int64_t ", blocks->taken, " = 0;"));
  }
  text.append(loops);
  for (size_t b = 0; b < bodies.size(); ++b) {
    if (blocks) first.print_combine(reduce.combine, accumulators[b], totals[b], dtypes, width);
    bodies[b].set_results(reduce, accumulators[b], width);
  }
}

// A reduction with lanes along `dim`. Each part of its result has `chains` vectors of partial results, and a
// scalar for the tail if there are no masks. They are combined in a fixed tree.
struct Body::Along {
  const loop::Reduce& reduce;
  const loop::Dim& dim;
  const std::vector<DType> dtypes;
  const int width, chains;
  bool scalar_tail = false;

  std::string each_chain() const { return cat("for (int u = 0; u < ", chains, "; ++u)"); }
};

struct Body::Sums {
  std::vector<std::string> arrays, scalars;
};

int Body::chains_along(const loop::Dim& dim) const {
  const auto wanted = inner_.accumulators.find(dim.var);
  int chains = wanted == inner_.accumulators.end() ? 1 : wanted->second;
  const std::optional<int64_t> extent = sym::as_const(dim.extent);
  while (chains > 1 && extent && *extent < inner_.width.at(dim.var) * chains) chains /= 2;
  return chains;
}

void Body::print_reduce_along(const loop::Reduce& reduce, size_t along) {
  const loop::Dim& dim = reduce.dims[along];
  Along a{reduce, dim, dtypes_of(reduce), inner_.width.at(dim.var), chains_along(dim)};
  const std::optional<int64_t> extent = sym::as_const(dim.extent);
  std::vector<loop::Dim> loops = reduce.dims;
  std::rotate(loops.begin() + static_cast<std::ptrdiff_t>(along),
              loops.begin() + static_cast<std::ptrdiff_t>(along) + 1, loops.end());
  const int64_t tail = text_.target().avx512 ? 0 : extent ? *extent % a.width : a.width - 1;
  std::optional<Blocks> blocks = blocks_of(reduce, loops, int64_t{a.width} * a.chains, tail);
  loops.pop_back();
  const bool here = blocks && blocks->loop == loops.size();
  a.scalar_tail = !text_.target().avx512 && (here || !extent || *extent % a.width != 0);

  const Sums sums = declare_sums(a), totals = blocks ? declare_sums(a) : Sums{};
  if (blocks) {
    text_.line(cat("int64_t ", blocks->taken, " = 0;"));
    blocks->print_flush = [&] {
      combine_sums(a, totals, sums);
      for (size_t p = 0; p < a.dtypes.size(); ++p) start_chains(a, sums.arrays[p], p);
      print_start(reduce, sums.scalars, 1);
    };
  }
  const auto add = [&](const std::string& chain, const std::string& live) {
    print(reduce.body);
    const std::vector<std::string> from = print_yields(a, live);
    print_combine(reduce.combine,
                  width_ == 1 ? sums.scalars : elements(sums.arrays, chain.empty() ? "0" : chain), from,
                  a.dtypes, width_);
  };
  const auto print_dim = [&] {
    text_.open("");
    const std::string count = index(dim.extent);  // before the facts state that it is at least 1
    const sym::Facts outer = facts_;
    facts_.set_index(dim.var, dim.extent);
    if (here)
      print_blocks(*blocks, count, [&](const std::string& from, const std::string& to) {
        print_strips({.var = dim.var,
                      .from = from,
                      .to = to,
                      .count = {},
                      .width = a.width,
                      .unroll = a.chains,
                      .aligned = true},
                     add);
      });
    else
      print_strips({.var = dim.var,
                    .from = "0",
                    .to = count,
                    .count = extent,
                    .width = a.width,
                    .unroll = a.chains,
                    .aligned = true},
                   add);
    facts_ = outer;
    text_.close();
  };
  print_loops(loops, 0, print_dim, blocks ? &*blocks : nullptr);
  if (blocks) combine_sums(a, sums, totals);
  print_whole(a, sums);
}

Body::Sums Body::declare_sums(const Along& a) {
  Sums sums;
  for (size_t p = 0; p < a.dtypes.size(); ++p) {
    sums.arrays.push_back(text_.fresh("a"));
    text_.line(cat(text_.value_type(a.dtypes[p], a.width), " ", sums.arrays[p], "[", a.chains, "];"));
    start_chains(a, sums.arrays[p], p);
    if (!a.scalar_tail) continue;
    sums.scalars.push_back(text_.fresh("a"));
    text_.line(cat(text_.value_type(a.dtypes[p]), " ", sums.scalars[p], " = ",
                   identity(a.reduce.combine, a.dtypes[p], p), ";"));
  }
  return sums;
}

void Body::start_chains(const Along& a, const std::string& array, size_t part) {
  text_.line("#pragma clang loop unroll(full)");
  text_.line(cat(a.each_chain(), " ", array, "[u] = (", text_.value_type(a.dtypes[part], a.width), ")(",
                 identity(a.reduce.combine, a.dtypes[part], part), ");"));
}

void Body::combine_sums(const Along& a, const Sums& into, const Sums& from) {
  const loop::Combine combine = a.reduce.combine;
  text_.line("#pragma clang loop unroll(full)");
  text_.open(a.each_chain());
  print_combine(combine, elements(into.arrays, "u"), elements(from.arrays, "u"), a.dtypes, a.width);
  text_.close();
  if (a.scalar_tail) print_combine(combine, into.scalars, from.scalars, a.dtypes, 1);
}

std::vector<std::string> Body::print_yields(const Along& a, const std::string& live) {
  std::vector<std::string> out;
  for (size_t p = 0; p < a.dtypes.size(); ++p) {
    const DType dtype = a.dtypes[p];
    std::string yielded = widened(value(a.reduce.yields[p]), width_);
    if (!live.empty()) {
      text_.use("from_bits", width_);
      text_.use(cat("select.", text_.value_type(dtype)), width_);
      const std::string type = text_.value_type(dtype, width_);
      yielded = cat("sd_select(sd_", text_.value_type(DType::kBool, width_), "(", live, "), ", yielded, ", (",
                    type, ")(", identity(a.reduce.combine, dtype, p), "))");
    }
    out.push_back(text_.fresh("v"));
    text_.line(cat("const ", text_.value_type(dtype, width_), " ", out[p], " = ", yielded, ";"));
  }
  return out;
}

void Body::print_whole(const Along& a, const Sums& sums) {
  const loop::Combine combine = a.reduce.combine;
  for (int half = a.chains / 2; half >= 1; half /= 2)
    for (int u = 0; u < half; ++u)
      print_combine(combine, elements(sums.arrays, cat(u)), elements(sums.arrays, cat(u + half)), a.dtypes,
                    a.width);
  const std::vector<std::string> whole = print_tree(a.reduce, elements(sums.arrays, "0"), a.width);
  if (a.scalar_tail) print_combine(combine, whole, sums.scalars, a.dtypes, 1);
  set_results(a.reduce, whole, 1);
}

std::vector<std::string> Body::print_tree(const loop::Reduce& reduce, std::vector<std::string> now,
                                          int width) {
  const std::vector<DType> dtypes = dtypes_of(reduce);
  // LLVM 19 turns a sum of 16 products of bytes into vpdpbusd and loses three of its four 32-bit sums. An
  // empty asm statement hides the pattern from it.
  bool opaque = text_.is_cuda() || !text_.target().vnni || reduce.combine != loop::Combine::kSum;
  for (int w = width / 2; w >= 1; w /= 2) {
    const int bytes_here = 2 * w * byte_size(DType::kI32);
    for (size_t p = 0; !opaque && p < dtypes.size() && dtypes[p] == DType::kI32; ++p)
      if (bytes_here <= text_.target().vector_bytes && bytes_here >= 16) {
        text_.line(cat("__asm__(\"\" : \"+v\"(", now[p], "));"));
        opaque = true;
      }
    std::vector<std::string> low, high;
    for (size_t p = 0; p < dtypes.size(); ++p) {
      const std::string type = text_.value_type(dtypes[p], w);
      low.push_back(text_.fresh("a"));
      high.push_back(text_.fresh("a"));
      auto half = [&](int from) -> std::string {
        if (w == 1) return cat(now[p], "[", from, "]");
        // Shuffles need storable elements: bools are converted to bytes.
        std::string list;
        for (int l = 0; l < w; ++l) list += cat(", ", from + l);
        if (dtypes[p] != DType::kBool)
          return cat("__builtin_shufflevector(", now[p], ", ", now[p], list, ")");
        const std::string bytes = text_.value_type(DType::kU8, 2 * w);
        text_.value_type(DType::kU8, w);
        return cat("__builtin_convertvector(__builtin_shufflevector(__builtin_convertvector(", now[p], ", ",
                   bytes, "), __builtin_convertvector(", now[p], ", ", bytes, ")", list, "), ", type, ")");
      };
      text_.line(cat(type, " ", low[p], " = ", half(0), ";"));
      text_.line(cat("const ", type, " ", high[p], " = ", half(w), ";"));
    }
    print_combine(reduce.combine, low, high, dtypes, w);
    now = low;
  }
  return now;
}

}  // namespace stridec::codegen
