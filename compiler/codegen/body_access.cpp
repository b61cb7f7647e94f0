// Body: addresses, masks, loads, stores and binds.
#include <algorithm>
#include <bit>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/body.h"
#include "compiler/codegen/strided_access.h"
#include "compiler/loop/analysis.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/vectorize_analysis.h"
#include "compiler/loop/walk.h"
#include "compiler/sym/text.h"

namespace stridec::codegen {
namespace {

using sym::Expr;

// A bound on the number of vectors along a dim, which keeps element indices within 64 bits.
constexpr int64_t kManyStrips = int64_t{1} << 40;

std::string conjunction(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : cat(a, " && ", b);
}
std::string both_bits(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : cat("(", a, " & ", b, ")");
}

}  // namespace

// ---- addresses and masks ---------------------------------------------------------------------------------

Body::Memory Body::memory(loop::BufferId buffer) {
  auto found = buffers_.find(buffer);
  if (found != buffers_.end()) return found->second;
  const loop::Buffer& b = text_.program()[buffer];
  STRIDEC_CHECK(b.storage != loop::Storage::kLocal, cat("local buffer '", b.name, "' has no memory"));
  return {text_.pointer(buffer), b.strides};
}

Expr Body::offset_expr(const loop::Access& access) const {
  auto found = buffers_.find(access.buffer);
  const std::vector<Expr>& strides =
      found != buffers_.end() ? found->second.strides : text_.program()[access.buffer].strides;
  Expr offset = 0;
  for (size_t d = 0; d < access.index.size(); ++d) offset += access.index[d] * strides[d];
  return offset;
}

std::string Body::offset(const loop::Access& access) {
  const std::string text = index(offset_expr(access));
  return text.find_first_of("?<>=&|") == std::string::npos ? text : cat("(", text, ")");
}

Body::Address Body::address_of(const loop::Access& access) {
  Address out;
  out.pointer = memory(access.buffer).pointer;
  Expr offset = by_lane(offset_expr(access));
  // Every point has its own copy of a local buffer, interleaved: an element's copies for all lanes are
  // contiguous.
  if (lanes_are_points_ && text_.program()[access.buffer].storage == loop::Storage::kLocal)
    offset = offset * width_ + lane();
  if (!lane_dependent(offset)) {
    out.base = scalar_text(offset);
    out.stride = Expr(0);
    return out;
  }
  bool bound = false;
  for (const Expr& var : sym::free_vars(offset)) bound = bound || lane_index_.count(var);
  if (!bound)
    if (const std::optional<sym::Linear> linear = sym::linear_in(offset, lane());
        linear && !sym::has_index(linear->coefficient)) {
      out.base = scalar_text(linear->rest);
      out.stride = linear->coefficient;
      return out;
    }
  const bool own = lanes_are_points_ && text_.program()[access.buffer].storage == loop::Storage::kLocal;
  if (!bound && !own && lanes_are_aligned_) {
    auto spread = loop::spread_of(offset_expr(access), *lane_var_, width_,
                                  facts_.with_index(loop::strip(), kManyStrips));
    if (spread && spread->elements() <= width_) {
      index_[loop::strip()] = cat("((", index_.at(*lane_var_), ") / ", width_, ")");
      out.base = scalar_text(spread->base);
      if (spread->elements() == 1) {
        out.stride = Expr(0);
        return out;
      }
      out.spread = std::move(spread->spread);
      return out;
    }
  }
  const sym::Facts facts = facts_.with_index(lane(), width_);
  out.rises = !bound && loop::never_falls(offset, lane(), facts);
  if (!bound && (loop::grows_by_at_most_one(offset, lane(), facts) ||
                 loop::grows_by_at_least_one(offset, lane(), facts))) {
    const auto at = [&](int64_t l) {
      return scalar_text(sym::simplify(sym::substitute(offset, lane(), l), facts_));
    };
    out.first = at(0), out.last = at(width_ - 1);
  }
  const Expr c = canonical(offset);
  out.base = "0";
  out.lanes = text_.fresh("o");
  out.declaration =
      cat("const ", text_.value_type(DType::kI64, width_), " ", out.lanes, " = ", vector_text(c, "i64"), ";");
  return out;
}

void Body::print_lanes(Address& at) {
  if (!at.declaration.empty()) text_.line(at.declaration);
  at.declaration.clear();
}

std::string Body::Address::element(const std::string& l, const std::string& stride_text) const {
  if (!lanes.empty()) return cat(pointer, "[", lanes, "[", l, "]]");
  if (!spread.empty()) {
    const std::string table = join(spread, ", ", [](int64_t distance) { return cat(distance); });
    return cat(pointer, "[", base, " + ((const int64_t[]){", table, "})[", l, "]]");
  }
  return cat(pointer, "[", base, " + ", stride->is_const(1) ? "" : cat("(", stride_text, ") * "), l, "]");
}

// Whether one comparison suffices to detect contiguous lanes and replace a gather or scatter, masked by
// `bits`, by a vector access.
bool Body::finds_neighbours(const Address& at, const std::string& bits) const {
  return !at.first.empty() && (bits.empty() || text_.target().avx512);
}

// Adds to `all` that the condition holds in all lanes, if it is a linear inequality: then it holds in all of
// them if it holds in the first and in the last one.
bool Body::add_ends(Expr condition, std::string& all) {
  if (condition.op() != sym::Op::kLt && condition.op() != sym::Op::kLe) return false;
  for (const Expr& var : sym::free_vars(condition))
    if (lane_index_.count(var)) return false;
  const auto linear = sym::linear_in(condition.arg(1) - condition.arg(0), lane());
  const auto step = linear ? sym::as_const(linear->coefficient) : std::nullopt;
  if (!step) return false;
  const Expr end = sym::substitute(condition, lane(), *step < 0 ? width_ - 1 : 0);
  all = conjunction(all, cat("(", scalar_text(sym::simplify(end, facts_)), ")"));
  return true;
}

Body::Mask Body::mask_of(const loop::Access& access) {
  Mask out;
  auto add_bits = [&](const std::string& lanes) {
    text_.use("bits", width_);
    out.bits = both_bits(out.bits, cat("sd_bits(", lanes, ")"));
    out.only_live = false;
  };
  if (width_ > 1 && !live_.empty()) out.bits = live_;
  std::vector<Expr> parts;
  Expr given = access.mask;
  if (!assumed_.empty()) {
    given = 1;
    for (const Expr& part : loop::conjuncts(access.mask))
      if (std::find(assumed_.begin(), assumed_.end(), part) == assumed_.end())
        given = sym::logical_and(given, part);
  }
  const Expr mask = by_lane(given);
  if (mask.op() == sym::Op::kAnd)
    parts.assign(mask.args().begin(), mask.args().end());
  else if (!mask.is_const() || mask.value() == 0)
    parts.push_back(mask);
  bool ends_suffice = out.bits.empty();
  for (const Expr& part : parts) {
    const Expr c = canonical(part);
    if (lane_dependent(c)) {
      add_bits(vector_condition(c, fits_i32(c) ? "i32" : "i64"));
      ends_suffice = ends_suffice && add_ends(c, out.all);
    } else {
      out.condition = conjunction(out.condition, cat("(", scalar_text(c), ")"));
    }
  }
  if (!ends_suffice) out.all.clear();
  if (valid_.empty()) return out;
  for (const auto& [var, valid] : valid_) {
    bool used = sym::depends_on(access.mask, var);
    for (const Expr& index : access.index) used = used || sym::depends_on(index, var);
    if (!used) continue;
    if (valid.width > 1)
      add_bits(valid.text), out.all.clear();
    else
      out.condition = conjunction(out.condition, valid.text);
  }
  return out;
}

// ---- loads -----------------------------------------------------------------------------------------------

// A lookup in a 256-entry byte table that is held in registers.
bool Body::print_table_load(const loop::Load& load) {
  const loop::Buffer& buffer = text_.program()[load.access.buffer];
  if (!text_.target().vbmi || load.access.index.size() != 1 || !load.access.mask.is_const(1) || width_ > 64 ||
      buffer.shape.size() != 1 || !buffer.shape[0].is_const(256) || !is_integer(buffer.dtype) ||
      info(buffer.dtype).bits != 8)
    return false;
  const auto index = byte_index_.find(load.access.index[0]);
  if (index == byte_index_.end() || !memory(load.access.buffer).strides[0].is_const(1)) return false;
  text_.use("table", width_);
  const std::string found =
      cat("sd_table((const u8*)", memory(load.access.buffer).pointer, ", ", index->second, ")");
  define(load.result, cat("(", text_.value_type(buffer.dtype, width_), ")", found), width_);
  return true;
}

// A load of one element per lane into the variable `raw`, which has the storage type.
struct Body::LaneLoad {
  DType dtype;
  Address at;
  const Mask mask;
  const std::string type, storage, raw;
  std::string bits = {};  // the name of the lanes that load; "": all

