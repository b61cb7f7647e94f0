// A program run on the GPU of this machine through the runtime, with data in host memory.
#pragma once

#include <memory>
#include <vector>

#include "compiler/codegen/cuda/build.h"
#include "compiler/loop/interpret.h"

namespace stridec::test {

class DeviceProgram {
 public:
  // Scheduled, with memory planned; weights are planned here, and prepack nests run. Throws what the compiler does,
  // and a kDoesNotFit Error where no GPU runs it.
  explicit DeviceProgram(codegen::cuda::Variant variant);
  ~DeviceProgram();

  // Like loop::interpret: what is wrong with the inputs or their data is an Error with the same sentence. A fault of the
  // device ends the process, with the kernels on stderr: nothing works after it.
  std::vector<loop::HostTensor> run(const std::vector<loop::HostTensor>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stridec::test
