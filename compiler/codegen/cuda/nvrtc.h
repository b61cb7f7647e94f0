// NVRTC, NVIDIA's runtime compiler, loaded on first use; the only unit that knows its interface.
#pragma once

#include <string>
#include <vector>

#include "compiler/base/gpu_target.h"

namespace stridec::codegen::cuda {

class Nvrtc {
 public:
  // `path`: the library, or a folder that contains it; "": $STRIDEC_NVRTC, the loader's path, CUDA's usual
  // folders and those of the Python wheel. Throws Error kToolchain, code "no-nvrtc", which lists where it
  // looked.
  explicit Nvrtc(const std::string& path);
  Nvrtc(const Nvrtc&) = delete;
  ~Nvrtc();

  // Such as "13.0"; part of every cache key.
  const std::string& version() const { return version_; }
  // The oldest driver that loads its cubins. Source: CUDA's release notes, table of minimum driver versions.
  const char* driver_floor() const { return major_ < 13 ? "525.60" : "580.65"; }
  bool supports(const GpuTarget& target) const;
  // Returns a cubin, or zero-terminated PTX text for the target "ptx". `name` appears in messages. Throws
  // Error kToolchain, code "nvrtc", with the compiler's log.
  std::string compile(const std::string& name, const std::string& text, const GpuTarget& target) const;

 private:
  struct Functions;
  void* library_ = nullptr;
  Functions* functions_ = nullptr;
  std::string version_, path_;
  int major_ = 0;
  std::vector<int> architectures_;
};

}  // namespace stridec::codegen::cuda
