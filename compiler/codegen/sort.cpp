#include "compiler/codegen/sort.h"

#include "compiler/base/text.h"

namespace stridec::codegen {

SortKey sort_key(DType dtype) {
  if (is_float(dtype)) return dtype == DType::kF64 ? SortKey{"u64", 8} : SortKey{"u32", 4};
  return byte_size(dtype) == 8 ? SortKey{"u64", 8} : SortKey{"u32", byte_size(dtype)};
}

std::string SortKey::everything() const {
  return bytes == 8 ? "~0ul" : bytes == 4 ? "~0u" : cat((1 << 8 * bytes) - 1, "u");
}

void print_sort_key(KernelText& text, DType dtype) {
  const SortKey key = sort_key(dtype);
  text.open(cat("const auto key_at = [=](int64_t i) -> ", key.type));
  if (is_float(dtype)) {
    const std::string number = dtype == DType::kF64 ? "f64" : "f32", bits = cat(8 * key.bytes - 1);
    std::string load = "x[i * inner]";
    if (is_storage_float(dtype)) {
      text.use(cat("from.", name(dtype)));
      load = cat("sd_from_", name(dtype), "(", load, ")");
    }
    text.line(cat("const ", number, " f = ", load, " + 0;"));
    text.line(cat("const ", key.type, " b = __builtin_bit_cast(", key.type, ", f);"));
    text.line(
        cat("const ", key.type, " ordered = b >> ", bits, " ? ~b : b | (", key.type, ")1 << ", bits, ";"));
    text.line(cat("return (f != f ? ~(", key.type, ")0 : ordered) ^ flip;"));
  } else {
    const std::string middle =
        is_signed(dtype) ? cat(" + ((", key.type, ")1 << ", 8 * key.bytes - 1, ")") : "";
    text.line(cat("return ((", key.type, ")x[i * inner]", middle, ") ^ flip;"));
  }
  text.close(";");
}

namespace {

// Selects the first `kept` elements of the row in a heap at `a` with the last of them on top, then pops them
// into order. A later element ranks after an equal earlier one, so it never replaces it. Blocks without a
// better element are only scanned, with vector instructions.
void print_selection(KernelText& text) {
  text.open("const auto sink = [=](int64_t at, int64_t size)");
  text.line("const Pair moved = a[at];");
  text.open("for (int64_t child; (child = 2 * at + 1) < size; at = child)");
  text.line("if (child + 1 < size && before(a[child], a[child + 1])) ++child;");
  text.line("if (!before(moved, a[child])) break;");
  text.line("a[at] = a[child];");
  text.close();
  text.line("a[at] = moved;");
  text.close(";");
  text.line("for (int64_t i = 0; i < kept; ++i) a[i] = Pair{key_at(i), (Place)i};");
  text.line("for (int64_t i = kept / 2; i-- > 0;) sink(i, kept);");
  text.open("for (int64_t block = kept; kept > 0 && block < n; block += 64)");
  text.line("const int64_t stop = block + 64 < n ? block + 64 : n;");
  text.line("const Key worst = a[0].key;");
  text.line("unsigned better = 0;");
  text.line("for (int64_t i = block; i < stop; ++i) better |= key_at(i) < worst;");
  text.line("if (!better) continue;");
  text.open("for (int64_t i = block; i < stop; ++i)");
  text.line("const Key key = key_at(i);");
  text.line("if (key < a[0].key) { a[0] = Pair{key, (Place)i}; sink(0, kept); }");
  text.close();
  text.close();
  text.open("for (int64_t i = kept; --i > 0;)");
  text.line("const Pair worst = a[0];");
  text.line("a[0] = a[i];");
  text.line("a[i] = worst;");
  text.line("sink(0, i);");
  text.close();
}

// Insertion sort for short rows, LSD radix sort for longer ones; bytes that are equal in all keys are
// skipped.
void print_order(KernelText& text, int bytes) {
  text.line("for (int64_t i = 0; i < n; ++i) a[i] = Pair{key_at(i), (Place)i};");
  text.open("if (n <= 32)");
  text.open("for (int64_t i = 1; i < n; ++i)");
  text.line("const Pair moved = a[i];");
  text.line("int64_t to = i;");
  text.line("for (; to > 0 && before(moved, a[to - 1]); --to) a[to] = a[to - 1];");
  text.line("a[to] = moved;");
  text.close();
  text.close();
  text.open("else");
  text.line(cat("for (int i = 0; i < 256 * ", bytes, "; ++i) places[i] = 0;"));
  text.line(cat("for (int64_t i = 0; i < n; ++i) for (int d = 0; d < ", bytes,
                "; ++d) ++places[256 * d + (a[i].key >> 8 * d & 255)];"));
  text.open(cat("for (int d = 0; d < ", bytes, "; ++d)"));
  text.line("Place* place = places + 256 * d;");
  text.line("if (place[a[0].key >> 8 * d & 255] == n) continue;");
  text.line("Place first = 0;");
  text.line(
      "for (int i = 0; i < 256; ++i) { const Place size = place[i]; place[i] = first; first += size; }");
  text.line(
      "for (int64_t i = 0; i < n; ++i) { const Pair moved = a[i]; b[place[moved.key >> 8 * d & 255]++] = "
      "moved; }");
  text.line("Pair* other = a; a = b; b = other;");
  text.close();
  text.close();
}

// How rows are sorted, as far as the facts decide it.
struct SortPlan {
  SortPlan(const loop::Program& program, DType dtype, const SortArguments& at)
      : key(sort_key(dtype)),
        n(at.n),
        k(at.kept),
        short_rows(program.facts.holds(sym::le(n, int64_t{0xffffffff}))),
        selects(!at.all && !program.facts.holds(sym::gt(4 * k, n))),
        orders(!selects || !program.facts.holds(sym::le(4 * k, n))) {}

