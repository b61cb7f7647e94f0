// Parses a function in a subset of C (docs/operators.md) that computes one element of each output, and builds
// it from operations of the graph. The text never reaches a C compiler.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/extend/rule.h"
#include "compiler/extend/vocabulary.h"
#include "compiler/graph/builder.h"

namespace stridec::extend {

struct CExpression {
  enum class Kind { kNumber, kName, kUnary, kBinary, kChoice, kCall, kCast, kLoad };
  Kind kind = Kind::kNumber;
  // kName, kCall, kLoad (x[i][j], args: the indices): the name. kUnary, kBinary: the operator. kCast: the
  // type.
  std::string name;
  double number = 0;
  int64_t integer = 0;
  std::string suffix;  // of kNumber: "f", "u", "l", "ul", ...
  bool real = false;   // of kNumber
  int base = 10;       // of an integer literal: 8, 10 or 16
  std::vector<CExpression> args;
  Position at;
};

struct CStatement {
  enum class Kind { kDeclare, kAssign, kIf, kFor, kReturn, kBlock };
  Kind kind = Kind::kBlock;
  std::string type, name;  // of kDeclare and kAssign
  std::vector<CExpression>
      value;  // of kDeclare, kAssign and kReturn: at most one; of kIf, kFor: the condition
  std::vector<CStatement> first;      // of kFor: the initialisation
  std::vector<CStatement> body;       // of kBlock, kIf, kFor
  std::vector<CStatement> otherwise;  // of kIf: the else branch; of kFor: the increment
  Position at;
};

struct CParameter {
  std::string type, name;
  bool pointer = false;  // an output
  int indices = 0;       // number of array dims, 2 in float x[n][d]; 0: a scalar
  Position at;
};

struct CFunction {
  std::string result;  // "void", or a type
  std::string name;
  std::vector<CParameter> parameters;
  std::vector<CStatement> body;
  std::string text, place;  // for errors
};

// Throws Error like parse_rules() for text outside the subset. `types`: further names of types.
CFunction parse_c_function(const std::string& text, const std::string& place,
                           const std::vector<std::string>& types);
// Whether the name is a type of C: "float", "int32_t".
bool is_c_type(std::string_view name);

// The shape of the outputs, and the parameters that index their elements, in the order of the dims.
struct CPlace {
  graph::Shape shape;
  std::vector<std::string> indices;
};

// The outputs by the names of their pointers, and the function's result as "". `values` are the inputs;
// `attributes` are attributes, dims, and the types that names of types stand for. Throws Error (kDoesNotFit).
std::map<std::string, graph::ValueId> build_c_function(
    graph::Builder& builder, const CFunction& function,
    const std::map<std::string, graph::ValueId, std::less<>>& values,
    const std::map<std::string, Attr, std::less<>>& attributes, const CPlace& place = {});

}  // namespace stridec::extend
