// Body: reduce, for and scan statements.
#include "compiler/base/check.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/loop/vectorize_analysis.h"
#include "compiler/loop/walk.h"

namespace stridec::codegen {
namespace {

using loop::Combine;

bool is_arg(Combine combine) {
  return combine == Combine::kArgMax || combine == Combine::kArgMin || combine == Combine::kArgMaxLast ||
         combine == Combine::kArgMinLast;
}

}  // namespace

std::string Body::identity(Combine combine, DType dtype, size_t part) {
  const bool largest =
      combine == Combine::kMin || combine == Combine::kArgMin || combine == Combine::kArgMinLast;
  switch (combine) {
    case Combine::kSum: return literal(loop::int_scalar(dtype, 0));
    case Combine::kProd: return literal(loop::int_scalar(dtype, 1));
    case Combine::kAnd: return is_bool(dtype) ? "true" : literal(loop::int_scalar(dtype, -1));
    case Combine::kOr: return is_bool(dtype) ? "false" : literal(loop::int_scalar(dtype, 0));
    default: break;
  }
  if (is_arg(combine) && part == 1)  // loses against every index
    return combine == Combine::kArgMaxLast || combine == Combine::kArgMinLast ? "(-1l)"
                                                                              : "9223372036854775807l";
  if (is_bool(dtype)) return largest ? "true" : "false";
  if (is_float(dtype))
    return dtype == DType::kF64 ? (largest ? "__builtin_inf()" : "-__builtin_inf()")
           : largest            ? "__builtin_inff()"
                                : "-__builtin_inff()";
  const IntegerRange range = integer_range(dtype);
  return literal(loop::int_scalar(dtype, largest ? static_cast<int64_t>(range.hi) : range.lo));
}

void Body::print_combine(Combine combine, const std::vector<std::string>& into,
                         const std::vector<std::string>& from, const std::vector<DType>& dtypes, int width) {
  if (loop::arity(combine) == 1 && into.size() > 1) {
    for (size_t i = 0; i < into.size(); ++i) print_combine(combine, {into[i]}, {from[i]}, {dtypes[i]}, width);
    return;
  }
  const DType dtype = dtypes[0];
  const std::string& a = into[0];
  const std::string& b = from[0];
  const std::string type = text_.value_type(dtype, width);
  const bool floating = is_float(dtype), boolean = is_bool(dtype);
  auto arithmetic = [&](const char* op) {
    if (boolean) return text_.line(cat(a, " = ", a, op[0] == '+' ? " | " : " & ", b, ";"));
    if (floating || !is_signed(dtype))
      return text_.line(cat(a, " = (", type, ")(", a, " ", op, " ", b, ");"));
    const std::string u = cat("u", text_.value_type(dtype).substr(1));
    const std::string uv = text_.value_type(*parse_dtype(u), width);
    text_.line(cat(a, " = (", type, ")((", uv, ")", a, " ", op, " (", uv, ")", b, ");"));
  };
  switch (combine) {
    case Combine::kSum: return arithmetic("+");
    case Combine::kProd: return arithmetic("*");
    case Combine::kAnd: return text_.line(cat(a, " = ", a, " & ", b, ";"));
    case Combine::kOr: return text_.line(cat(a, " = ", a, " | ", b, ";"));
    case Combine::kMax:
    case Combine::kMin: {
      const bool min = combine == Combine::kMin;
      if (boolean) return text_.line(cat(a, " = ", a, min ? " & " : " | ", b, ";"));
      if (!floating) return text_.line(cat(a, " = (", a, min ? " < " : " > ", b, ") ? ", a, " : ", b, ";"));
      text_.use(cat(min ? "min." : "max.", text_.value_type(dtype)), width);
      return text_.line(cat(a, min ? " = sd_fmin(" : " = sd_fmax(", a, ", ", b, ");"));
    }
    default: break;
  }
  // Key and index. A NaN beats every number; between equal keys (or NaNs) the index decides.
  STRIDEC_CHECK(is_arg(combine));
  const bool max = combine == Combine::kArgMax || combine == Combine::kArgMaxLast;
  const bool last = combine == Combine::kArgMaxLast || combine == Combine::kArgMinLast;
  const std::string bools = text_.value_type(DType::kBool, width), take = text_.fresh("v");
  auto test = [&](const std::string& x, const char* op, const std::string& y,
                  bool keys_are_bool = false) -> std::string {
    if (width == 1) return cat("(", x, " ", op, " ", y, ")");
    if (keys_are_bool)
      return op[0] == '='   ? cat("~(", x, " ^ ", y, ")")
             : op[0] == '<' ? cat("(~", x, " & ", y, ")")
                            : cat("(", x, " & ~", y, ")");
    return cat("__builtin_convertvector(", x, " ", op, " ", y, ", ", bools, ")");
  };
  std::string better = test(b, max ? ">" : "<", a, boolean), equal = test(b, "==", a, boolean);
  if (floating) {
    const std::string na = test(a, "!=", a), nb = test(b, "!=", b);
    better = cat("(", better, " | (", nb, " & ", width == 1 ? "!" : "~", na, "))");
    equal = cat("(", equal, " | (", nb, " & ", na, "))");
  }
  text_.line(cat("const ", bools, " ", take, " = ", better, " | (", equal, " & ",
                 test(from[1], last ? ">" : "<", into[1]), ");"));
  for (size_t i = 0; i < 2; ++i) {
    if (width > 1) text_.use(cat("select.", text_.value_type(dtypes[i])), width);
    text_.line(width == 1 ? cat(into[i], " = ", take, " ? ", from[i], " : ", into[i], ";")
                          : cat(into[i], " = sd_select(", take, ", ", from[i], ", ", into[i], ");"));
  }
}

// ---- loops

void Body::print_loops(const std::vector<loop::Dim>& dims, size_t next, const std::function<void()>& inside) {
  if (next == dims.size()) return inside();
  const loop::Dim& dim = dims[next];
  STRIDEC_CHECK(width_ == 1 || !sym::depends_on(dim.extent, *lane_var_), "lanes would not end together");
  const std::string i = text_.fresh("i");
  text_.open(cat("for (int64_t ", i, " = 0; ", i, " < ", index(dim.extent), "; ++", i, ")"));
  set_index(dim.var, i);
  const sym::Facts outer = facts_;
  facts_.set_index(dim.var, dim.extent);
  print_loops(dims, next + 1, inside);
  facts_ = outer;
  text_.close();
}

void Body::print_strips(sym::Expr var, const std::string& from, const std::string& to,
                        std::optional<int64_t> count, int width, int unroll,
                        const std::function<void(const std::string& chain, const std::string& live)>& inside,
                        bool aligned, bool single, int narrow) {
  const std::string i = text_.fresh("i");
  const int step = width * unroll;
  text_.line(cat("int64_t ", i, " = ", from, ";"));
  if (!count || *count >= step) {
    text_.open(cat("for (; ", i, " + ", step, " <= ", to, "; ", i, " += ", step, ")"));
    std::string chain;
    if (unroll > 1) {
      chain = text_.fresh("u");
      text_.line("#pragma clang loop unroll(full)");
      text_.open(cat("for (int ", chain, " = 0; ", chain, " < ", unroll, "; ++", chain, ")"));
      set_index(var, cat("(", i, " + ", chain, " * ", width, ")"));
    } else {
      set_index(var, i);
    }
    set_lanes(var, width, "", aligned);
    inside(chain, "");
    clear_lanes();
    if (unroll > 1) text_.close();
    text_.close();
  }
  std::optional<int64_t> left = count;
  if (left) *left %= step;
  if (left == 0) return;
  set_index(var, i);
  if (!text_.target().avx512 || single) {
    // Loops shorter than a strip would run without vectors, and sum in one long chain of rounding errors.
    std::vector<int> strips;
    if (unroll > 1) strips.push_back(width);
    if (narrow > 0) strips.push_back(narrow);
    if (narrow > 0 && left) strips.push_back(narrow / 2);
    for (const int lanes : strips) {
      if (single || lanes < 2 || (left && *left < lanes)) continue;
      text_.open(cat("for (; ", i, " + ", lanes, " <= ", to, "; ", i, " += ", lanes, ")"));
      set_lanes(var, lanes, "", aligned);
      inside("", "");
      clear_lanes();
      text_.close();
      if (left) *left %= lanes;
      if (left == 0) return;
    }
    text_.open(cat("for (; ", i, " < ", to, "; ++", i, ")"));
    inside("", "");
    return text_.close();
  }
  text_.open(cat("for (; ", i, " < ", to, "; ", i, " += ", width, ")"));
  const std::string live = text_.fresh("k");
  const std::string all = width == 64 ? "~0ul" : cat((uint64_t{1} << width) - 1, "ul");
  text_.line(cat("const u64 ", live, " = ", to, " - ", i, " >= ", width, " ? ", all, " : (1ul << (", to,
                 " - ", i, ")) - 1;"));
  set_lanes(var, width, live, aligned);
  inside("", live);
  clear_lanes();
  text_.close();
}

void Body::print_for(const loop::For& loop) {
  for (size_t d = 0; width_ == 1 && d < loop.dims.size(); ++d) {
    auto found = inner_.width.find(loop.dims[d].var);
    if (found == inner_.width.end() || loop::moves_extents(loop.body, loop.dims[d].var)) continue;
    std::vector<loop::Dim> rest = loop.dims;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(d));
    return print_loops(rest, 0, [&] {
      const loop::Dim& dim = loop.dims[d];
      const std::string count = index(dim.extent);  // evaluated before the facts state that it is at least 1
      const sym::Facts outer = facts_;
      facts_.set_index(dim.var, dim.extent);
      text_.open("");
      print_strips(
          dim.var, "0", count, sym::as_const(dim.extent), found->second, 1,
          [&](const std::string&, const std::string&) { print(loop.body); }, true);
      text_.close();
      facts_ = outer;
    });
  }
  print_loops(loop.dims, 0, [&] { print(loop.body); });
}

