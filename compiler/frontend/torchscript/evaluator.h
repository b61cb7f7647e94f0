// Runs a method of the saved module at compile time. What is known is computed, calls are inlined, loops
// over known counts are unrolled; operators on tensors become nodes of the graph, and control flow that data
// decide becomes If and Loop nodes.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/base/diagnostic.h"
#include "compiler/frontend/torchscript/library.h"
#include "compiler/frontend/torchscript/value.h"
#include "compiler/frontend/torchscript/weights.h"
#include "compiler/graph/builder.h"
#include "compiler/graph/user_operators.h"

namespace stridec::torchscript {

struct Arguments {
  std::vector<Value> values;
  std::vector<std::string> names;  // one for each value: "" for positional ones
  void add(Value value, std::string name = {}) {
    values.push_back(std::move(value));
    names.push_back(std::move(name));
  }
};

// An exception that the program raises.
struct Raised {
  std::string message;
};

class Journal;

struct Frame {
  const Function* function = nullptr;
  std::unordered_map<std::string, Value> names;
  std::unordered_map<std::string, const Statement*> functions;  // bodies of fork()
  Value result;
};

class Evaluator;
// Calls a function that the program does not define (builtins.h).
using BuiltinFn = Value (*)(Evaluator& e, const std::string& space, const std::string& name,
                            Arguments arguments);

class Evaluator {
 public:
  Evaluator(graph::Builder& builder, const Archive& archive, Library& library, Weights& weights,
            BuiltinFn call_builtin)
      : b(builder), library(library), archive_(archive), weights_(weights), call_builtin_(call_builtin) {}

  graph::Builder& b;
  Library& library;
  std::vector<Diagnostic> problems;  // statements that could not be imported
  int version = 10;                  // of the operators
  size_t calls = 0;                  // of operators
  const graph::UserOperators* operators = nullptr;
  std::vector<graph::UnknownCall> unknown;  // calls of unknown operators

  // The value of an item of data.pkl. Shared items are one value; tensors stay in the file until they are
  // read. `path` names what it is in.
  Value from_pickle(const ItemRef& item, const std::string& path);
  // Calls a method of an object. Throws Raised for an exception of the program.
  Value call_method(const Value& object, const std::string& name, Arguments arguments);
  Value call_function(const Function& function, Arguments arguments);

  Value attribute(const Value& object, const std::string& name);
  void set_attribute(const Value& object, const std::string& name, Value value);
  // Reads a tensor of the file, and those in a list.
  Value loaded(Value value);

  // Attributes of saved objects that the program set, by their paths, with their objects and names.
  struct SetAttribute {
    std::shared_ptr<Object> object;
    std::string name;
    Value before;
    bool read = false;  // before it was set: what the file or the last run left matters
  };
  std::map<std::string, SetAttribute> set_attributes;
  // What a run leaves in an attribute: a tensor of this type, or a value that is known.
  struct Left {
    std::optional<graph::Type> type;
    Value known;
    bool differs = false;  // in its type from what the file has
  };
  // Those that are states, by their paths.
  std::map<std::string, Left> attribute_states;
  // Those that change and are not states.
  std::map<std::string, Left> changed_attributes();
  // forward(), starting from the states. Throws Raised.
  Value call_from_states(const Value& module, const std::string& method, const Arguments& arguments);
  // Whether the next run finds another value than the file's.
  bool is_changed(const SetAttribute& set) const;
  void update_attribute_states();  // adds the nodes that keep what was set

  // -- the place of the evaluation, for messages
  std::string place() const;
  std::string object_path() const { return paths_.empty() ? "" : paths_.back(); }
  void record(Error error, const std::string& op);
  // At most once for each operator.
  void record_unsupported(const std::string& op);
  [[noreturn]] static void unsupported(std::string message, std::string help = {});

  // -- data-dependent control flow (control_flow.cpp)
  enum class Flow : uint8_t { kNext, kReturn };
  // Evaluates both branches; the condition selects one at run time. `names`: the variables of the frame that
  // the branches assign.
  Flow either(sym::Expr condition, Frame& frame, const std::set<std::string>& names,
              const std::function<Flow()>& then, const std::function<Flow()>& otherwise);
  Flow if_on_data(const Statement& s, sym::Expr condition, Frame& frame);
  void loop_on_data(const Statement& s, const Value& count, Frame& frame);
  void while_on_data(const Statement& s, Frame& frame);

  Flow run(const std::vector<Statement>& block, Frame& frame);
  Value evaluate(const Expression& e, Frame& frame);

  // A list, dict or object is about to change: control flow on data remembers its contents.
  void touch(const Value& value);

  // The condition that a value is: a bool, a number, or a tensor of one element.
  sym::Expr condition_of(const Value& value);
  // A symbol for an expression over what the run decides that has grown long.
  sym::Expr short_form(sym::Expr e);
  // A symbol, or what is known, for an integer or bool tensor of one element.
  sym::Expr integer_of(const Value& value);

 private:
  Flow run_statement(const Statement& s, Frame& frame);
  Flow run_if(const Statement& s, Frame& frame);
  void run_while(const Statement& s, Frame& frame);
  void run_for(const Statement& s, Frame& frame);
  void assign(const Statement& s, Value value, Frame& frame);
  void fail_names(const std::vector<Statement>& block, Frame& frame);

  // Values of items of data.pkl by their kind.
  std::vector<Value> saved_items(const Item& item, const std::string& path);
  Value saved_dict(const Item& item, const std::string& path);
  Value saved_object(const Item& item, const std::string& path);
  Value saved_call(const Item& item, const std::string& path);

  Value evaluate_call(const Expression& e, Frame& frame);
  Value call_named(const std::string& name, const Expression& e, Frame& frame);
  Value call_program(const std::string& name, Arguments arguments);
  Value special_form(const std::string& name, const Expression& e, Frame& frame, bool& known);
  Value index(const Value& of, const Value& at);
  bool is_instance(const Value& value, const Expression& type);
  Value constant(const std::string& name);
  struct AttributeState {
    std::shared_ptr<Object> object;
    std::string name, path;
    graph::ValueId value;
    Value initial;
  };
  bool starts_differently() const;  // the first run from the others
  Value attribute_state(const std::string& path, const Value& initial, const std::shared_ptr<Object>& object,
                        const std::string& name);
  void update_state(const AttributeState& state, const Value& now);
  Value program_name(const std::string& name);
  Arguments arguments(const Expression& call, Frame& frame);
  void count_step();

  const Archive& archive_;
  Weights& weights_;
  const BuiltinFn call_builtin_;
  std::unordered_map<const Item*, Value> from_items_;
  std::unordered_map<std::string, Value> constants_;
  std::set<std::string> unsupported_, read_attributes_;
  std::vector<AttributeState> states_;
  graph::ValueId started_;
  std::vector<const Function*> stack_;
  std::vector<Frame*> frames_;
  std::vector<Journal*> journals_;  // of the control flow that is under way, outermost first
  std::vector<std::string> paths_;  // of the objects whose methods are in the stack
  int line_ = 0, depth_ = 0;
  size_t steps_ = 0;

  friend class ControlFlow;
};

// Names that the statements assign, inner blocks included.
std::set<std::string> assigned_names(const std::vector<Statement>& block);
// "a.b.c" of names and attributes; "" for other expressions.
std::string dotted(const Expression& e);

}  // namespace stridec::torchscript
