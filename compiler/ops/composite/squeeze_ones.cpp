// Squeeze without axes: removes the dims of size 1, so that the rank of the result depends on sizes.
#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/ops/composite/shape.h"
#include "compiler/ops/name_size.h"
#include "compiler/sym/text.h"

namespace stridec::ops {
namespace {

struct Sizes {
  Dims ones;  // dims of size at most 1
  Dims open;  // dims whose size may be 1 or larger
};

Sizes sort_out(Term x) {
  const Builder& b = x.builder();
  Sizes out;
  const sym::Facts facts = b.known_facts();
  for (int64_t d = 0; d < x.rank(); ++d) {
    const sym::Answer one = b.prove(sym::eq(x.dim(d), 1));
    if (one == sym::Answer::kNo) continue;
    // A slice of one row has min(1, n) rows: one, or none for an empty tensor. Models do not expect the
    // latter.
    const bool at_most_one = one == sym::Answer::kYes || facts.bounds(x.dim(d)).hi <= 1;
    (at_most_one ? out.ones : out.open).push_back(d);
  }
  return out;
}

// "b, n": the names in the sizes of these dims that --dim can set.
std::vector<std::string> names_of_inputs(Term x, const Dims& dims) {
  std::vector<std::string> out;
  for (int64_t d : dims)
    for (sym::Expr v : sym::free_vars(x.dim(d)))
      if (!x.builder().is_bound_in_run(v) && std::find(out.begin(), out.end(), v.name()) == out.end())
        out.push_back(v.name());
  return out;
}

[[noreturn]] void refuse(Term x, const Dims& open, const std::string& result) {
  const std::string sizes =
      join(open, ", ", [&](int64_t d) { return cat("dim ", d, " (", sym::to_string(x.dim(d)), ")"); });
  std::string help = cat("give Squeeze its axes, or declare the shape of ", result, " in the model");
  if (const auto names = names_of_inputs(x, open); !names.empty())
    help += cat(", or say the sizes: --dim ", names[0], "=1, or --dim ", names[0], "=2..64");
  fail(ErrorKind::kUnsupported, "unsupported",
       cat("Squeeze has no axes, and the rank of ", result, " depends on sizes that are not known at ",
           "compile time and may be 1: ", sizes),
       help);
}

// x without those open dims that are 1. A guard checks that their number is `leaving`.
Term without_some(Term x, const Dims& open, int64_t leaving) {
  Shape shape;
  for (int64_t j = 0; j < x.rank() - leaving; ++j) {
    if (j < open.front() || j + leaving > open.back()) {
      shape.push_back(x.dim(j < open.front() ? j : j + leaving));
      continue;
    }
    // Dim s is the j-th remaining dim if s - j dims before it are removed and it is not.
    sym::Expr size = x.dim(j + leaving);
    for (int64_t s = j + leaving - 1; s >= j; --s) {
      sym::Expr before = 0;
      for (int64_t d : open)
        if (d < s) before += sym::eq(x.dim(d), 1);
      const bool may_leave = std::find(open.begin(), open.end(), s) != open.end();
      const sym::Expr stays = may_leave ? sym::ne(x.dim(s), 1) : sym::Expr(1);
      size = sym::select(sym::logical_and(stays, sym::eq(before, s - j)), x.dim(s), size);
    }
    shape.push_back(size);
  }
  return reshape(x, named(x.builder(), shape, "size"));
}

}  // namespace

Term squeeze_ones(Term x, std::optional<int64_t> declared, const std::string& result) {
  Builder& b = x.builder();
  const Sizes sizes = sort_out(x);
  const auto most = x.rank() - static_cast<int64_t>(sizes.ones.size()),
             least = most - static_cast<int64_t>(sizes.open.size());
  std::optional<int64_t> rank = least == most ? most : declared;
  std::string reason;
  if (rank && least <= *rank && *rank <= most) {
    reason =
        cat("the result was compiled with ", *rank, *rank == 1 ? " dim" : " dims", ", as the model needs");
  } else if (!sizes.ones.empty() || sizes.open.size() == 1) {
    // A Squeeze that removes nothing is unlikely in a model: it removes the dims known to be 1, or else the
    // only dim that can be 1.
    rank = sizes.ones.empty() ? least : most;
    reason =
        sizes.ones.empty() ? "no other dim can be 1" : "the model declares no rank, and other dims are 1";
  } else {
    refuse(x, sizes.open, result);
  }
  for (int64_t d : sizes.ones)
    b.require(sym::eq(x.dim(d), 1), cat("dim ", d, " is to be removed as a size of 1, but is {0}"),
              {x.dim(d)});
  const int64_t leaving = most - *rank, open = static_cast<int64_t>(sizes.open.size());
  Dims gone = sizes.ones;
  if (leaving == 0) {
    for (int64_t d : sizes.open)
      b.require(sym::ne(x.dim(d), 1),
                cat("Squeeze keeps dim ", d, " and would remove its size of {0}: ", reason), {x.dim(d)});
  } else if (leaving == open) {
    for (int64_t d : sizes.open)
      b.require(sym::eq(x.dim(d), 1), cat("Squeeze removes dim ", d, ", whose size {0} is not 1: ", reason),
                {x.dim(d)});
    gone.insert(gone.end(), sizes.open.begin(), sizes.open.end());
  } else {
    sym::Expr ones = 0;
    std::vector<sym::Expr> values;
    for (int64_t d : sizes.open) {
      ones += sym::eq(x.dim(d), 1);
      values.push_back(x.dim(d));
    }
    size_t next = 0;
    const std::string list = join(sizes.open, ", ", [&](int64_t) { return cat("{", next++, "}"); });
    b.require(sym::eq(ones, leaving),
              cat("of the sizes ", list, " Squeeze removes ", leaving, ", those that are 1: ", reason),
              values);
  }
  const Term y = squeeze(x, gone);
  if (leaving == 0 || leaving == open) return y;
  Dims left;  // the open dims that y keeps
  for (int64_t d : sizes.open)
    left.push_back(d - std::count_if(gone.begin(), gone.end(), [&](int64_t g) { return g < d; }));
  return without_some(y, left, leaving);
}

}  // namespace stridec::ops
