// The data that `stridec ops` prints.
#pragma once

#include <string>

namespace stridec::frontend {

// One operator of a format.
struct OperatorInfo {
  std::string name;      // "Conv", "com.microsoft.Gelu"
  std::string versions;  // versions of its domain that are supported: "7-13, 14-"; "": none
  // "row": has its own importer; "function": imported by its definition in ONNX; "": not supported.
  std::string through;
  std::string types;   // dtypes supported by the newest version: "T: f16 f32; Tind: i32 i64"
  std::string limits;  // what is not supported, or why the operator is not supported at all
};

}  // namespace stridec::frontend
