#include "compiler/frontend/pt2/import.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_set>

#include "compiler/base/number.h"
#include "compiler/base/text.h"
#include "compiler/base/zip.h"
#include "compiler/frontend/aten/slices.h"
#include "compiler/frontend/pt2/expression.h"
#include "compiler/frontend/pt2/guards.h"
#include "compiler/frontend/pt2/importer.h"
#include "compiler/frontend/pt2/input_names.h"
#include "compiler/frontend/pt2/json.h"
#include "compiler/frontend/pt2/liveness.h"
#include "compiler/frontend/pt2/tree_spec.h"
#include "compiler/frontend/pt2/weights.h"
#include "compiler/graph/guards.h"
#include "compiler/ops/fixed_input.h"
#include "compiler/ops/name_size.h"
#include "compiler/ops/op_table.h"
#include "compiler/sym/guard.h"

namespace stridec::pt2 {
namespace {

using aten::Value;
using In = InputSpec::Kind;
using Out = OutputSpec::Kind;

// The lower bound of a size that tracing assumes; PyTorch does not enforce it.
constexpr int64_t kAssumedLower = 2;
constexpr int64_t kNoUpper = int64_t{1} << 62;

std::string dim_name(const std::string& input, size_t dim) { return cat(input, ".", dim); }

// One pass over the program. Which storages it writes is only known afterwards; if any, a second pass makes
// states of them.
class Pass {
 public:
  Pass(const Archive& archive, const ImportOptions& options, const std::set<std::string>& states,
       Imported& out)
      : archive_(archive),
        program_(archive.program),
        options_(options),
        states_(states),
        out_(out),
        b_(out.graph, ops::shape_table()),
        importer_(b_) {
    b_.set_replaceable(options.replaceable);
  }

  // Storages, by their path in the archive, that the program wrote without being states.
  std::set<std::string> run() {
    out_.graph.name = archive_.model;
    InputNames names = input_names(program_);
    names_ = std::move(names.names);
    paths_ = std::move(names.paths);
    check_input_values();
    importer_.operators = options_.operators;
    importer_.dead = dead_nodes(program_.graph, options_.torch_random.has_value());
    collect_unsupported(program_.graph);
    name_symbols();
    set_ranges();
    add_inputs();
    if (options_.torch_random) ops::add_torch_generator(b_, *options_.torch_random);
    add_weights();
    const sym::Facts given = out_.graph.facts;
    add_guards();
    importer_.run(program_.graph, scope_);
    std::move(importer_.problems.begin(), importer_.problems.end(), std::back_inserter(out_.problems));
    out_.nodes = std::move(importer_.nodes);
    out_.unknown = std::move(importer_.unknown);
    std::set<std::string> written = written_weights();
    if (!written.empty()) return written;
    if (out_.problems.empty()) {
      add_outputs();
      update_states();
      aten::keep_generator(b_);
      graph::drop_implied_guards(out_.graph, given);
    }
    return {};
  }

 private:
  struct Weighed {
    std::string name, path;
    aten::Tensor tensor;
  };

  void problem(ErrorKind kind, std::string code, std::string message, Location where, std::string help = {}) {
    out_.problems.push_back({.kind = kind,
                             .code = std::move(code),
                             .message = std::move(message),
                             .where = std::move(where),
                             .notes = {},
                             .help = std::move(help)});
  }

  // Values that --input-value fixes must be of tensors and integers among the inputs.
  void check_input_values() const {
    for (const auto& [name, values] : options_.input_values) {
      const auto at = std::find(names_.begin(), names_.end(), name);
      const size_t i = static_cast<size_t>(at - names_.begin());
      if (at != names_.end() && !name.empty() && program_.inputs[i].kind == In::kUser) continue;
      if (!options_.absent)
        fail(ErrorKind::kUsage, "bad-input-value", cat("the program has no input '", name, "'"));
      options_.absent->insert(cat("--input-value ", name));
    }
  }