void Body::print_reduce(const loop::Reduce& reduce) {
  const size_t parts = reduce.results.size();
  std::vector<DType> dtypes;
  for (loop::ValueId id : reduce.results) dtypes.push_back(nest_.values[id.value].dtype);
  std::vector<std::string> accumulators;
  for (size_t p = 0; p < parts; ++p) accumulators.push_back(text_.fresh("a"));

  size_t along = reduce.dims.size();
  for (size_t d = 0; width_ == 1 && d < reduce.dims.size(); ++d)
    if (inner_.width.count(reduce.dims[d].var) && !loop::moves_extents(reduce.body, reduce.dims[d].var))
      along = d;

  if (along == reduce.dims.size()) {
    int width = 1;
    const std::string loops = text_.capture([&] {
      print_loops(reduce.dims, 0, [&] {
        print(reduce.body);
        std::vector<std::string> from;
        for (loop::ValueId id : reduce.yields) width = std::max(width, value(id).width);
        for (loop::ValueId id : reduce.yields) from.push_back(widened(value(id), width));
        print_combine(reduce.combine, accumulators, from, dtypes, width);
      });
    });
    for (size_t p = 0; p < parts; ++p) {
      const std::string type = text_.value_type(dtypes[p], width);
      text_.line(
          cat(type, " ", accumulators[p], " = (", type, ")(", identity(reduce.combine, dtypes[p], p), ");"));
    }
    text_.append(loops);
    for (size_t p = 0; p < parts; ++p)
      is_storage_float(dtypes[p])
          ? define(reduce.results[p], rounded(accumulators[p], dtypes[p], width), width)
          : set_value(reduce.results[p], {accumulators[p], dtypes[p], width});
    return;
  }

  // Lanes run along a reduced dim: `chains` vectors of partial results, and a scalar for the tail if there
  // are no masks. They are combined in a fixed tree.
  const loop::Dim& dim = reduce.dims[along];
  const int width = inner_.width.at(dim.var);
  auto wanted = inner_.accumulators.find(dim.var);
  int chains = wanted == inner_.accumulators.end() ? 1 : wanted->second;
  const std::optional<int64_t> extent = sym::as_const(dim.extent);
  while (chains > 1 && extent && *extent < width * chains) chains /= 2;
  const bool scalar_tail = !text_.target().avx512 && !(extent && *extent % width == 0);
  std::vector<std::string> scalars;
  for (size_t p = 0; p < parts; ++p) {
    const std::string type = text_.value_type(dtypes[p], width), one = identity(reduce.combine, dtypes[p], p);
    text_.line(cat(type, " ", accumulators[p], "[", chains, "];"));
    text_.line("#pragma clang loop unroll(full)");
    text_.line(
        cat("for (int u = 0; u < ", chains, "; ++u) ", accumulators[p], "[u] = (", type, ")(", one, ");"));
    if (scalar_tail) {
      scalars.push_back(text_.fresh("a"));
      text_.line(cat(text_.value_type(dtypes[p]), " ", scalars[p], " = ", one, ";"));
    }
  }
  std::vector<loop::Dim> rest = reduce.dims;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(along));
  print_loops(rest, 0, [&] {
    text_.open("");
    const std::string count = index(dim.extent);  // evaluated before the facts state that it is at least 1
    const sym::Facts outer = facts_;
    facts_.set_index(dim.var, dim.extent);
    print_strips(
        dim.var, "0", count, extent, width, chains,
        [&](const std::string& chain, const std::string& live) {
          print(reduce.body);
          std::vector<std::string> into, from;
          for (size_t p = 0; p < parts; ++p) {
            std::string yielded = widened(value(reduce.yields[p]), width_);
            if (!live.empty()) {
              text_.use("from_bits", width_);
              text_.use(cat("select.", text_.value_type(dtypes[p])), width_);
              const std::string type = text_.value_type(dtypes[p], width_);
              yielded = cat("sd_select(sd_", text_.value_type(DType::kBool, width_), "(", live, "), ",
                            yielded, ", (", type, ")(", identity(reduce.combine, dtypes[p], p), "))");
            }
            from.push_back(text_.fresh("v"));
            text_.line(cat("const ", text_.value_type(dtypes[p], width_), " ", from[p], " = ", yielded, ";"));
            into.push_back(width_ == 1 ? scalars[p]
                                       : cat(accumulators[p], "[", chain.empty() ? "0" : chain, "]"));
          }
          print_combine(reduce.combine, into, from, dtypes, width_);
        },
        true);
    facts_ = outer;
    text_.close();
  });

  // The tree combines the chains, then halves of the vector, then the tail's scalar.
  auto chain_names = [&](int u) {
    std::vector<std::string> names;
    for (size_t p = 0; p < parts; ++p) names.push_back(cat(accumulators[p], "[", u, "]"));
    return names;
  };
  for (int half = chains / 2; half >= 1; half /= 2)
    for (int u = 0; u < half; ++u)
      print_combine(reduce.combine, chain_names(u), chain_names(u + half), dtypes, width);
  std::vector<std::string> now = chain_names(0);
  // LLVM 19 turns a sum of 16 products of bytes into vpdpbusd and loses three of its four 32-bit sums. An
  // empty asm statement hides the pattern from it.
  bool opaque = text_.is_cuda() || !text_.target().vnni || reduce.combine != loop::Combine::kSum;
  for (int w = width / 2; w >= 1; w /= 2) {
    const int bytes_here = 2 * w * byte_size(DType::kI32);
    for (size_t p = 0; !opaque && p < parts && dtypes[p] == DType::kI32; ++p)
      if (bytes_here <= text_.target().vector_bytes && bytes_here >= 16) {
        text_.line(cat("__asm__(\"\" : \"+v\"(", now[p], "));"));
        opaque = true;
      }
    std::vector<std::string> low, high;
    for (size_t p = 0; p < parts; ++p) {
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
  if (scalar_tail) print_combine(reduce.combine, now, scalars, dtypes, 1);
  for (size_t p = 0; p < parts; ++p)
    is_storage_float(dtypes[p]) ? define(reduce.results[p], rounded(now[p], dtypes[p], 1), 1)
                                : set_value(reduce.results[p], {now[p], dtypes[p], 1});
}

void Body::print_scan(const loop::Scan& scan) {
  const std::string i = text_.fresh("i"), n = index(scan.dim.extent);
  std::vector<std::string> carried;
  const int width = width_;  // carried values may differ between lanes from any step on
  for (size_t c = 0; c < scan.carried.size(); ++c) {
    const DType dtype = nest_.values[scan.carried[c].value].dtype;
    carried.push_back(text_.fresh("c"));
    text_.line(cat(text_.value_type(dtype, width), " ", carried[c], " = ",
                   widened(value(scan.init[c]), width), ";"));
    set_value(scan.carried[c], {carried[c], dtype, width});
  }
  text_.open(scan.reverse ? cat("for (int64_t ", i, " = ", n, " - 1; ", i, " >= 0; --", i, ")")
                          : cat("for (int64_t ", i, " = 0; ", i, " < ", n, "; ++", i, ")"));
  set_index(scan.dim.var, i);
  const sym::Facts outer = facts_;
  facts_.set_index(scan.dim.var, scan.dim.extent);
  print(scan.body);
  std::vector<std::string> next;
  for (size_t c = 0; c < carried.size(); ++c) {
    const DType dtype = nest_.values[scan.carried[c].value].dtype;
    next.push_back(text_.fresh("v"));
    text_.line(cat("const ", text_.value_type(dtype, width), " ", next[c], " = ",
                   widened(value(scan.yields[c]), width), ";"));
  }
  for (size_t c = 0; c < carried.size(); ++c) text_.line(cat(carried[c], " = ", next[c], ";"));
  facts_ = outer;
  text_.close();
  for (size_t c = 0; c < carried.size(); ++c)
    set_value(scan.results[c], {carried[c], nest_.values[scan.carried[c].value].dtype, width});
}

}  // namespace stridec::codegen
