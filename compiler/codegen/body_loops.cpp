// Body: loops, and for and scan statements.
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

void Body::print_blocks(const Blocks& blocks, const std::string& count,
                        const std::function<void(const std::string& from, const std::string& to)>& inside) {
  const std::string from = text_.fresh("i"), to = text_.fresh("n");
  text_.open(
      cat("for (int64_t ", from, " = 0; ", from, " < ", count, "; ", from, " += ", blocks.points, ")"));
  text_.line(cat("const int64_t ", to, " = ", count, " - ", from, " > ", blocks.points, " ? ", from, " + ",
                 blocks.points, " : ", count, ";"));
  inside(from, to);
  const std::string points = cat("(", to, " - ", from, ")");
  const std::string additions =
      blocks.at_once == 1 ? points : cat(points, " / ", blocks.at_once, " + ", points, " % ", blocks.at_once);
  text_.line(cat(blocks.taken, " += ", additions, ";"));
  text_.open(cat("if (", blocks.taken, " >= ", blocks.points / blocks.at_once, ")"));
  blocks.print_flush();
  text_.line(cat(blocks.taken, " = 0;"));
  text_.close();
  text_.close();
}

void Body::print_loops(const std::vector<loop::Dim>& dims, size_t next, const std::function<void()>& inside,
                       const Blocks* blocks) {
  if (next == dims.size()) return inside();
  const loop::Dim& dim = dims[next];
  STRIDEC_CHECK(width_ == 1 || !sym::depends_on(dim.extent, *lane_var_), "lanes would not end together");
  const std::string count = index(dim.extent);
  const auto loop = [&](const std::string& from, const std::string& to) {
    const std::string i = text_.fresh("i");
    text_.open(cat("for (int64_t ", i, " = ", from, "; ", i, " < ", to, "; ++", i, ")"));
    set_index(dim.var, i);
    const sym::Facts outer = facts_;
    facts_.set_index(dim.var, dim.extent);
    print_loops(dims, next + 1, inside, blocks);
    facts_ = outer;
    text_.close();
  };
  if (blocks && blocks->loop == next) return print_blocks(*blocks, count, loop);
  loop("0", count);
}

void Body::print_strips(
    const Strips& strips,
    const std::function<void(const std::string& chain, const std::string& live)>& inside) {
  const auto& [var, from, to, count, width, unroll, aligned, single, narrow] = strips;
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
    std::vector<int> widths;
    if (unroll > 1) widths.push_back(width);
    if (narrow > 0) widths.push_back(narrow);
    if (narrow > 0 && left) widths.push_back(narrow / 2);
    for (const int lanes : widths) {
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
      print_strips({.var = dim.var,
                    .from = "0",
                    .to = count,
                    .count = sym::as_const(dim.extent),
                    .width = found->second,
                    .aligned = true},
                   [&](const std::string&, const std::string&) { print(loop.body); });
      text_.close();
      facts_ = outer;
    });
  }
  print_loops(loop.dims, 0, [&] { print(loop.body); });
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
