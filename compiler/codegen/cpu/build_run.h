// A program compiled and run in this process: for tests, `verify` and the tuner.
#pragma once

#include <memory>
#include <vector>

#include "compiler/codegen/cpu/build.h"
#include "compiler/loop/interpret.h"

namespace stridec::codegen::cpu {

struct RunCompiledOptions {
  CpuTarget target = cpu_target("native");
  BuildOptions build;
  int parts = 3;       // shares that every launch is cut into
  bool poison = true;  // fresh memory holds bytes 0xa5 instead of zeros
};

// A program as machine code. What is not planned yet (weights, memory) is planned; prepack nests run.
class CompiledProgram {
 public:
  explicit CompiledProgram(loop::Program program, RunCompiledOptions options = {});
  ~CompiledProgram();

  // Like loop::interpret: the same inputs give the same outputs, the same mistakes an Error with the same
  // sentence.
  std::vector<loop::HostTensor> run(const std::vector<loop::HostTensor>& inputs,
                                    std::vector<loop::HostTensor>* states = nullptr);
  // Seconds of the steps alone, memory made and bound before.
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
