#include "compiler/kernels/im2col.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "compiler/base/text.h"
#include "compiler/kernels/contraction.h"
#include "compiler/loop/text.h"
#include "compiler/loop/verify.h"
#include "tests/support/matrix_cases.h"

namespace stridec::kernels {
namespace {

using sym::Expr;
using Dims = std::vector<loop::Dim>;
using Values = std::map<Expr, int64_t, sym::ExprLess>;

int64_t value(Expr e, const Values& values) {
  for (const auto& [var, at] : values) e = sym::substitute(e, var, at);
  return e.value();
}

// The image in the nest's terms, with its lines and depth: %b %y %x by %r %s %c, as far as they exist.
struct Image {
  loop::Program program;
  const loop::Load* load = nullptr;
  Dims lines, depth, rest;
  sym::Facts facts;
};

Image image_of(const std::string& text) {
  Image out{.program = loop::parse_program(text),
            .load = nullptr,
            .lines = {},
            .depth = {},
            .rest = {},
            .facts = {}};
  loop::verify(out.program);
  const loop::Nest& nest = out.program.nests[0];
  const auto contraction = match_contraction(nest);
  REQUIRE(contraction);
  for (const Factor& factor : contraction->factors)
    for (const loop::Stmt* stmt : factor.slice)
      if (const auto* load = std::get_if<loop::Load>(&stmt->node); load && load->access.buffer.value == 0)
        out.load = load;
  REQUIRE(out.load);
  for (const char* name : {"%b", "%z", "%y", "%x"})
    for (const loop::Dim& dim : nest.dims)
      if (dim.var.name() == name) out.lines.push_back(dim);
  for (const char* name : {"%q", "%r", "%s", "%c"})
    for (const loop::Dim& dim : contraction->reduce->dims)
      if (dim.var.name() == name) out.depth.push_back(dim);
  for (const loop::Dim& dim : nest.dims)
    if (dim.var.name() == "%g") out.rest.push_back(dim);
  out.facts = facts_in(out.program, nest, *contraction);
  return out;
}

void for_each(const Dims& dims, size_t at, Values& values, const std::function<void()>& visit) {
  if (at == dims.size()) return visit();
  // Only some values of symbolic sizes and of channels.
  const int64_t extent = std::min<int64_t>(sym::as_const(dims[at].extent).value_or(2), 16);
  for (int64_t i = 0; i < extent; ++i) {
    values[dims[at].var] = i;
    for_each(dims, at + 1, values, visit);
  }
}

// Visits the image as the copy engine's documentation specifies, in parallel with the nest's indices.
void check(const std::string& text) {
  const Image image = image_of(text);
  const auto found = match_im2col(image.program, image.load->access, image.lines, image.depth, image.facts);
  REQUIRE(found);
  const loop::Access& access = image.load->access;
  const loop::Buffer& buffer = image.program[access.buffer];
  REQUIRE(found->places.size() + 1 == image.lines.size());
  for (size_t p = 0; p < found->places.size(); ++p) {
    const Im2col::Place& place = found->places[p];
    const loop::Dim& row = image.lines[image.lines.size() - 1 - p];  // the fastest dim first
    CHECK(place.row == row.var);
    CHECK((buffer.shape[place.dim].value() - 1 + place.upper - place.lower) / place.step + 1 ==
          row.extent.value());
  }
  Dims all = image.lines;
  all.insert(all.end(), image.depth.begin(), image.depth.end());
  all.insert(all.end(), image.rest.begin(), image.rest.end());
  Values values;
  size_t outside = 0, wrong = 0;
  for_each(all, 0, values, [&] {
    bool inside = true, same = true;
    for (const Im2col::Place& place : found->places) {
      const int64_t at = values.at(place.row) * place.step + place.lower + value(place.offset, values);
      inside = inside && at >= 0 && at < buffer.shape[place.dim].value();
      same = same && at == value(access.index[place.dim], values);
    }
    same = same && value(access.index[found->image], values) == values.at(image.lines[0].var) &&
           value(access.index[found->channel], values) ==
               values.at(image.depth.back().var) + value(found->first_channel, values);
    wrong += !same || inside != (value(access.mask, values) != 0);
    outside += !inside;
  });
  CHECK(wrong == 0);
  CHECK((outside > 0) == !access.mask.is_const(1));
}

bool matches(const std::string& text) {
  const Image image = image_of(text);
  return match_im2col(image.program, image.load->access, image.lines, image.depth, image.facts).has_value();
}

// The text with `from` replaced by `to`.
std::string changed(const std::string& text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  return replaced(text, from, to);
}

// Windows of 3 along one dim, with `lines` output positions per row of a symbolic number of pixels.
const std::string kRows =
    "program p\n  symbol w = input 0 dim 1 in 1..1000\n  input x f16 [4, w, 64] ordinal 0\n"
    "  input k f16 [8, 3, 64] ordinal 1\n  output y f16 [4, w, 8] ordinal 0\n  inputs (x, k)\n  outputs "
    "(y)\n  steps\n"
    "    nest 0 conv (%b<4, %o<8, %x<w)\n      %0 : f32 = reduce sum (%c<64, %s<3)\n"
    "        %1 : f16 = load x[%b, %x + %s - 1, %c] if 0 <= %x + %s - 1 && %x + %s - 1 < w else 0\n"
    "        %2 : f32 = cast %1\n        %3 : f16 = load k[%o, %s, %c]\n        %4 : f32 = cast %3\n"
    "        %5 : f32 = mul %2 %4\n        yield %5\n      %6 : f16 = cast %0\n      store y[%b, %x, %o] "
    "%6\n";

}  // namespace

TEST_CASE("convolutions of channels by 64 are windows of images, and as the nest has them") {
  int found = 0;
  for (const test::Conv& c : test::convolutions()) {
    CAPTURE(c.name);
    const std::string text = test::convolution_case("f16", c).text;
    const bool wide = c.in / c.groups % (kIm2colBytes / 2) == 0 && c.channels_last;
    CHECK(matches(text) == wide);
    if (!wide) continue;
    check(text);
    ++found;
  }
  CHECK(found >= 6);
}

TEST_CASE("sizes may be symbols where the number of windows is known by them") {
  const Image image = image_of(kRows);
  const auto found = match_im2col(image.program, image.load->access, image.lines, image.depth, image.facts);
  REQUIRE(found);
  CHECK(found->places[0].lower == -1);
  CHECK(found->places[0].upper == -1);
}

TEST_CASE("windows may be read backwards, as by a convolution's gradient") {
  for (const char* index : {"%x - %s + 1", "%x - 3*%s + 2", "%x - %s", "%x - 2*%s + 4"})
    check(changed(changed(kRows, "%x + %s - 1", index), "in 1..1000", "in 9..9"));
}

TEST_CASE("what the engine does not do") {
  // Edges that differ from the image's.
  CHECK_FALSE(matches(changed(kRows, "%x + %s - 1 < w", "%x + %s - 1 < 7")));
  CHECK_FALSE(
      // Channels not divisible into boxes of 64.
      matches(changed(changed(kRows, "64]", "63]"), "%c<64", "%c<63")));
  // Offsets that exceed the bit field.
  CHECK_FALSE(matches(changed(kRows, "%x + %s - 1", "%x + %s * 40000 - 40000")));
}

}  // namespace stridec::kernels
