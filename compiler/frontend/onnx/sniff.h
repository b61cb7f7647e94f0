// What a file that is not an ONNX model looks like, so that the message can say so.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace stridec::onnx {

struct FileLooks {
  std::string what;  // "a PNG image"; empty when nothing else is recognised
  std::string help;  // how to get an ONNX model from it
};

FileLooks sniff(std::span<const std::byte> file);

}  // namespace stridec::onnx