  SortKey key;
  sym::Expr n, k;  // the length of a row, and how many of its elements are kept
  bool short_rows;
  bool selects, orders;  // which algorithms the kernel has
};

}  // namespace

SortArguments::SortArguments(const loop::Call& call)
    : all(call.routine == "sort"),
      n(call.arguments[1]),
      inner(call.arguments[2]),
      kept(all ? n : call.arguments[3]),
      descending(call.arguments[all ? 3 : 4]) {}

std::vector<sym::Expr> sort_scratch(const loop::Program& program, const loop::Call& call) {
  const SortPlan plan(program, program[call.reads[0]].dtype, SortArguments(call));
  const int pair_bytes = plan.key.type == "u32" && plan.short_rows ? 8 : 16;
  const sym::Expr pairs = (plan.orders ? plan.n : plan.k) * pair_bytes;
  return {pairs, pairs, 256 * plan.key.bytes * (plan.short_rows ? 4 : 8)};
}

void print_sort(KernelText& text, const loop::Program& program, const loop::Call& call,
                const std::string& tasks) {
  const DType dtype = program[call.reads[0]].dtype;
  const SortArguments at(call);
  const auto [key, n, k, short_rows, selects, orders] = SortPlan(program, dtype, at);
  const std::string x = text.pointer(call.reads[0]), values = text.pointer(call.writes[0]),
                    indices = text.pointer(call.writes[1]);
  const std::vector<sym::Expr> pieces = sort_scratch(program, call);
  const std::string first = text.scratch(pieces[0]), second = text.scratch(pieces[1]),
                    counts = text.scratch(pieces[2]);
  text.line(cat("typedef ", key.type, " Key;"));
  text.line(cat("typedef ", short_rows ? "u32" : "i64", " Place;"));
  text.line("struct Pair { Key key; Place index; };");
  text.line(
      "const auto before = [](Pair p, Pair q) { return p.key < q.key || (p.key == q.key && p.index < "
      "q.index); };");
  text.line(cat("const int64_t n = ", text.size(n), ", inner = ", text.size(at.inner),
                ", kept = ", text.size(k), ";"));
  text.line(cat("const Key flip = ", text.size(at.descending), " ? ", key.everything(), " : 0;"));
  text.line(cat("Place* places = (Place*)", counts, ";"));
  text.open(tasks);
  text.line(
      cat("const ", text.storage_type(dtype), "* x = ", x, " + task / inner * n * inner + task % inner;"));
  text.line(cat("Pair* a = (Pair*)", first, "; Pair* b = (Pair*)", second, ";"));
  print_sort_key(text, dtype);
  // No run-time branch if the facts decide it.
  if (selects) text.open(orders ? "if (4 * kept <= n)" : ""), print_selection(text), text.close();
  if (orders) text.open(selects ? "else" : ""), print_order(text, key.bytes), text.close();
  text.open("for (int64_t i = 0; i < kept; ++i)");
  text.line("const int64_t to = (task / inner * kept + i) * inner + task % inner;");
  text.line(cat(values, "[to] = x[a[i].index * inner];"));
  text.line(cat(indices, "[to] = a[i].index;"));
  text.close();
  text.close();
}

}  // namespace stridec::codegen
