// What `stridec ops` prints.
#pragma once

#include <string>

namespace stridec::frontend {

// What is known of one ONNX operator.
struct OperatorInfo {
  std::string name;      // "Conv", "com.microsoft.Gelu"
  std::string versions;  // of its domain that are covered: "7-13, 14-"; "": none
  std::string
      through;         // "row": an importer of its own; "function": its definition in ONNX; "": not supported
  std::string types;   // of the newest version, of this build's dtypes: "T: f16 f32; Tind: i32 i64"
  std::string limits;  // what of it is not taken, or why it is not supported at all
};
}  // namespace stridec::frontend
