// Compiles nests of contractions and runs them for comparison with the interpreter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/base/target.h"
#include "compiler/codegen/backend.h"
#include "compiler/loop/build.h"
#include "compiler/loop/interpret.h"
#include "compiler/loop/program.h"

namespace stridec::test {

// A view of a whole new buffer; `strides` as in Buffer.
loop::View buffer(loop::Program& program, const std::string& name, std::vector<sym::Expr> shape,
                  loop::Storage storage, DType dtype = DType::kF32, std::vector<sym::Expr> strides = {});

// A weight in which neighbouring elements differ.
loop::View weight(loop::Program& program, const std::string& name, std::vector<int64_t> shape,
                  DType dtype = DType::kF32);
std::vector<sym::Expr> strides_of(const std::vector<sym::Expr>& shape, bool channels_last);
// A new symbol of the program in [lo, hi].
sym::Expr symbol(loop::Program& program, const std::string& name, int64_t lo, int64_t hi);

// A kernel loaded into this process.
class CompiledKernel {
 public:
  CompiledKernel(const codegen::Kernel& kernel, const CpuTarget& target);
  // Runs all tasks, split into `parts` shares, sequentially.
  void run(const loop::Program& program, const loop::Bindings& symbols,
           const std::vector<loop::BufferMemory>& memory, int parts) const;
  // The same with subnormal values in scratch. Returns whether arithmetic read any of them, which costs about
  // a hundred cycles on Intel processors.
  bool meets_subnormals(const loop::Bindings& symbols, const std::vector<loop::BufferMemory>& memory,
                        int parts) const;
  // Seconds of the fastest of several runs, with one share per thread.
  double seconds(const loop::Bindings& symbols, const std::vector<loop::BufferMemory>& memory, int threads,
                 int repeats) const;
  int64_t tasks(const loop::Bindings& symbols) const;

 private:
  void run_in(std::vector<uint16_t> scratch, const loop::Bindings& symbols,
              const std::vector<loop::BufferMemory>& memory, int parts) const;
  size_t scratch_words(const loop::Bindings& symbols, int parts) const;

  codegen::Kernel kernel_;
  void (*function_)(const void*, int64_t, int64_t, int32_t) = nullptr;
  std::shared_ptr<void> code_;
};

// Memory for every buffer of a program, filled with small random values; weights have their own.
struct Memory {
  Memory(const loop::Program& program, const loop::Bindings& symbols, unsigned seed = 1);
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<int> element_bytes;
  std::vector<loop::BufferMemory> views();
};

int64_t value_of(sym::Expr e, const loop::Bindings& symbols);

// Largest difference between the buffers that the nest writes, relative to the largest magnitude in them.
double difference(const loop::Program& program, const loop::Nest& nest, Memory& x, Memory& y);

}  // namespace stridec::test