  // ---- what is not supported at all, once for each operator
  void collect_unsupported(const Graph& top) {
    struct Seen {
      size_t count = 0;
      std::string name, trace;
    };
    std::map<std::string, Seen> seen;
    const std::function<void(const Argument&)> walk_argument = [&](const Argument& a) {
      if (!a.graph) return;
      walk(*a.graph, walk_argument, seen);
    };
    walk(top, walk_argument, seen);
    for (auto& [target, s] : seen) {
      importer_.unsupported.insert(target);
      Diagnostic d{
          .kind = ErrorKind::kUnsupported,
          .code = "unsupported-op",
          .message = cat("operator ", short_target(target), " is not supported (", s.count,
                         s.count == 1 ? " node)" : " nodes)"),
          .where = {.file = {}, .node = cat("node '", s.name, "'"), .op = short_target(target), .tensor = {}},
          .notes = {},
          .help = {}};
      if (!s.trace.empty()) d.notes.push_back(s.trace);
      if (!user_name(target).empty()) d.help = "declare it by --ops FILE; 'stridec check' prints a draft";
      if (target.starts_with("torch._functorch"))
        d.help = "call run_decompositions() on the exported program before saving it";
      out_.problems.push_back(std::move(d));
    }
  }
  template <class Walk, class Map>
  void walk(const Graph& graph, const Walk& walk_argument, Map& seen) {
    for (const Node& node : graph.nodes) {
      if (importer_.dead.contains(&node)) continue;
      for (const NamedArgument& input : node.inputs) walk_argument(input.value);
      if (is_supported(node.target) || importer_.is_user(node.target)) continue;
      auto& s = seen[node.target];
      if (++s.count > 1) continue;
      s.name = node.name;
      std::string_view trace = node.stack_trace;
      const size_t line = trace.rfind("File ");
      if (line != std::string_view::npos)
        s.trace = std::string(trace.substr(line, trace.find('\n', line) - line));
    }
  }

  // ---- symbols
  // A symbol that is a dim of an input by itself is named after the first such dim; one that occurs in
  // multiples only keeps PyTorch's name.
  void name_symbols() {
    std::vector<std::string> derived;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const TensorMeta* meta = user_meta(i);
      if (!meta) continue;
      for (size_t d = 0; d < meta->sizes.size(); ++d) {
        if (meta->sizes[d].value) continue;
        std::vector<std::string> found;
        const auto e =
            parse_expression(meta->sizes[d].text, [&](const std::string& s) -> std::optional<sym::Expr> {
              found.push_back(s);
              return sym::var(s);
            });
        if (e && e->is_var() && found.size() == 1) {
          if (!importer_.symbols.contains(found[0]))
            importer_.symbols.emplace(found[0], sizes_.size(dim_name(names_[i], d)));
        } else {
          derived.insert(derived.end(), found.begin(), found.end());
        }
      }
    }
    for (const std::string& s : derived)
      if (!importer_.symbols.contains(s)) importer_.symbols.emplace(s, sizes_.size(s));
    sizes_.check_used(options_.absent);
  }

  void set_ranges() {
    sym::Facts& facts = out_.graph.facts;
    for (const auto& [name, e] : importer_.symbols) {
      if (!e.is_var()) continue;
      std::optional<int64_t> lower = 0, upper;
      if (const auto range = program_.ranges.find(name); range != program_.ranges.end()) {
        if (range->second.lower && *range->second.lower != kAssumedLower)
          lower = std::max<int64_t>(*range->second.lower, 0);
        if (range->second.upper && *range->second.upper < kNoUpper) upper = range->second.upper;
      }
      facts.set_range(e, lower, upper);
    }
    sizes_.set_ranges(facts);
  }

  const TensorMeta* user_meta(size_t i) const {
    const InputSpec& spec = program_.inputs[i];
    if (spec.kind != In::kUser || spec.argument.kind != Argument::Kind::kTensor) return nullptr;
    const auto found = program_.graph.tensors.find(spec.argument.text);
    if (found == program_.graph.tensors.end()) malformed(cat("input '", spec.argument.text, "' has no type"));
    return &found->second;
  }

  // ---- inputs
  void add_inputs() {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const InputSpec& spec = program_.inputs[i];
      switch (spec.kind) {
        case In::kUser: add_user_input(i); break;
        case In::kFixed:
          scope_[spec.target] = importer_.value_of(spec.argument, scope_);
          if (!program_.graph.inputs[i].text.empty())
            scope_[program_.graph.inputs[i].text] = scope_[spec.target];
          break;
        case In::kToken: scope_[program_.graph.inputs[i].text] = Value(); break;
        case In::kCustomObject:
          problem(ErrorKind::kUnsupported, "custom-object",
                  cat("the program holds an object of a custom class, '", spec.target, "'"), {});
          scope_[program_.graph.inputs[i].text] = Value::failed();
          break;
        default: break;
      }
    }
  }

