#include "compiler/codegen/emit_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/base/check.h"
#include "compiler/base/text.h"
#include "compiler/codegen/emit_snippets.h"
#include "compiler/sym/text.h"

namespace stridec::codegen {
namespace {

constexpr int64_t kScratchAlignment = 64;

struct CType {
  const char* name;     // in generated text
  const char* spelled;  // the type that it is a typedef of
  int bytes;
};
constexpr CType kTypes[] = {
    {"u8", "unsigned char", 1}, {"i8", "signed char", 1}, {"u16", "unsigned short", 2}, {"i16", "short", 2},
    {"u32", "unsigned", 4},     {"i32", "int", 4},        {"u64", "unsigned long", 8},  {"i64", "long", 8},
    {"f32", "float", 4},        {"f64", "double", 8},     {"bool", "bool", 1},
};

const CType& named(std::string_view name) {
  for (const CType& type : kTypes)
    if (type.name == name) return type;
  STRIDEC_CHECK(false, cat("no C type ", name));
}

bool is_named(std::string_view name) {
  return std::any_of(std::begin(kTypes), std::end(kTypes),
                     [&](const CType& type) { return type.name == name; });
}

std::string_view value_name(DType dtype) {
  if (dtype == DType::kBool) return "bool";
  if (dtype == DType::kF64) return "f64";
  if (is_float(dtype)) return "f32";
  switch (dtype) {
    case DType::kI2:
    case DType::kI4: return "i8";
    case DType::kU2:
    case DType::kU4: return "u8";
    default: return name(dtype);
  }
}

std::string_view storage_name(DType dtype) {
  if (dtype == DType::kBool) return "u8";
  if (is_storage_float(dtype)) return byte_size(dtype) == 4 ? "u32" : byte_size(dtype) == 2 ? "u16" : "u8";
  return value_name(dtype);
}

std::string lanes_suffix(int width) { return width == 1 ? std::string() : cat("x", width); }

// "$s0", "$s1", ...: cached, since every size of a kernel is checked against all of its arguments.
sym::Expr argument(size_t number) {
  thread_local std::vector<sym::Expr> known;
  while (known.size() <= number) known.push_back(sym::var(cat("$s", known.size())));
  return known[number];
}

}  // namespace

std::string float_literal(double value, bool single) {
  if (std::isnan(value)) return single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  if (std::isinf(value)) return cat(value < 0 ? "-" : "", single ? "__builtin_inff()" : "__builtin_inf()");
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%a%s", value, single ? "f" : "");
  return value < 0 || std::signbit(value) ? cat("(", buffer, ")") : buffer;
}

sym::Expr scratch_bytes(std::span<const sym::Expr> pieces) {
  sym::Expr bytes = 0;
  for (sym::Expr piece : pieces) bytes += sym::align_up(piece, kScratchAlignment);
  return bytes;
}

KernelText::KernelText(const loop::Program& program, const CpuTarget& target)
    : program_(program), target_(target), facts_(program.facts) {}

KernelText::KernelText(const loop::Program& program, const CudaText& cuda)
    : program_(program), cuda_(cuda), facts_(program.facts) {
  target_.fma = true;
}

const Snippet& KernelText::snippet(std::string_view name, int width) const {
  if (const Snippet* own = is_cuda() ? cuda_.snippet(name) : nullptr) return *own;
  return find_snippet(name, width, target_.f16c);
}

std::string KernelText::pointer(loop::BufferId buffer) {
  auto found = std::find(buffers_.begin(), buffers_.end(), buffer);
  if (found == buffers_.end()) found = buffers_.insert(buffers_.end(), buffer);
  return cat("p", found - buffers_.begin());
}

sym::Expr KernelText::size_symbol(sym::Expr expr) {
  // Callers may compose existing arguments; the host program knows only the program's symbols.
  sym::Substitution arguments;
  for (size_t i = 0; i < sizes_.size(); ++i) arguments[argument(i)] = sizes_[i];
  expr = sym::substitute(expr, arguments);
  if (expr.is_const()) return expr;
  STRIDEC_CHECK(!sym::has_index(expr), sym::to_string(expr));
  auto found = std::find(sizes_.begin(), sizes_.end(), expr);
  const sym::Expr symbol = argument(static_cast<size_t>(found - sizes_.begin()));
  if (found != sizes_.end()) return symbol;
  sizes_.push_back(expr);
  const sym::Interval range = program_.facts.bounds(expr);
  facts_.set_range(symbol, range.has_lo() ? std::optional(range.lo) : std::nullopt,
                   range.has_hi() ? std::optional(range.hi) : std::nullopt);
  if (const int64_t divisor = program_.facts.known_divisor(expr); divisor > 1)
    facts_.set_divisible(symbol, divisor);
  return symbol;
}

std::string KernelText::size(sym::Expr expr) {
  const sym::Expr symbol = size_symbol(expr);
  return symbol.is_const() ? sym::to_c(symbol, [](sym::Expr) { return std::string(); })
                           : symbol.name().substr(1);
}

std::string KernelText::message(const std::string& sentence) {
  auto found = std::find(messages_.begin(), messages_.end(), sentence);
  if (found == messages_.end()) found = messages_.insert(messages_.end(), sentence);
  return cat("m", found - messages_.begin());
}

std::string KernelText::scratch(sym::Expr bytes) {
  scratch_.push_back(size(scratch_bytes_));
  scratch_bytes_ += sym::align_up(bytes, kScratchAlignment);
  return cat("scratch", scratch_.size() - 1);
}

std::string KernelText::lane_type(std::string_view base, int width) {
  if (width > 1) vector_types_.insert({named(base).name, width});
  return cat(base, lanes_suffix(width));
}

std::string KernelText::value_type(DType dtype, int width) { return lane_type(value_name(dtype), width); }
std::string KernelText::storage_type(DType dtype, int width) { return lane_type(storage_name(dtype), width); }

std::string KernelText::unaligned_type(DType dtype, int width) {
  const std::string type = storage_type(dtype, width);
  if (width == 1) return type;
  unaligned_types_.insert({std::string(storage_name(dtype)), width});
  return type + "u";
}

void KernelText::use(std::string_view snippet, int width) {
  if (snippet.ends_with("!1")) {
    snippet.remove_suffix(2);
    width = 1;
  }
  const std::pair<std::string, int> key(snippet, width);
  if (std::find(used_.begin(), used_.end(), key) != used_.end()) return;
  const Snippet& found = this->snippet(snippet, width);
  for (const std::string& need : found.needs) use(need, width);
  used_.push_back(key);
  // Declare the types that the snippet spells as "f32@" in this width.
  const std::string_view text = found.text;
  for (size_t at = text.find('@'); at != std::string_view::npos; at = text.find('@', at + 1)) {
    size_t begin = at;
    while (begin > 0 && std::isalnum(static_cast<unsigned char>(text[begin - 1]))) --begin;
    const std::string_view base = text.substr(begin, at - begin);
    if (is_named(base)) lane_type(base, width);
  }
}

void KernelText::line(const std::string& text) {
  statements_.append(static_cast<size_t>(depth_) * 2, ' ');
  statements_ += text;
  statements_ += '\n';
}

void KernelText::open(const std::string& text) {
  line(text.empty() ? "{" : text + " {");
  ++depth_;
}

void KernelText::close(const std::string& after) {
  --depth_;
  line("}" + after);
}

std::string KernelText::fresh(std::string_view prefix) {
  auto found = names_.find(prefix);
  if (found == names_.end()) found = names_.emplace(std::string(prefix), 0).first;
  std::string name;
  do name = cat(prefix, found->second++);
  while (is_named(name));  // "i" followed by 8 would be a type
  return name;
}

std::string KernelText::capture(const std::function<void()>& print) {
  std::string before;
  before.swap(statements_);
  print();
  before.swap(statements_);
  return before;
}

std::string KernelText::preamble() const {
  std::string out;
  for (const CType& type : kTypes)
    if (std::string_view(type.name) != "bool") out += cat("typedef ", type.spelled, " ", type.name, ";\n");
  for (const auto& [base, width] : vector_types_)
    out += cat("typedef ", base, " ", base, "x", width, " __attribute__((ext_vector_type(", width, ")));\n");
  for (const auto& [base, width] : unaligned_types_)
    out += cat("typedef ", base, " ", base, "x", width, "u __attribute__((ext_vector_type(", width,
               "), aligned(", named(base).bytes, "), may_alias));\n");
  out += sym::c_helpers();
  for (const auto& [name, width] : used_) {
    const std::string suffix = lanes_suffix(width), count = cat(width);
    for (char c : snippet(name, width).text) {
      if (c == '@')
        out += suffix;
      else if (c == '`')
        out += count;
      else
        out += c;
    }
  }
  return out;
}

std::string KernelText::parameter(size_t i) const {
  const loop::Buffer& buffer = program_[buffers_[i]];
  // Inputs and weights are never written; other buffers may alias each other.
  const bool constant = buffer.storage == loop::Storage::kInput ||
                        (buffer.storage == loop::Storage::kParameter && !buffer.prepacked);
  return cat(storage_name(buffer.dtype), constant ? "* __restrict p" : "* p", i);
}

Kernel KernelText::arguments() const {
  Kernel kernel;
  kernel.buffers = buffers_;
  kernel.sizes = sizes_;
  kernel.messages = messages_;
  kernel.scratch_bytes = scratch_bytes_;
  return kernel;
}

void KernelText::open_ranges() {
  takes_ranges_ = true;
  open(
      "for (int64_t first_task = begin, end_task; (end_task = stridec_abi_take(args, part, first_task, end)) "
      "> "
      "first_task; first_task = end_task)");
}

void KernelText::open_tasks(std::string_view task) {
  open_ranges();
  open(cat("for (int64_t ", task, " = first_task; ", task, " < end_task; ++", task, ")"));
}

Kernel KernelText::finish(sym::Expr tasks, sym::Expr grain) {
  std::string out = "#include \"stridec/abi.h\"\n" + preamble();
  out +=
      "extern \"C\" __attribute__((visibility(\"hidden\"))) void KERNEL(const stridec_abi_args* args, "
      "int64_t begin, "
      "int64_t end, int32_t part) {\n";
  for (size_t i = 0; i < buffers_.size(); ++i)
    out += cat("  ", parameter(i), " = (", storage_name(program_[buffers_[i]].dtype), "*)args->buffers[", i,
               "];\n");
  for (size_t i = 0; i < sizes_.size(); ++i) out += cat("  const int64_t s", i, " = args->sizes[", i, "];\n");
  for (size_t i = 0; i < messages_.size(); ++i)
    out += cat("  const int32_t m", i, " = (int32_t)args->sizes[", sizes_.size() + i, "];\n");

  for (size_t i = 0; i < scratch_.size(); ++i)
    out += cat("  char* scratch", i, " = stridec_abi_scratch(args, part) + ", scratch_[i], ";\n");

  Kernel kernel = arguments();
  kernel.text = out + statements_ + "}\n";
  kernel.tasks = tasks;
  kernel.grain = grain;
  kernel.movable = takes_ranges_ && kernel.messages.empty();
  return kernel;
}

}  // namespace stridec::codegen
