#include "compiler/loop/program.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "compiler/base/diagnostic.h"
#include "compiler/base/numeric.h"
#include "compiler/base/text.h"

namespace stridec::loop {
namespace {

constexpr ScalarOpInfo kScalarOps[] = {
#define STRIDEC_SCALAR_OP(id, text, arity, rule, cost) {text, arity, ResultRule::rule, cost},
#include "compiler/loop/scalar_op.def"
#undef STRIDEC_SCALAR_OP
};

struct CombineInfo {
  std::string_view name;
  int arity;
};
constexpr CombineInfo kCombines[] = {{"sum", 1},         {"prod", 1},       {"max", 1},    {"min", 1},
                                     {"and", 1},         {"or", 1},         {"argmax", 2}, {"argmin", 2},
                                     {"argmax_last", 2}, {"argmin_last", 2}};
static_assert(std::size(kCombines) == static_cast<size_t>(Combine::kArgMinLast) + 1);

// Texts of nodes, which stay where they are.
struct Nodes {
  std::mutex mutex;
  std::deque<std::string> texts;
  std::unordered_map<std::string_view, NodeId> ids;
};
Nodes& nodes() {
  static Nodes& all = *new Nodes;
  return all;
}

}  // namespace

const ScalarOpInfo& info(ScalarOp op) { return kScalarOps[static_cast<int>(op)]; }

std::optional<ScalarOp> parse_scalar_op(std::string_view name) {
  for (size_t i = 0; i < std::size(kScalarOps); ++i)
    if (kScalarOps[i].name == name) return static_cast<ScalarOp>(i);
  return std::nullopt;
}

NodeId node_of(std::string_view text) {
  Nodes& all = nodes();
  const std::lock_guard lock(all.mutex);
  if (const auto known = all.ids.find(text); known != all.ids.end()) return known->second;
  const NodeId id(static_cast<int64_t>(all.texts.size()));
  all.ids.emplace(all.texts.emplace_back(text), id);
  return id;
}

const std::string& text_of(NodeId node) {
  Nodes& all = nodes();
  const std::lock_guard lock(all.mutex);
  return all.texts[static_cast<size_t>(node.value)];
}

int arity(Combine combine) { return kCombines[static_cast<int>(combine)].arity; }
std::string_view name(Combine combine) { return kCombines[static_cast<int>(combine)].name; }

std::optional<Combine> parse_combine(std::string_view name) {
  for (size_t i = 0; i < std::size(kCombines); ++i)
    if (kCombines[i].name == name) return static_cast<Combine>(i);
  return std::nullopt;
}

Scalar float_scalar(DType dtype, double value) {
  if (is_float(dtype)) return {.dtype = dtype, .f = round_float(dtype, value), .i = 0};
  return {.dtype = dtype, .f = 0, .i = float_to_integer(dtype, value, false)};
}

Scalar int_scalar(DType dtype, int64_t value) {
  if (is_float(dtype)) return {.dtype = dtype, .f = round_float(dtype, static_cast<double>(value)), .i = 0};
  return {.dtype = dtype, .f = 0, .i = wrap_integer(dtype, value)};
}

Scalar identity(Combine combine, DType dtype) {
  auto extreme = [&](int sign) -> Scalar {
    if (is_float(dtype)) {
      double infinity = round_float(dtype, HUGE_VAL);
      return {.dtype = dtype, .f = sign * (std::isnan(infinity) ? largest_finite(dtype) : infinity), .i = 0};
    }
    IntegerRange range = integer_range(dtype);
    return {.dtype = dtype, .f = 0, .i = sign < 0 ? range.lo : static_cast<int64_t>(range.hi)};
  };
  switch (combine) {
    case Combine::kSum:
    case Combine::kOr: return int_scalar(dtype, 0);
    case Combine::kProd:
    case Combine::kAnd: return int_scalar(dtype, 1);
    case Combine::kMax:
    case Combine::kArgMax:
    case Combine::kArgMaxLast: return extreme(-1);
    case Combine::kMin:
    case Combine::kArgMin:
    case Combine::kArgMinLast: return extreme(1);
  }
  return {};
}

// ---- schedules -------------------------------------------------------------------------------------------

// "gemm_f32: tile m 14; vectorize n 16": the kernel's name followed by a colon, if there is one, then the
// directives.
std::string to_string(const Schedule& schedule) {
  std::string out = schedule.kernel.empty() ? "" : schedule.kernel + ":";
  bool first = true;
  for (const Directive& d : schedule.directives) {
    if (!first) out += "; ";
    if (first && !out.empty()) out += " ";
    first = false;
    out += d.name;
    for (const std::string& arg : d.args) out += " " + arg;
  }
  return out;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  auto words = [&](std::string_view part) {
    std::vector<std::string> out;
    for (size_t i = 0; i < part.size();) {
      while (i < part.size() && is_space(part[i])) ++i;
      size_t begin = i;
      while (i < part.size() && !is_space(part[i])) ++i;
      if (i > begin) out.emplace_back(part.substr(begin, i - begin));
    }
    return out;
  };
  if (size_t colon = text.find(':'); colon != std::string_view::npos) {
    std::vector<std::string> kernel = words(text.substr(0, colon));
    if (kernel.size() != 1)
      fail(ErrorKind::kMalformed, "bad-schedule",
           cat("a schedule's kernel is one word, not '", text.substr(0, colon), "'"));
    schedule.kernel = kernel[0];
    text.remove_prefix(colon + 1);
  }
  while (!text.empty()) {
    size_t end = std::min(text.find(';'), text.size());
    std::vector<std::string> parts = words(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (parts.empty()) continue;
    schedule.directives.push_back({parts[0], {parts.begin() + 1, parts.end()}});
  }
  return schedule;
}

// ---- buffers and nests -----------------------------------------------------------------------------------

std::vector<sym::Expr> TiledGroup::symbols() const {
  std::vector<sym::Expr> all = {first, size};
  if (round.is_var()) all.push_back(round);
  for (const Size& each : sizes) all.push_back(each.symbol);
  return all;
}

void set_ranges(sym::Facts& facts, const TiledGroup& strips) {
  facts.set_range(strips.first, 0, std::nullopt);
  facts.set_range(strips.size, strips.least, strips.most);
  if (strips.round.is_var()) facts.set_range(strips.round, 0, std::nullopt);
  for (const TiledGroup::Size& size : strips.sizes) facts.set_range(size.symbol, 0, size.most);
}

sym::Expr threads_of(const Program& program) {
  std::string name = "threads";
  while (std::any_of(program.symbols.begin(), program.symbols.end(),
                     [&](const Symbol& symbol) { return symbol.var.name() == name; }))
    name += '_';
  return sym::var(name);
}

std::vector<sym::Expr> row_major(const std::vector<sym::Expr>& shape) {
  std::vector<sym::Expr> strides(shape.size());
  sym::Expr step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step = step * shape[d];
  }
  return strides;
}

sym::Expr element_count(const std::vector<sym::Expr>& shape) { return sym::product(shape); }

NestId add_nest(Program& program, Nest nest) {
  program.nests.push_back(std::move(nest));
  return NestId(static_cast<int64_t>(program.nests.size()) - 1);
}

bool is_constant(const Buffer& buffer) {
  return buffer.storage == Storage::kParameter && !buffer.replaceable;
}

bool holds_any(const Bind& bind, DType value) {
  const auto extent = sym::as_const(bind.extent);
  return extent && is_integer(value) && !is_signed(value) && info(value).bits < 63 &&
         *extent >= int64_t{1} << info(value).bits;
}

}  // namespace stridec::loop
