// A function in a subset of C (docs/operators.md) that computes one element of each output, as a syntax tree,
// and its meaning as operations of the graph. No text of it reaches a C compiler.
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
  // Of kName, kCall and kLoad (x[i][j]: its args are the indices); the sign of kUnary and kBinary; the type
  // of kCast.
  std::string name;
  double number = 0;
  int64_t integer = 0;
  std::string suffix;  // of kNumber: "f", "u", "l", "ul", ...
  bool real = false;   // of kNumber
  int base = 10;       // in which an integer is written
  std::vector<CExpression> args;
  Position at;
};

struct CStatement {
  enum class Kind { kDeclare, kAssign, kIf, kFor, kReturn, kBlock };
  Kind kind = Kind::kBlock;
  std::string type, name;  // of kDeclare and kAssign
  std::vector<CExpression>
      value;  // of kDeclare, kAssign and kReturn: at most one; of kIf, kFor: the condition
  std::vector<CStatement> first;      // of kFor: what runs before it
  std::vector<CStatement> body;       // of kBlock, kIf, kFor
  std::vector<CStatement> otherwise;  // of kIf: else; of kFor: after each round
  Position at;
};

struct CParameter {
  std::string type, name;
  bool pointer = false;  // an output
  int indices = 0;       // float x[n][d]: how many it has; 0: a number
  Position at;
};

struct CFunction {
  std::string result;  // "void", or a type
  std::string name;
  std::vector<CParameter> parameters;
  std::vector<CStatement> body;
  std::string text, place;  // for errors
};

// Throws Error like parse_rules(), for what is not in the subset. `types`: names that stand for types.
CFunction parse_c_function(const std::string& text, const std::string& place,
                           const std::vector<std::string>& types);
// Whether the name is a type of C: "float", "int32_t".
bool is_c_type(std::string_view name);

// Where the elements of the outputs are: their shape, and the parameters that are their indices, in order.
struct CPlace {
  graph::Shape shape;
  std::vector<std::string> indices;
};

// The outputs by the names of pointers, and the result as "". Names are those of inputs, attributes and dims;
// `types` are what names of types stand for. Throws Error (kDoesNotFit).
std::map<std::string, graph::ValueId> build_c_function(
    graph::Builder& builder, const CFunction& function,
    const std::map<std::string, graph::ValueId, std::less<>>& values,
    const std::map<std::string, Attr, std::less<>>& attributes, const CPlace& place = {});

}  // namespace stridec::extend
