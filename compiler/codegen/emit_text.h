// The text of one kernel under construction: its arguments, the types and helpers it uses, its statements.
//
// The text is header-free C++20, for the CPU with clang's vector extensions, for a GPU scalar and in the same
// words: the prelude of codegen/cuda gives clang's builtins their meaning there. Only what a kernel uses is
// printed, in a fixed order.
#pragma once

#include <functional>
#include <map>
#include <set>
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

// The text of a GPU thread instead of a CPU's: no vectors, and snippets of its own before the common ones.
struct CudaText {
  const Snippet* (*snippet)(std::string_view name);  // null: the common one
};

// A number in C, exactly; `single`: of type float.
std::string float_literal(double value, bool single);

// Integers of fewer bits than their C type.
inline bool is_narrow(DType dtype) { return is_integer(dtype) && info(dtype).bits < 8; }

class KernelText {
 public:
  KernelText(const loop::Program& program, const CpuTarget& target);
  KernelText(const loop::Program& program, const CudaText& cuda);

  const loop::Program& program() const { return program_; }
  // Features that the text may use; for a GPU fused multiply-adds alone.
  const CpuTarget& target() const { return target_; }
  bool is_cuda() const { return cuda_.snippet != nullptr; }

  // ---- arguments ----
  // A pointer to the buffer's elements, of storage_type; a name that is declared once at the top of the
  // kernel.
  std::string pointer(loop::BufferId buffer);
  // The value of an expression without index variables, as C text of type int64_t: a literal or "s3".
  std::string size(sym::Expr expr);
  // The same as a variable ("s3" or a constant expression) that stands for it in index expressions; its range
  // and divisors are known to facts().
  sym::Expr size_symbol(sym::Expr expr);
  // The number of a sentence in the program's table of messages.
  std::string message(const std::string& sentence);
  // Facts about the program's symbols and about the size symbols made so far.
  const sym::Facts& facts() const { return facts_; }
  // Bytes of private memory of a thread, 64-byte aligned: a char* expression, fixed during the kernel.
  std::string scratch(sym::Expr bytes);

  // ---- types and helpers, declared on first use ----
  // Of a value: float for every storage float, bool for bool; width lanes as an ext_vector_type ("f32x16"),
  // 1: scalar.
  std::string value_type(DType dtype, int width = 1);
  // Of an element in memory: unsigned char for bool, unsigned short for f16 and bf16, ...
  std::string storage_type(DType dtype, int width = 1);
  // storage_type with the alignment of one element: what unaligned vector loads and stores go through.
  std::string unaligned_type(DType dtype, int width);
  // A snippet of snippets() by name, for scalars or for vectors of `width` lanes, with what it depends on.
  void use(std::string_view snippet, int width = 1);

  // ---- statements ----
  void line(const std::string& text);          // one line at the present indentation
  void open(const std::string& text);          // "text {" and one level deeper
  void close(const std::string& after = {});   // "}after"
  std::string fresh(std::string_view prefix);  // an identifier used nowhere else
  // What `print` prints, instead of appending it: for declarations that depend on what follows. append() puts
  // it back.
  std::string capture(const std::function<void()>& print);
  void append(const std::string& captured) { statements_ += captured; }

  // Loops over the tasks that are the part's, `task` being each in turn: ranges of them, as the part gets them, each after the
  // one before. open_ranges() leaves a range's loop to what follows, from `first_task` up to `end_task`.
  void open_tasks(std::string_view task = "task");
  void close_tasks() { close(), close(); }
  void open_ranges();
  // The finished kernel. The statements run with `begin`, `end`, `part` and `args` of stridec_abi_kernel in
  // scope.
  Kernel finish(sym::Expr tasks, sym::Expr grain);

  // The parts of it, for a backend with another frame: types and helpers; statements; arguments.
  std::string preamble() const;
  const std::string& statements() const { return statements_; }
  // What the call gives for buffers, sizes and messages: launch data of the finished kernel, without its text.
  Kernel arguments() const;
  // "float* __restrict p0": of the i-th buffer.
  std::string parameter(size_t i) const;
  // Offsets of scratch0, scratch1, ... in a thread's private memory, and the size of all.
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
  std::vector<std::pair<std::string, int>> used_;  // snippets, each after those that it needs
  std::string statements_;
  bool takes_ranges_ = false;
  int depth_ = 1;
  std::map<std::string, int, std::less<>> names_;
};

}  // namespace stridec::codegen