  void add_user_input(size_t i) {
    const InputSpec& spec = program_.inputs[i];
    const Argument& a = spec.argument;
    if (a.kind == Argument::Kind::kSymInt) {
      add_integer_input(i);
      return;
    }
    if (a.kind != Argument::Kind::kTensor) {
      scope_[a.text] = importer_.value_of(a, scope_);
      return;
    }
    const TensorMeta& meta = *user_meta(i);
    const auto type = element_type(meta.scalar_type);
    const Location where{.file = {}, .node = {}, .op = {}, .tensor = cat("input '", names_[i], "'")};
    if (!type || meta.layout != 7) {
      problem(ErrorKind::kUnsupported, "unsupported-dtype",
              cat("an input of ", meta.layout != 7 ? "a sparse layout" : scalar_type_name(meta.scalar_type),
                  " is not supported"),
              where);
      scope_[a.text] = Value::failed();
      return;
    }
    graph::Type own{type->dtype, {}};
    for (const Size& size : meta.sizes) {
      const auto e = importer_.expression(size);
      if (!e) malformed(cat("a size of input '", names_[i], "' is not understood: ", size.text));
      own.shape.push_back(*e);
    }
    if (type->complex) own.shape.emplace_back(2);
    aten::Tensor tensor = aten::fresh({b_, b_.input(names_[i], own)});
    tensor.complex = type->complex;
    std::vector<sym::Expr> strides;
    for (const Size& stride : meta.strides)
      if (const auto e = importer_.expression(stride)) strides.push_back(*e);
    if (strides.size() == meta.sizes.size()) tensor.strides = tensor.storage->strides = strides;
    inputs_.push_back({names_[i], a.text, tensor});
    if (const auto given = options_.input_values.find(names_[i]); given != options_.input_values.end()) {
      tensor.storage->base = ops::fixed_input(b_, names_[i], aten::read(b_, tensor), given->second).id();
    }
    scope_[a.text] = Value(tensor);
  }

  // A Python integer: an i64 scalar whose value is a symbol of the run.
  void add_integer_input(size_t i) {
    const std::string& name = program_.inputs[i].argument.text;
    ops::Term scalar(b_, b_.input(names_[i], {DType::kI64, {}}));
    if (const auto given = options_.input_values.find(names_[i]); given != options_.input_values.end())
      scalar = ops::fixed_input(b_, names_[i], scalar, given->second);
    sym::Expr lower = -ops::kLargestSize, upper = ops::kLargestSize;
    std::string own;
    if (const auto size = program_.graph.sizes.find(name);
        size != program_.graph.sizes.end() && !size->second.value)
      parse_expression(size->second.text, [&](const std::string& s) -> std::optional<sym::Expr> {
        own = s;
        return std::nullopt;
      });
    if (const auto range = program_.ranges.find(own); range != program_.ranges.end()) {
      if (range->second.lower) lower = *range->second.lower == kAssumedLower ? 0 : *range->second.lower;
      if (range->second.upper && *range->second.upper < ops::kLargestSize) upper = *range->second.upper;
    }
    const sym::Expr e = b_.symbol_of(scalar, names_[i], lower, upper);
    if (!own.empty()) importer_.symbols[own] = e;
    scope_[name] = Value::integer_of(e);
  }

