// Compiles and runs a program in this process: for tests, `verify` and the tuner.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/build.h"
#include "compiler/loop/interpret.h"

namespace stridec::codegen::cpu {

struct RunCompiledOptions {
  CpuTarget target = cpu_target("native");
  BuildOptions build;
  int parts = 3;                                      // number of parts that every launch is split into
  bool poison = true;                                 // fresh memory holds bytes 0xa5 instead of zeros
  std::map<std::string, int64_t> context_sizes = {};  // as in loop::RunOptions
};

// A program as machine code. Weights and memory are planned if they are not yet; prepack nests are run.
class CompiledProgram {
 public:
  explicit CompiledProgram(loop::Program program, RunCompiledOptions options = {});
  ~CompiledProgram();

  // Like loop::interpret: the same inputs give the same outputs, and the same faults an Error with the same
  // sentence.
  std::vector<loop::HostTensor> run(const std::vector<loop::HostTensor>& inputs,
                                    std::vector<loop::HostTensor>* states = nullptr);
  // The time of the steps in seconds, without allocation and binding.
  double time(const std::vector<loop::HostTensor>& inputs);
  const Built& built() const;
  const loop::Program& program() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::vector<loop::HostTensor> run_compiled(const loop::Program& program,
                                           const std::vector<loop::HostTensor>& inputs,
                                           const RunCompiledOptions& options = {});

}  // namespace stridec::codegen::cpu
