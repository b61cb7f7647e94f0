// The text of one kernel under construction: arguments, types, helpers and statements.
//
// The text is header-free C++20: with clang's vector extensions for the CPU, scalar for a GPU. Both use the
// same names: the prelude of codegen/cuda defines clang's builtins. Only what a kernel uses is printed, in a
// fixed order.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/codegen/emit_snippets.h"
#include "compiler/loop/program.h"
#include "compiler/sym/facts.h"

namespace stridec::codegen {

// Selects text for a GPU thread instead of a CPU: no vectors, and GPU snippets take precedence over the
// common ones.
struct CudaText {
  const Snippet* (*snippet)(std::string_view name);  // null: use the common one
};

// An exact C literal of a floating-point value; `single`: of type float.
std::string float_literal(double value, bool single);

// The bytes of a thread's private memory with these pieces, each of which KernelText::scratch() adds. What a
// kernel needs is computed from its plan, so that memory is planned before the kernel's text exists.
sym::Expr scratch_bytes(std::span<const sym::Expr> pieces);

// Whether the integer dtype has fewer bits than its C type.
inline bool is_narrow(DType dtype) { return is_integer(dtype) && info(dtype).bits < 8; }

class KernelText {
 public:
  KernelText(const loop::Program& program, const CpuTarget& target);
  KernelText(const loop::Program& program, const CudaText& cuda);

  const loop::Program& program() const { return program_; }
  // Features that the text may use; for a GPU only fused multiply-add.
  const CpuTarget& target() const { return target_; }
  bool is_cuda() const { return cuda_.snippet != nullptr; }

  // ---- arguments ----
  // The name of a pointer to the buffer's elements, of storage_type, declared once at the top of the kernel.
  std::string pointer(loop::BufferId buffer);
  // The value of an expression without index variables, as C text of type int64_t: a literal or "s3".
  std::string size(sym::Expr expr);
  // The same as a variable ("s3" or a constant expression) for use in index expressions; facts() has its
  // range and divisors.
  sym::Expr size_symbol(sym::Expr expr);
  // The index of a sentence in the program's message table.
  std::string message(const std::string& sentence);
  // Facts about the program's symbols and the size symbols created so far.
  const sym::Facts& facts() const { return facts_; }
  // Private memory of a thread, 64-byte aligned: a char* expression that is constant during the kernel.
  std::string scratch(sym::Expr bytes);

  // ---- types and helpers, declared on first use ----
  // The type of a value: float for every storage float, bool for bool; `width` lanes as an ext_vector_type
  // ("f32x16"), 1: scalar.
  std::string value_type(DType dtype, int width = 1);
  // The type of an element in memory: unsigned char for bool, unsigned short for f16 and bf16, ...
  std::string storage_type(DType dtype, int width = 1);
  // storage_type with the alignment of one element, for unaligned vector loads and stores.
  std::string unaligned_type(DType dtype, int width);
  // Adds a snippet (emit_snippets.h), for scalars or for vectors of `width` lanes, with its dependencies.
  void use(std::string_view snippet, int width = 1);

  // ---- statements ----
  void line(const std::string& text);          // one line at the current indentation
  void open(const std::string& text);          // "text {", and increases the indentation
  void close(const std::string& after = {});   // "}after"
  std::string fresh(std::string_view prefix);  // an identifier used nowhere else
  // Returns the text that `print` prints instead of appending it, for declarations that depend on later
  // statements. append() inserts it.
  std::string capture(const std::function<void()>& print);
  void append(const std::string& captured) { statements_ += captured; }

  // Opens loops over the part's tasks with the variable `task`. A part receives ranges of tasks in increasing
  // order. open_ranges() opens only the loop over ranges; the caller loops from `first_task` up to
  // `end_task`.
  void open_tasks(std::string_view task = "task");
  void close_tasks() { close(), close(); }
  void open_ranges();
  // The finished kernel. Its statements may use `begin`, `end`, `part` and `args` of stridec_abi_kernel.
  Kernel finish(sym::Expr tasks, sym::Expr grain);

  // The pieces of the kernel, for a backend with a frame of its own: types and helpers; statements;
  // arguments.
  std::string preamble() const;
  const std::string& statements() const { return statements_; }
  // The launch data of the finished kernel (buffers, sizes, messages), without its text.
  Kernel arguments() const;
  // The declaration of the i-th buffer's parameter: "float* __restrict p0".
  std::string parameter(size_t i) const;
  // Offsets of scratch0, scratch1, ... in a thread's private memory; below, their total size.
  const std::vector<std::string>& scratch_offsets() const { return scratch_; }
  sym::Expr scratch_bytes() const { return scratch_bytes_; }

 private:
  std::string lane_type(std::string_view base, int width);
  const Snippet& snippet(std::string_view name, int width) const;

  const loop::Program& program_;
  CpuTarget target_;
  CudaText cuda_{};
  sym::Facts facts_;
  std::vector<loop::BufferId> buffers_;
  std::vector<sym::Expr> sizes_;
  std::vector<std::string> messages_;
  std::vector<std::string> scratch_;  // offsets of the pieces
  sym::Expr scratch_bytes_ = 0;
  std::set<std::pair<std::string, int>> vector_types_, unaligned_types_;  // element type, lanes
  std::vector<std::pair<std::string, int>> used_;  // snippets, each after its dependencies
  std::string statements_;
  bool takes_ranges_ = false;
  int depth_ = 1;
  std::map<std::string, int, std::less<>> names_;
};

}  // namespace stridec::codegen
