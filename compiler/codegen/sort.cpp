#include "compiler/codegen/sort.h"

#include "compiler/base/text.h"

namespace stridec::codegen {
namespace {

// A total order on keys as unsigned integers, NaN above everything, -0 equal to 0.
void print_key(KernelText& text, DType dtype, const std::string& key) {
  const std::string storage = text.storage_type(dtype);
  const int bits = 8 * byte_size(dtype);
  const std::string u = cat("u", bits);
  if (is_float(dtype)) {
    const DType computed = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    std::string load = "x[i * inner]";
    if (is_storage_float(dtype)) {
      text.use(cat("from.", name(dtype)));
      load = cat("sd_from_", name(dtype), "(", load, ")");
    }
    const std::string wide = computed == DType::kF64 ? "u64" : "u32";
    const std::string top = computed == DType::kF64 ? "63" : "31";
    text.line(cat("const ", computed == DType::kF64 ? "f64" : "f32", " f = ", load, " + 0;"));
    text.line(cat("const ", wide, " b = __builtin_bit_cast(", wide, ", f);"));
    text.line(cat("u64 ", key, " = f != f ? (u64)~(", wide, ")0 : (u64)(", wide, ")(b >> ", top,
                  " ? ~b : b | (", wide, ")1 << ", top, ");"));
    return;
  }
  text.line(is_signed(dtype) ? cat("u64 ", key, " = (u64)(i64)x[i * inner] ^ (1ul << 63);")
                             : cat("u64 ", key, " = (u64)x[i * inner];"));
}

}  // namespace

void print_sort(KernelText& text, const loop::Program& program, const loop::Call& call,
                const std::string& tasks) {
  const DType dtype = program[call.reads[0]].dtype;
  const bool sort = call.routine == "sort";
  const sym::Expr n = call.arguments[1];
  const std::string x = text.pointer(call.reads[0]), values = text.pointer(call.writes[0]),
                    indices = text.pointer(call.writes[1]);
  const std::string length = text.size(n), inner = text.size(call.arguments[2]);
  const std::string kept = sort ? length : text.size(call.arguments[3]);
  const std::string descending = text.size(call.arguments[sort ? 3 : 4]);
  const std::string scratch = text.scratch(n * 32);
  const std::string storage = text.storage_type(dtype);
  text.line("struct Pair { u64 key; i64 index; };");
  text.line(cat("const int64_t n = ", length, ", inner = ", inner, ", kept = ", kept, ";"));
  text.line(cat("const u64 flip = ", descending, " ? ~0ul : 0ul;"));
  text.open(tasks);
  text.line(cat("const ", storage, "* x = ", x, " + task / inner * n * inner + task % inner;"));
  text.line(cat("Pair* a = (Pair*)", scratch, "; Pair* b = a + n;"));
  text.open("for (int64_t i = 0; i < n; ++i)");
  print_key(text, dtype, "key");
  text.line("a[i].key = key ^ flip;");
  text.line("a[i].index = i;");
  text.close();
  text.open("for (int64_t width = 1; width < n; width *= 2)");
  text.open("for (int64_t low = 0; low < n; low += 2 * width)");
  text.line("const int64_t mid = sd_min(low + width, n), high = sd_min(low + 2 * width, n);");
  text.line("int64_t i = low, j = mid;");
  text.line(
      "for (int64_t k = low; k < high; ++k) b[k] = i < mid && (j >= high || a[i].key <= a[j].key) ? a[i++] : "
      "a[j++];");
  text.close();
  text.line("Pair* c = a; a = b; b = c;");
  text.close();
  text.open("for (int64_t i = 0; i < kept; ++i)");
  text.line("const int64_t to = (task / inner * kept + i) * inner + task % inner;");
  text.line(cat(values, "[to] = x[a[i].index * inner];"));
  text.line(cat(indices, "[to] = a[i].index;"));
  text.close();
  text.close();
}

}  // namespace stridec::codegen