  bool uniform() const { return at.stride && at.stride->is_const(0); }
  std::string declaration() const { return cat(storage, " ", raw, " = (", storage, ")0;"); }
};

void Body::print_load(const loop::Load& load) {
  const DType dtype = nest_.values[load.result.value].dtype;
  if (const std::string element = place ? place(load.access) : ""; !element.empty())
    return define(load.result, from_storage(element, dtype, 1), 1);
  if (print_table_load(load)) return;
  const Address at = address_of(load.access);
  const Mask mask = mask_of(load.access);
  if (at.stride && at.stride->is_const(0) && (mask.bits.empty() || mask.only_live)) {
    std::string element = from_storage(cat(at.pointer, "[", at.base, "]"), dtype, 1);
    if (!mask.condition.empty())
      element = cat("(", mask.condition, ") ? ", element, " : ", literal(load.fill));
    return define(load.result, element, 1);
  }
  LaneLoad lanes{
      dtype, at, mask, text_.value_type(dtype, width_), text_.storage_type(dtype, width_), text_.fresh("r")};
  if (!mask.bits.empty()) {
    lanes.bits = text_.fresh("k");
    text_.line(cat("const u64 ", lanes.bits, " = ", mask.bits, ";"));
  }
  if (const std::optional<std::string> assign = vector_load(lanes)) {
    text_.line(lanes.declaration());
    text_.line(mask.condition.empty() ? *assign : cat("if (", mask.condition, ") { ", *assign, " }"));
  } else {
    print_gather(lanes);
  }
  const std::string value = filled(load, lanes);
  const bool as_stored = is_storage_float(dtype) && value == from_storage(lanes.raw, dtype, width_);
  define(load.result, value, width_);
  if (as_stored) values_[load.result.value]->stored = lanes.raw;
}

std::optional<std::string> Body::vector_load(const LaneLoad& load) {
  const DType dtype = load.dtype;
  const Address& at = load.at;
  const std::string &raw = load.raw, &bits = load.bits;
  if (load.uniform())
    return cat("if (", bits, " != 0) ", raw, " = (", load.storage, ")(", at.pointer, "[", at.base, "]);");
  const bool avx512 = text_.target().avx512, contiguous = at.stride && at.stride->is_const(1);
  if (contiguous && bits.empty())
    return cat(raw, " = *(const ", text_.unaligned_type(dtype, width_), "*)(", at.pointer, " + ", at.base,
               ");");
  if (contiguous && has_masked_loads(text_.target(), dtype, width_)) {
    use_masked_load(text_, dtype, width_);
    const std::string masked =
        cat(raw, " = sd_mload", width_, "(", at.pointer, " + ", at.base, ", ", bits, ");");
    if (avx512 || load.mask.all.empty()) return masked;
    return cat("if (", load.mask.all, ") ", raw, " = *(const ", text_.unaligned_type(dtype, width_), "*)(",
               at.pointer, " + ", at.base, "); else ", masked);
  }
  const std::optional<int64_t> stride = at.stride ? sym::as_const(*at.stride) : std::nullopt;
  if (stride && can_load_strided(text_, dtype, width_, *stride, !bits.empty())) {
    const StridedElements elements{dtype, width_, *stride, at.pointer, at.base};
    const std::string loads = load_strided(text_, elements, raw, bits);
    if (avx512 || load.mask.all.empty()) return loads;
    return cat("if (", load.mask.all, ") { ", load_strided(text_, elements, raw, ""), " } else { ", loads,
               " }");
  }
  if (at.spread.empty() || !bits.empty() || !avx512) return std::nullopt;
  // One vector load of all elements in the span, then a permutation.
  text_.use(cat("mload.", text_.storage_type(dtype)), width_);
  int64_t elements = 1;
  for (int64_t distance : at.spread) elements = std::max(elements, distance + 1);
  const std::string near = text_.fresh("r");
  return cat("const ", load.storage, " ", near, " = sd_mload", width_, "(", at.pointer, " + ", at.base, ", ",
             elements == 64 ? "~0ul" : cat((uint64_t{1} << elements) - 1, "ul"), "); ", raw,
             " = __builtin_shufflevector(", near, ", ", near, ", ",
             join(at.spread, ", ", [](int64_t distance) { return cat(distance); }), ");");
}

void Body::print_gather(LaneLoad& load) {
  const std::string element = load.at.element("l", load.at.stride ? index(*load.at.stride) : "");
  text_.line(load.declaration());
  const std::string& condition = load.mask.condition;
  if (!condition.empty()) text_.open(cat("if (", condition, ")"));
  const bool run = finds_neighbours(load.at, load.bits);
  if (run) open_unless_contiguous(load);
  print_lanes(load.at);
  const bool near = load.at.rises && width_ == 16 && byte_size(load.dtype) == 4 && text_.target().avx512;
  if (near) open_unless_near(load);
  text_.line("#pragma clang loop unroll(full)");
  text_.line(cat("for (int l = 0; l < ", width_, "; ++l) ",
                 load.bits.empty() ? "" : cat("if (", load.bits, " >> l & 1) "), load.raw, "[l] = ", element,
                 ";"));
  if (near) text_.close(), text_.close();
  if (run) text_.close();
  if (!condition.empty()) text_.close();
}

void Body::open_unless_contiguous(const LaneLoad& load) {
  const std::string first = text_.fresh("o");
  text_.line(cat("const i64 ", first, " = ", load.at.first, ";"));
  text_.open(cat("if (", load.at.last, " - ", first, " == ", width_ - 1, ")"));
  if (load.bits.empty()) {
    text_.line(cat(load.raw, " = *(const ", text_.unaligned_type(load.dtype, width_), "*)(", load.at.pointer,
                   " + ", first, ");"));
  } else {
    text_.use(cat("mload.", text_.storage_type(load.dtype)), width_);
    text_.line(
        cat(load.raw, " = sd_mload", width_, "(", load.at.pointer, " + ", first, ", ", load.bits, ");"));
  }
  text_.close();
  text_.open("else");
}

void Body::open_unless_near(const LaneLoad& load) {
  const std::string &lanes = load.at.lanes, &bits = load.bits;
  text_.use(cat("near.", text_.storage_type(load.dtype)), width_);
  const std::string low = text_.fresh("o"), more = text_.fresh("o");
  text_.open(bits.empty() ? "" : cat("if (", bits, " != 0) "));
  text_.line(cat("const i64 ", low, " = ", lanes, "[", bits.empty() ? "0" : cat("__builtin_ctzl(", bits, ")"),
                 "];"));
  text_.line(cat("const i64 ", more, " = ", lanes, "[",
                 bits.empty() ? cat(width_ - 1) : cat("63 - __builtin_clzl(", bits, ")"), "] - ", low, ";"));
  text_.open(cat("if (", more, " < ", width_, ")"));
  text_.line(cat(load.raw, " = sd_near(", load.at.pointer, " + ", low, ", ", more, ", ", lanes, " - ", low,
                 ", ", bits.empty() ? "65535ul" : bits, ");"));
  text_.close();
  text_.open("else");
}

std::string Body::filled(const loop::Load& load, const LaneLoad& lanes) {
  const DType dtype = lanes.dtype;
  const Mask& mask = lanes.mask;
  std::string value = from_storage(lanes.raw, dtype, width_);
  // Masked-off lanes hold zero bits at this point, unless all lanes share one element.
  const bool zero_fill =
      !lanes.uniform() &&
      (is_float(load.fill.dtype) ? load.fill.f == 0 && dtype != DType::kF8E8M0 : load.fill.i == 0);
  if (zero_fill || (mask.only_live && mask.condition.empty())) return value;
  const std::string fill = cat("(", lanes.type, ")(", literal(load.fill), ")");
  if (!mask.only_live) {
    text_.use("from_bits", width_);
    text_.use(cat("select.", text_.value_type(dtype)), width_);
    value = cat("sd_select(sd_", text_.value_type(DType::kBool, width_), "(", lanes.bits, "), ", value, ", ",
                fill, ")");
  }
  if (!mask.condition.empty()) value = cat("(", mask.condition, ") ? ", value, " : ", fill);
  return value;
}

// ---- stores ----------------------------------------------------------------------------------------------

void Body::print_store(const loop::Store& store) {
  const DType dtype = text_.program()[store.access.buffer].dtype;
  const CValue stored = value(store.value);
  const auto assignment = [&](const std::string& element) {
    const std::string from = to_storage(stored, dtype);
    return assign ? assign(store.access, element, from) : cat(element, " = ", from, ";");
  };
  if (const std::string element = place ? place(store.access) : ""; !element.empty())
    return text_.line(assignment(element));
  Address at = address_of(store.access);
  const Mask mask = mask_of(store.access);
  const bool uniform = at.stride && at.stride->is_const(0);
  std::string condition = mask.condition.empty() ? "" : cat("if (", mask.condition, ") ");
  if (width_ == 1) {
    text_.line(condition + assignment(cat(at.pointer, "[", at.base, "]")));
    return;
  }
  std::string bits;
  if (!mask.bits.empty()) {
    bits = text_.fresh("k");
    text_.line(cat("const u64 ", bits, " = ", mask.bits, ";"));
  }
  if (uniform && stored.width == 1) {  // all lanes store the same value to one element
    const std::string any = bits.empty() ? "" : cat("if (", bits, " != 0) ");
    text_.line(cat(condition, any, at.pointer, "[", at.base, "] = ", to_storage(stored.text, dtype, 1), ";"));
    return;
  }
  const bool as_stored = stored.width == width_ && stored.dtype == dtype && !stored.stored.empty();
  const std::string vector = as_stored ? stored.stored : to_storage(widened(stored, width_), dtype, width_);
  if (at.stride && at.stride->is_const(1) && bits.empty()) {
    text_.line(cat(condition, "*(", text_.unaligned_type(dtype, width_), "*)(", at.pointer, " + ", at.base,
                   ") = ", vector, ";"));
    return;
  }
  if (at.stride && at.stride->is_const(1) && text_.target().avx512) {
    text_.use(cat("mstore.", text_.storage_type(dtype)), width_);
    text_.line(cat(condition, "sd_mstore(", at.pointer, " + ", at.base, ", ", bits, ", ", vector, ");"));
    return;
  }
  const std::string raw = text_.fresh("r");
  text_.line(cat("const ", text_.storage_type(dtype, width_), " ", raw, " = ", vector, ";"));
  if (const auto stride = at.stride ? sym::as_const(*at.stride) : std::nullopt;
      stride && bits.empty() && can_store_strided(text_, dtype, width_, *stride))
    return text_.line(
        cat(condition, store_strided(text_, raw, {dtype, width_, *stride, at.pointer, at.base})));
  const std::string element =
      uniform ? cat(at.pointer, "[", at.base, "]") : at.element("l", at.stride ? index(*at.stride) : "");
  const bool run = finds_neighbours(at, bits);
  if (run) {
    if (!condition.empty()) text_.open(condition);
    const std::string first = text_.fresh("o");
    text_.line(cat("const i64 ", first, " = ", at.first, ";"));
    text_.open(cat("if (", at.last, " - ", first, " == ", width_ - 1, ")"));
    if (bits.empty()) {
      text_.line(
          cat("*(", text_.unaligned_type(dtype, width_), "*)(", at.pointer, " + ", first, ") = ", raw, ";"));
    } else {
      text_.use(cat("mstore.", text_.storage_type(dtype)), width_);
      text_.line(cat("sd_mstore(", at.pointer, " + ", first, ", ", bits, ", ", raw, ");"));
    }
    text_.close();
    text_.open("else");
  }
  print_lanes(at);
  text_.line("#pragma clang loop unroll(full)");
  text_.line(cat("for (int l = 0; l < ", width_, "; ++l) ", run ? std::string() : condition,
                 bits.empty() ? "" : cat("if (", bits, " >> l & 1) "), element, " = ", raw, "[l];"));
  if (run) {
    text_.close();
    if (!condition.empty()) text_.close();
  }
}

// The helper that updates an element with a single atomic instruction; "" if there is none.
std::string Body::atomic_function(loop::Combine combine, DType dtype) {
  const bool limit = combine == loop::Combine::kMax || combine == loop::Combine::kMin;
  if (!limit && (combine != loop::Combine::kSum || is_float(dtype))) return "";
  const std::string which = limit ? std::string(loop::name(combine)) : "sum";
  text_.use(cat("atomic_", which, ".",
                is_float(dtype) ? cat("f", byte_size(dtype) * 8) : std::string(name(dtype))));
  return cat("sd_atomic_", which);
}

// Lanes update memory sequentially, since several may update the same element.
void Body::print_update(const loop::Store& store) {
  const DType dtype = text_.program()[store.access.buffer].dtype;
  const CValue stored = value(store.value);
  Address at = address_of(store.access);
  print_lanes(at);
  const Mask mask = mask_of(store.access);
  std::string element = cat(at.pointer, "[", at.base, "]"), from = stored.text;
  if (width_ > 1) {
    element = at.element("l", at.stride ? index(*at.stride) : "");
    if (stored.width > 1) from += "[l]";
    text_.open(cat("for (int l = 0; l < ", width_, "; ++l)"));
    if (!mask.bits.empty()) text_.line(cat("if (!(", mask.bits, " >> l & 1)) continue;"));
  }
  std::string condition = mask.condition;
  if (owns) condition += cat(condition.empty() ? "" : " && ", owns(at.base));
  text_.open(condition.empty() ? "" : cat("if (", condition, ")"));
  if (update) {
    update(at.base, stored.text);
    return text_.close();
  }
  if (const std::string function = atomic_updates ? atomic_function(store.combine, dtype) : "";
      !function.empty()) {
    text_.line(cat(function, "(&", element, ", ", from, ");"));
    return text_.close();
  }
  const std::string now = text_.fresh("v");
  if (atomic_updates) {
    const std::string type = text_.value_type(dtype),
                      bits = byte_size(dtype) == 8 ? "unsigned long long" : "unsigned",
                      old = text_.fresh("k"), seen = text_.fresh("k");
    text_.line(cat(bits, " ", old, " = *(volatile ", bits, "*)&", element, ", ", seen, ";"));
    text_.open("do");
    text_.line(cat(seen, " = ", old, ";"));
    text_.line(cat(type, " ", now, " = __builtin_bit_cast(", type, ", ", seen, ");"));
    print_combine(store.combine, {now}, {from}, {dtype}, 1);
    text_.line(cat(old, " = atomicCAS((", bits, "*)&", element, ", ", seen, ", __builtin_bit_cast(", bits,
                   ", ", now, "));"));
    text_.close(cat(" while (", old, " != ", seen, ");"));
    return text_.close();
  }
  text_.line(cat(text_.value_type(dtype), " ", now, " = ", from_storage(element, dtype, 1), ";"));
  const int width = width_;
  width_ = 1;
  print_combine(store.combine, {now}, {from}, {dtype}, 1);
  width_ = width;
  text_.line(cat(element, " = ", to_storage(rounded(now, dtype, 1), dtype, 1), ";"));
  text_.close();
  if (width_ > 1) text_.close();
}

// ---- bind ------------------------------------------------------------------------------------------------

void Body::print_bind(const loop::Bind& bind) {
  const CValue from = value(bind.value);
  const int width = from.width;
  const std::string type = text_.value_type(DType::kI64, width), name = text_.fresh("b"),
                    raw = text_.fresh("b");
  const std::string extent = index(bind.extent);
  STRIDEC_CHECK(!lane_dependent(by_lane(bind.extent)));
  auto select = [&](const std::string& c, const std::string& a, const std::string& b) {
    return cat("(", c, ") ? ", a, " : ", b);  // comparisons of i64 vectors select i64 lanes
  };
  const std::string n = width == 1 ? cat("(i64)(", extent, ")") : cat("(", type, ")(i64)(", extent, ")");
  const std::string zero = width == 1 ? "(i64)0" : cat("(", type, ")0");
  text_.line(
      cat("const ", type, " ", raw, " = ", cast_text(from.text, from.dtype, DType::kI64, width, false), ";"));
  text_.line(cat(type, " ", name, " = ", raw, ";"));
  if (loop::holds_any(bind, from.dtype)) {
    (width == 1 ? index_ : lane_index_)[bind.var] = name;
    if (width > 1 && from.dtype == DType::kU8) byte_index_[bind.var] = from.text;
    return facts_.set_index(bind.var, bind.extent);
  }
  if (bind.wrap_negative)
    text_.line(cat(name, " = ", select(cat(name, " < 0"), cat(name, " + ", n), name), ";"));
  const std::string inside = cat("(", name, " >= 0) ", width == 1 ? "&&" : "&", " (", name, " < ", n, ")");
  const bool may_be_empty = facts_.bounds(bind.extent).lo < 1;

  if (bind.mode == loop::Bind::OutOfRange::kError) {
    if (text_.is_cuda()) {
      // Other threads of the block need this one (barriers): it continues, with its accesses masked off.
      const std::string ok = text_.fresh("v");
      text_.line(cat("const bool ", ok, " = ", inside, ";"));
      text_.line(cat("if (!", ok, ") sd_fail(failures, ", text_.message(bind.sentence), ", ", raw, ", ",
                     extent, ");"));
      valid_[bind.var] = {ok, DType::kBool, 1};
      index_[bind.var] = name;
      return facts_.set_masked_index(bind.var, bind.extent);
    }
    if (width == 1) {
      text_.open(cat("if (__builtin_expect(!(", inside, "), 0))"));
      text_.line(cat("stridec_abi_fail(args, part, ", text_.message(bind.sentence), ", ", raw, ", ", extent,
                     ", 0, 0);"));
    } else {
      text_.use("bits", width_);
      const std::string bad = text_.fresh("k");
      std::string bits = cat("sd_bits(__builtin_convertvector(~(", inside, "), ",
                             text_.value_type(DType::kBool, width), "))");
      text_.line(cat("const u64 ", bad, " = ", both_bits(bits, live_), ";"));
      text_.open(cat("if (__builtin_expect(", bad, " != 0, 0))"));
      text_.line(cat("stridec_abi_fail(args, part, ", text_.message(bind.sentence), ", ", raw,
                     "[__builtin_ctzl(", bad, ")], ", extent, ", 0, 0);"));
    }
    text_.line(leave);
    text_.close();
  } else if (bind.mode == loop::Bind::OutOfRange::kClamp) {
    text_.line(cat(name, " = ", select(cat(name, " < ", n), name, cat(n, " - 1")), ";"));
    text_.line(cat(name, " = ", select(cat(name, " < 0"), zero, name), ";"));
    if (may_be_empty) valid_[bind.var] = {cat("(", extent, " > 0)"), DType::kBool, 1};
  } else {
    const std::string ok = text_.fresh("v");
    const std::string bool_type = text_.value_type(DType::kBool, width);
    text_.line(cat("const ", bool_type, " ", ok, " = ",
                   width == 1 ? inside : cat("__builtin_convertvector(", inside, ", ", bool_type, ")"), ";"));
    valid_[bind.var] = {ok, DType::kBool, width};
  }
  if (width == 1)
    index_[bind.var] = name;
  else
    lane_index_[bind.var] = name;
  loop::add_facts(facts_, bind);
}

}  // namespace stridec::codegen