  // ---- weights
  void add_weights() {
    add_shared_states();
    std::map<std::string, std::pair<const TensorMeta*, aten::Tensor>> storages;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const InputSpec& spec = program_.inputs[i];
      if (spec.kind != In::kParameter && spec.kind != In::kBuffer && spec.kind != In::kConstant) continue;
      const std::string& own = spec.argument.text;
      const auto found = archive_.tensors.find(spec.target);
      if (found == archive_.tensors.end()) {
        const auto refused = archive_.refused.find(spec.target);
        problem(ErrorKind::kUnsupported, "no-weights",
                refused == archive_.refused.end()
                    ? cat("the file has no value for '", spec.target, "'")
                    : cat("'", spec.target, "' cannot be read: ", refused->second),
                {},
                refused == archive_.refused.end()
                    ? ""
                    : "call unwrap_tensor_subclass() or run_decompositions() before saving");
        scope_[own] = Value::failed();
        continue;
      }
      const StoredTensor& stored = found->second;
      if (const auto shared = shared_states_.find(stored.path); shared != shared_states_.end()) {
        const aten::Tensor tensor = view_of_storage(shared->second, stored.meta);
        weights_.push_back({spec.target, stored.path, tensor});
        scope_[own] = Value(tensor);
        continue;
      }
      const auto [at, is_new] = storages.try_emplace(stored.path, &stored.meta, aten::Tensor());
      const bool whole = is_new || same_layout(*at->second.first, stored.meta);
      if (whole && !is_new) {
        scope_[own] = Value(at->second.second);
        weights_.push_back({spec.target, stored.path, at->second.second});
        continue;
      }
      const Weight weight = read_weight(spec.target, stored, missing_weights());
      const bool state = states_.contains(stored.path);
      const ops::Term value(b_, state ? b_.state(spec.target, weight.type, weight.data)
                                      : b_.constant(spec.target, weight.type, weight.data));
      if (options_.only_parameters && spec.kind != In::kParameter) b_.fix(value);
      aten::Tensor tensor = aten::fresh(value);
      tensor.complex = weight.complex;
      std::vector<sym::Expr> strides;
      for (const Size& stride : stored.meta.strides) strides.push_back(stride.value.value_or(0));
      tensor.strides = tensor.storage->strides = strides;
      if (state) state_tensors_.push_back({spec.target, stored.path, tensor});
      if (is_new) at->second.second = tensor;
      weights_.push_back({spec.target, stored.path, tensor});
      weight_bytes_ += weight.data.size;
      scope_[own] = Value(tensor);
    }
  }

  // A storage that the program writes and that tensors share in several layouts is one state. The tensors are
  // views of it, so that each sees what is written through another one.
  void add_shared_states() {
    std::map<std::string, std::vector<const InputSpec*>> sharing;
    for (const InputSpec& spec : program_.inputs) {
      const auto found = archive_.tensors.find(spec.target);
      const bool weight =
          spec.kind == In::kParameter || spec.kind == In::kBuffer || spec.kind == In::kConstant;
      if (weight && found != archive_.tensors.end() && states_.contains(found->second.path))
        sharing[found->second.path].push_back(&spec);
    }
    for (const auto& [path, specs] : sharing) {
      const TensorMeta& first = archive_.tensors.at(specs[0]->target).meta;
      if (std::ranges::any_of(specs, [&](const InputSpec* spec) {
            return !same_layout(archive_.tensors.at(spec->target).meta, first);
          }))
        add_shared_state(path, specs);
    }
  }

  // The state has the name and shape of a tensor that is the whole storage, or is flat.
  void add_shared_state(const std::string& path, const std::vector<const InputSpec*>& specs) {
    const auto tensor_of = [&](const InputSpec* spec) -> const StoredTensor& {
      return archive_.tensors.at(spec->target);
    };
    const auto whole =
        std::ranges::find_if(specs, [&](const InputSpec* spec) { return fills_storage(tensor_of(spec)); });
    const std::string& name = (whole == specs.end() ? specs[0] : *whole)->target;
    const StoredTensor stored = whole == specs.end() ? flat(tensor_of(specs[0])) : tensor_of(*whole);
    for (const InputSpec* spec : specs)
      if (tensor_of(spec).meta.scalar_type != stored.meta.scalar_type)
        fail(ErrorKind::kUnsupported, "written-storage",
             cat("the program writes '", spec->target, "', whose storage '", name,
                 "' shares as another dtype"));
    const Weight weight = read_weight(name, stored, missing_weights());
    if (weight.complex)
      fail(ErrorKind::kUnsupported, "written-storage",
           cat("the program writes '", name, "', whose storage another tensor of complex numbers shares"));
    const aten::Tensor tensor = aten::fresh({b_, b_.state(name, weight.type, weight.data)});
    state_tensors_.push_back({name, path, tensor});
    weight_bytes_ += weight.data.size;
    shared_states_.emplace(path, tensor);
  }

  MissingWeights missing_weights() const {
    return {.are_zero = options_.missing_weights_are_zero, .given = options_.weights};
  }

  // A tensor with the elements of the storage in row-major order.
  static aten::Tensor view_of_storage(const aten::Tensor& storage, const TensorMeta& meta) {
    const auto numbers = [](const std::vector<Size>& sizes) {
      graph::Shape out;
      for (const Size& size : sizes) out.emplace_back(size.value.value_or(0));
      return out;
    };
    const int64_t offset = meta.offset.value.value_or(0);
    aten::Tensor out = aten::strided_view(
        storage, numbers(meta.sizes), numbers(meta.strides),
        [offset](ops::Term memory) { return ops::size_as(memory.builder(), DType::kI64, offset); });
    out.strides = numbers(meta.strides);
    return out;
  }

  static bool same_layout(const TensorMeta& a, const TensorMeta& b) {
    const auto same = [](const std::vector<Size>& x, const std::vector<Size>& y) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                        [](const Size& s, const Size& t) { return s.value == t.value && s.text == t.text; });
    };
    return a.scalar_type == b.scalar_type && same(a.sizes, b.sizes) && same(a.strides, b.strides) &&
           a.offset.value == b.offset.value;
  }

  std::set<std::string> written_weights() const {
    std::set<std::string> out;
    for (const Weighed& w : weights_) {
      const bool state = states_.contains(w.path);
      if (!state && w.tensor.storage->version > 0) out.insert(w.path);
    }
    for (const OutputSpec& spec : program_.outputs) {
      if (spec.kind != Out::kBufferMutation && spec.kind != Out::kParameterMutation) continue;
      const auto found = archive_.tensors.find(spec.target);
      if (found != archive_.tensors.end() && !states_.contains(found->second.path))
        out.insert(found->second.path);
    }
    return out;
  }

  // ---- guards
  void add_guards() {
    const GuardLookup lookup = [&](const std::vector<std::string>& path,
                                   std::optional<int64_t> dim) -> std::optional<sym::Expr> {
      for (size_t i = 0; i < program_.inputs.size(); ++i) {
        if (paths_[i] != path) continue;
        const auto found = scope_.find(program_.inputs[i].argument.text);
        if (found == scope_.end()) return std::nullopt;
        const Value& v = found->second;
        if (!dim) return v.kind == Value::Kind::kInt ? std::optional(v.integer) : std::nullopt;
        if (!v.is_tensor()) return std::nullopt;
        const graph::Shape shape = aten::shape_of(b_, v.tensor);
        if (*dim < 0 || *dim >= std::ssize(shape)) return std::nullopt;
        return shape[static_cast<size_t>(*dim)];
      }
      return std::nullopt;
    };
    for (const std::string& guard : program_.guards) {
      if (is_layout_guard(guard)) continue;
      const auto condition = parse_guard(guard, lookup);
      if (!condition) {
        out_.warnings.push_back({.kind = ErrorKind::kUnsupported,
                                 .code = "guard",
                                 .message = cat("the program assumes '", guard, "', which is not checked"),
                                 .where = {},
                                 .notes = {},
                                 .help = {}});
        continue;
      }
      try {
        b_.require(*condition, cat("the exported program assumes ", sym::escaped(guard)));
      } catch (const Error& error) {
        out_.problems.push_back(error.diagnostic);
      }
    }
  }

  // ---- outputs
  void add_outputs() {
    std::vector<Path> paths;
    if (!program_.out_spec.empty()) paths = leaf_paths(program_.out_spec, program_.namedtuple_fields);
    size_t count = 0;
    for (const OutputSpec& spec : program_.outputs) count += spec.kind == Out::kUser;
    size_t at = 0;
    for (const OutputSpec& spec : program_.outputs) {
      if (spec.kind == Out::kBufferMutation || spec.kind == Out::kParameterMutation) {
        mutate(spec);
        continue;
      }
      if (spec.kind == Out::kInputMutation) {
        updated_inputs_.emplace(spec.target, importer_.value_of(spec.argument, scope_));
        continue;
      }
      if (spec.kind != Out::kUser) continue;
      std::string name = paths.size() == count ? joined(paths[at]) : spec.argument.text;
      ++at;
      if (name.empty()) name = "output";
      add_output(name, importer_.value_of(spec.argument, scope_));
    }
    for (const Weighed& input : inputs_) {
      const auto given = updated_inputs_.find(input.path);
      if (given != updated_inputs_.end())
        add_output(input.name + ".updated", given->second);
      else if (input.tensor.storage->version > 0)
        add_output(input.name + ".updated", Value(input.tensor));
    }
  }

  void add_output(std::string name, const Value& value) {
    if (value.kind == Value::Kind::kFailed || value.is_none() || value.kind == Value::Kind::kString) return;
    aten::add_output(b_, std::move(name), aten::as_term(b_, value), value.is_tensor() && value.tensor.complex,
                     out_.warnings);
  }

  // The functional form returns the new value of a buffer.
  void mutate(const OutputSpec& spec) {
    const Value value = importer_.value_of(spec.argument, scope_);
    for (const Weighed& weight : weights_) {
      if (weight.name != spec.target || !states_.contains(weight.path)) continue;
      aten::write(b_, weight.tensor, aten::as_term(b_, value));
      return;
    }
    malformed(cat("the program writes '", spec.target, "', which it does not have"));
  }

  void update_states() {
    for (const Weighed& state : state_tensors_) {
      const graph::ValueId old =
          std::find_if(out_.graph.states.begin(), out_.graph.states.end(), [&](const graph::State& s) {
            return s.name == state.name;
          })->value;
      b_.add(graph::OpKind::kUpdateState, {old, aten::read(b_, state.tensor).id()});
    }
  }

 public:
  uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  const Archive& archive_;
  const Program& program_;
  const ImportOptions& options_;
  const std::set<std::string>& states_;
  Imported& out_;
  graph::Builder b_;
  Importer importer_;
  Scope scope_;
  std::vector<std::string> names_;  // of the program's inputs
  std::vector<Path> paths_;
  graph::NamedSizes sizes_{options_.dims, options_.sizes_stay_open};
  std::vector<Weighed> weights_, state_tensors_, inputs_;
  std::map<std::string, aten::Tensor> shared_states_;  // by the path of the storage
  std::map<std::string, Value> updated_inputs_;        // by name in the graph
  uint64_t weight_bytes_ = 0;
};

}  // namespace

