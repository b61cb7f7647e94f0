// Recognises files that are not ONNX models, for error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace stridec::onnx {

struct FileLooks {
  std::string what;  // "a PNG image"; empty if not recognised
  std::string help;  // how to get an ONNX model from it
};

FileLooks sniff(std::span<const std::byte> file);

}  // namespace stridec::onnx
