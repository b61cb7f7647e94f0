// The syntax tree of TorchScript's serialised sources.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace stridec::torchscript {

struct Expression {
  enum class Kind : uint8_t {
    kName,       // text
    kInteger,    // integer
    kFloat,      // number
    kImaginary,  // number
    kString,     // text
    kTrue,
    kFalse,
    kNone,
    kAttribute,  // items[0].text
    kIndex,      // items[0][items[1]]
    kCall,       // items[0](items[1], ...); names: of the arguments, "" for positional ones
    kList,       // items
    kTuple,      // items
    kDict,       // items: keys and values by turns
    kNegative,   // -items[0]
    kSum,        // items[0] + items[1]: a complex number
  };
  Kind kind = Kind::kNone;
  int line = 0;
  size_t position = 0;  // in the source, in bytes
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<Expression> items;
  std::vector<std::string> names;
};

struct Statement {
  enum class Kind : uint8_t {
    kAssign,     // targets = value; of several, the value is unpacked
    kAttribute,  // object.targets[0] = value
    kEvaluate,   // value
    kReturn,     // value
    kIf,         // value, body, otherwise
    kWhile,      // value, body
    kFor,        // targets[0] in range(value), body
    kWith,       // value, body
    kFunction,   // targets[0], body: def __forked_function():
  };
  Kind kind = Kind::kEvaluate;
  int line = 0;
  std::vector<std::string> targets;
  bool unpacks = false;  // the targets are the items of the value
  Expression object, value;
  std::vector<Statement> body, otherwise;
};

struct Parameter {
  std::string name;
  Expression type;
  bool typed = false;
  std::unique_ptr<Expression> default_value;  // null: none
};

struct Function {
  std::string name;
  std::string module;  // of the source: "__torch__.torch.nn.functional"
  int line = 0;
  std::vector<Parameter> parameters;
  std::vector<Statement> body;
};

struct Class {
  std::string name;                                            // qualified: "__torch__.a.b.C"
  std::string base;                                            // "Module", "NamedTuple", "Enum", or ""
  std::vector<std::pair<std::string, Expression>> attributes;  // name and type, in order
  std::map<std::string, Expression> constants;                 // Final attributes, and members of an Enum
  std::map<std::string, Function> methods;
  std::vector<std::string> parameters, buffers;  // names of the tensors that are such
};

struct Source {
  std::string module;
  std::map<std::string, Function> functions;  // by their names in the module
  std::map<std::string, Class> classes;
};

}  // namespace stridec::torchscript
