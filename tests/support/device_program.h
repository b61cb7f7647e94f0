// Runs a program on this machine's GPU through the runtime, with data in host memory.
#pragma once

#include <memory>
#include <vector>

#include "compiler/codegen/cuda/build.h"
#include "compiler/loop/interpret.h"

namespace stridec::test {

class DeviceProgram {
 public:
  // `variant` is scheduled and its memory is planned; the constructor plans weights and runs prepack nests.
  // Throws the compiler's errors, and a kDoesNotFit Error if no GPU can run the program.
  explicit DeviceProgram(codegen::cuda::Variant variant);
  ~DeviceProgram();

  // Like loop::interpret: invalid inputs or data throw an Error with the same message. A device fault ends
  // the process, with the kernels printed to stderr, since the device is unusable afterwards.
  std::vector<loop::HostTensor> run(const std::vector<loop::HostTensor>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stridec::test