bool is_program(const graph::Data& file) {
  if (!is_zip(file.bytes, file.size)) return false;
  try {
    return holds_program(file);
  } catch (const Error&) {
    // Damaged: the name of the first member is all there is.
    const std::string_view start(reinterpret_cast<const char*>(file.bytes), std::min<size_t>(file.size, 256));
    constexpr std::string_view kMembers[] = {"archive_format", "/data/weights/", "/data/constants/",
                                             "/models/", "serialized_exported_program.json"};
    return std::any_of(std::begin(kMembers), std::end(kMembers),
                       [&](std::string_view name) { return start.find(name) != std::string_view::npos; });
  }
}

Imported import_program(const std::string& path, const graph::Data& file, const ImportOptions& options) {
  const Archive archive = read_archive(file, options.program);
  if (options.weights &&
      std::ranges::none_of(archive.tensors, [](const auto& each) { return lacks_values(each.second); }))
    fail(ErrorKind::kUsage, "bad-weights", "--weights-from: the program has its weights itself",
         "the flag is for programs that were exported from fake tensors; 'stridec refit' replaces weights");
  std::set<std::string> states;
  while (true) {
    Imported out;
    Pass pass(archive, options, states, out);
    const std::set<std::string> written = pass.run();
    if (written.empty()) {
      for (auto* list : {&out.problems, &out.warnings})
        for (Diagnostic& d : *list)
          if (d.where.file.empty()) d.where.file = path;
      out.summary = cat("PyTorch ", archive.program.torch_version, ", ", archive.program.graph.nodes.size(),
                        " nodes, weights ", human_bytes(pass.weight_bytes()));
      return out;
    }
    states.insert(written.begin(), written.end());
    if (!options.missing_weights_are_zero) check_storages_of_missing(archive.tensors, states);
  }
}

}  // namespace stridec::pt2
