// Control flow that data decide: both branches of an `if` become regions of an If node, the body of a loop
// becomes the region of a Loop node. Each runs from the same state (effects.h), and what they leave is
// joined.
#include <algorithm>
#include <limits>

#include "compiler/base/at_exit.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/context.h"
#include "compiler/frontend/torchscript/aliases.h"
#include "compiler/frontend/torchscript/convert.h"
#include "compiler/frontend/torchscript/effects.h"
#include "compiler/frontend/torchscript/evaluator.h"
#include "compiler/graph/undo.h"
#include "compiler/ops/helpers.h"
#include "compiler/ops/region.h"
#include "compiler/sym/guard.h"

namespace stridec::torchscript {
namespace {

using VK = Value::Kind;
using Names = std::unordered_map<std::string, Value>;
using graph::ValueId;

Value differs(const std::string& what) {
  Value v = Value::of_kind(VK::kUnset);
  v.text = cat("a value that is ", what);
  return v;
}

Value run_float(ops::Term t) {
  Value v(aten::fresh(t));
  v.tensor.wrapped = true;
  return v;
}

// Whether every assignment gives the name what it has: NAME = torch.add_(NAME, ...), which Python writes as
// NAME += ... of a list or tensor.
bool stays(const std::string& name, const std::vector<Statement>& block) {
  return std::ranges::all_of(block, [&](const Statement& s) {
    if (!stays(name, s.body) || !stays(name, s.otherwise)) return false;
    if (s.kind != Statement::Kind::kAssign && s.kind != Statement::Kind::kFor) return true;
    const auto target = std::ranges::find(s.targets, name);
    if (target == s.targets.end()) return true;
    if (s.kind != Statement::Kind::kAssign) return false;
    const Expression* value = &s.value;
    if (s.targets.size() > 1 || s.unpacks) {
      const auto at = static_cast<size_t>(target - s.targets.begin());
      if (value->kind != Expression::Kind::kTuple || at >= value->items.size()) return false;
      value = &value->items[at];
    }
    if (value->kind != Expression::Kind::kCall || value->items.size() < 2) return false;
    const std::string callee = dotted(value->items[0]);
    return callee.starts_with("torch.") && callee.ends_with('_') && !callee.ends_with("__") &&
           value->items[1].kind == Expression::Kind::kName && value->items[1].text == name;
  });
}

using TensorKey = std::pair<const aten::Storage*, const aten::View*>;
TensorKey key_of(const aten::Tensor& t) { return {t.storage.get(), t.view.get()}; }

// What a branch leaves.
struct Outcome {
  Names names;
  Contents contents;
  Writes writes;
  // What tensors hold at its end, where that is not what they hold outside.
  std::map<TensorKey, ValueId> reads;
};

}  // namespace

class ControlFlow {
 public:
  ControlFlow(Evaluator& e, Frame& frame)
      : e_(e), b_(e.b), frame_(frame), outside_(e.b.graph().symbols.size()) {
    for (const Frame* f : e.frames_)
      for (const auto& [name, value] : f->names) storages_.add(value);
    for (const auto& [name, value] : e.constants_) storages_.add(value);
    for (const auto& [item, value] : e.from_items_) storages_.add(value);
    for (const Value& tensor : e.weights_.tensors()) storages_.add(tensor);
    e.journals_.push_back(&journal_);
  }
  ~ControlFlow() { e_.journals_.pop_back(); }

  using Block = std::function<Evaluator::Flow()>;

  Evaluator::Flow branch(sym::Expr condition, const std::set<std::string>& names, const Block& then,
                         const Block& otherwise) {
    const sym::Expr sides[] = {condition, sym::logical_not(condition)};
    const Block* blocks[] = {&then, &otherwise};
    std::vector<graph::Region> regions;
    for (const size_t i : {0u, 1u}) {
      const graph::Undo undo(b_.graph());
      const size_t problems = e_.problems.size();
      ops::OpenRegion region(b_, {}, sides[i]);
      try {
        outcomes_[i] = run(*blocks[i], &names);
        regions.push_back(region.close(exported(outcomes_[i])));
      } catch (const Raised& raised) {
        restore();
        regions.push_back(region.close({}));
        undo();
        e_.problems.resize(problems);
        std::vector<sym::Expr> values;
        const std::string message =
            raised.message.empty() ? "an assertion of the program fails" : raised.message;
        const std::string sentence =
            guard_sentence(message, [&](sym::Expr value) { return is_known(value); }, values);
        b_.require(sides[1 - i], sentence, std::move(values));
        return (*blocks[1 - i])();
      }
    }
    join(condition, std::move(regions), names);
    return Evaluator::Flow::kNext;
  }

  // `count`: none for a while loop, whose condition is evaluated in the frame.
  void loop(const Statement& s, std::optional<sym::Expr> count) {
    choose_carried(s);
    learn(s, count);
    std::vector<ValueId> start;
    for (const Carried& c : carried_) start.push_back(c.start);
    std::optional<ValueId> first;
    if (!count) first = condition_id(s);
    const Names before = frame_.names;
    const ops::LoopResult result =
        ops::loop(b_, count.value_or(std::numeric_limits<int64_t>::max()), first, start,
                  [&](const ops::LoopState& state) { return iteration(s, state, count.has_value()); });
    journal_.take_back();
    for (aten::Storage* storage : storages_.take_back().stale) stale_.insert(storages_.find(storage));
    frame_.names = before;
    finish(result, count);
  }

 private:
  // ---- branches
  // `joined`: the names of the variables that are joined; null: of a loop's body.
  Outcome run(const Block& block, const std::set<std::string>* joined) {
    const Names before = frame_.names;
    const AtExit restore_names([&] { frame_.names = before; });
    if (block() == Evaluator::Flow::kReturn) Evaluator::unsupported("a return in a branch that data decide");
    Outcome out;
    out.names = frame_.names;
    out.contents = journal_.take_back();
    if (joined) read_tensors(out, before, *joined);
    out.writes = storages_.take_back();
    return out;
  }
  // The tensors that the join may ask for, while the storages hold what the branch wrote. Those that were
  // there before are read outside of the region, unless the branch wrote them.
  void read_tensors(Outcome& out, const Names& before, const std::set<std::string>& names) {
    for (const auto& [name, value] : out.names) {
      if (!is_same(value, before, name))
        read_leaves(value, out);
      else if (value.is(VK::kTensor) && names.contains(name) &&
               storages_.is_changed(value.tensor.storage.get()))
        read_leaves(value, out);
    }
    for (const auto& [list, after] : out.contents.lists)
      for (const Value& item : after.items) read_leaves(item, out);
    for (const auto& [object, fields] : out.contents.objects)
      for (const auto& [name, value] : fields) read_leaves(value, out);
    for (const aten::Tensor& held : storages_.held())
      if (storages_.is_changed(held.storage.get())) read_leaves(Value(held), out);
  }
  void read_leaves(const Value& v, Outcome& out) {
    if (v.is(VK::kTensor) && !v.tensor.storage->stale && !out.reads.contains(key_of(v.tensor)))
      out.reads[key_of(v.tensor)] = aten::read(b_, v.tensor).id();
    if (v.is(VK::kList) || v.is(VK::kTuple))
      for (const Value& item : items_of(v, out)) read_leaves(item, out);
  }
  // The items at the end of the branch.
  static const std::vector<Value>& items_of(const Value& v, const Outcome& out) {
    const auto changed = out.contents.lists.find(v.sequence);
    return changed == out.contents.lists.end() ? v.items() : changed->second.items;
  }
  void restore() {
    journal_.take_back();
    storages_.take_back();
  }

  bool is_known(sym::Expr e) const {
    return std::ranges::all_of(sym::free_vars(e), [&](sym::Expr v) {
      return std::ranges::any_of(b_.graph().symbols, [&](const graph::Symbol& s) { return s.var == v; });
    });
  }
  // Whether it has no symbol of an open region.
  bool is_outside(sym::Expr e) const {
    const auto& symbols = b_.graph().symbols;
    return std::ranges::all_of(sym::free_vars(e), [&](sym::Expr v) {
      return std::none_of(symbols.begin() + static_cast<ptrdiff_t>(outside_), symbols.end(),
                          [&](const graph::Symbol& s) { return s.var == v; });
    });
  }

  // The leaves of a value that exist inside the region alone become tensors there: a size that the region
  // binds, a view of a storage.
  void export_value(Value& v, const Outcome& outcome, std::vector<ValueId>& to) {
    if (v.is(VK::kTensor)) {
      if (const auto read = outcome.reads.find(key_of(v.tensor)); read != outcome.reads.end())
        to.push_back(read->second);
      return;
    }
    if (v.is_whole() && !is_outside(v.integer)) {
      const ops::Term t(b_, b_.elements({v.integer}, {}, v.is(VK::kBool) ? DType::kBool : DType::kI64));
      v.tensor = aten::fresh(t);
      v.text = "exported";
      to.push_back(t.id());
    }
    if (v.sequence && (v.is(VK::kList) || v.is(VK::kTuple))) {
      // A copy: the branch's own list is not the other's.
      if (v.is(VK::kTuple)) v.sequence = std::make_shared<Sequence>(*v.sequence);
      for (Value& item : v.sequence->items) export_value(item, outcome, to);
    }
  }
  std::vector<ValueId> exported(Outcome& outcome) {
    std::vector<ValueId> out;
    for (auto& [name, value] : outcome.names)
      if (!is_same(value, frame_.names, name)) export_value(value, outcome, out);
    for (auto& [list, after] : outcome.contents.lists)
      for (Value& item : after.items) export_value(item, outcome, out);
    for (auto& [dict, items] : outcome.contents.dicts)
      for (auto& item : items) export_value(item.second, outcome, out);
    for (auto& [object, fields] : outcome.contents.objects)
      for (auto& [name, value] : fields) export_value(value, outcome, out);
    for (const auto& [storage, base] : outcome.writes.bases) out.push_back(base);
    return out;
  }
  static bool same_value(const Value& a, const Value& b) {
    if (a.kind != b.kind) return false;
    if (a.is(VK::kTensor)) return a.tensor.storage == b.tensor.storage && a.tensor.view == b.tensor.view;
    if (a.sequence || b.sequence) return a.sequence == b.sequence;
    if (a.dict || b.dict) return a.dict == b.dict;
    if (a.object || b.object) return a.object == b.object;
    return a.integer == b.integer && a.number == b.number && a.text == b.text;
  }
  static bool is_same(const Value& v, const Names& names, const std::string& name) {
    const auto found = names.find(name);
    return found != names.end() && same_value(v, found->second);
  }

  // A result of the If node: the value of each branch.
  size_t slot(ValueId a, ValueId c) {
    slots_[0].push_back(a);
    slots_[1].push_back(c);
    return slots_[0].size() - 1;
  }
  // The value as a tensor of what is known outside.
  ValueId id_of(const Value& v, DType dtype) {
    if (v.is(VK::kTensor) || v.text == "exported") return aten::read(b_, v.tensor).id();
    return aten::scalar_of(b_, to_aten(b_, v), dtype).id();
  }
  // The value as a tensor at the end of a branch.
  ValueId id_after(size_t side, const Value& v, DType dtype) {
    const auto read = outcomes_[side].reads.find(key_of(v.tensor));
    return v.is(VK::kTensor) && read != outcomes_[side].reads.end() ? read->second : id_of(v, dtype);
  }
  bool is_stale_after(size_t side, const aten::Tensor& t) const {
    return t.storage->stale || outcomes_[side].writes.stale.contains(t.storage.get());
  }
  Value joined_tensor(const Value& a, const Value& c) {
    if (a.tensor.complex != c.tensor.complex) return differs("complex in one branch alone");
    if (is_stale_after(0, a.tensor) || is_stale_after(1, c.tensor))
      return differs("a tensor that may have been written in place under another name, which data decide");
    // Names of one tensor in both branches stay names of one tensor.
    const auto [found, is_new] =
        tensor_numbers_.try_emplace({key_of(a.tensor), key_of(c.tensor)}, joined_tensors_.size());
    if (is_new) {
      const size_t at = slot(id_after(0, a, DType::kF32), id_after(1, c, DType::kF32));
      joined_tensors_.push_back({at, a.tensor, c.tensor, {}});
    }
    Value out = a;
    out.integer = static_cast<int64_t>(found->second);
    out.text = "slot";
    return out;
  }

  // The joined value, with slots where the If node decides; `fill` puts its results in.
  Value joined(const Value& a, const Value& c) {
    if (same_value(a, c)) return a;
    if (a.is(VK::kUnset) && a.text.empty()) return c;
    if (c.is(VK::kUnset) && c.text.empty()) return a;
    if (a.is_failed() || c.is_failed()) return Value::failed();
    if (a.is_tensor() && c.is_tensor()) return joined_tensor(a, c);
    if (a.kind == c.kind && a.is_whole()) {
      const bool inside = a.text == "exported" || c.text == "exported";
      Value out = a;
      if (!inside) {
        out.integer = sym::select(condition_, a.integer, c.integer);
        return out;
      }
      const DType dtype = a.is(VK::kBool) ? DType::kBool : DType::kI64;
      out.integer = slot(id_after(0, a, dtype), id_after(1, c, dtype));
      out.text = "slot";
      return out;
    }
    const auto real = [](const Value& v) { return v.is(VK::kFloat) || v.is_run_float(); };
    if (real(a) && real(c)) {
      Value out = Value::of_kind(VK::kFloat);
      out.integer = slot(id_after(0, a, DType::kF64), id_after(1, c, DType::kF64));
      out.text = "slot";
      return out;
    }
    if (a.kind == c.kind && a.sequence && c.sequence) return joined_sequence(a, c);
    return differs(cat(kind_name(a), " in one branch and ", kind_name(c), " in the other"));
  }
  Value joined_sequence(const Value& a, const Value& c) {
    const std::vector<Value>&items = items_of(a, outcomes_[0]), &others = items_of(c, outcomes_[1]);
    if (a.sequence->rows || c.sequence->rows)
      return differs("a list whose length only the run knows, in one branch");
    if (items.size() != others.size())
      return differs(cat(kind_name(a), " of ", items.size(), " items in one branch and of ", others.size(),
                         " in the other"));
    Value out = a;
    out.sequence = std::make_shared<Sequence>();
    for (size_t i = 0; i < items.size(); ++i) out.sequence->items.push_back(joined(items[i], others[i]));
    if (a.is(VK::kList)) add_list_aliases(out.sequence, a.sequence, c.sequence);
    return out;
  }
  void make_joined_tensors(const std::vector<ValueId>& results) {
    std::vector<JoinedStorage> storages;
    for (JoinedTensor& j : joined_tensors_) {
      j.result = aten::fresh({b_, results.at(j.slot)});
      j.result.complex = j.then.complex;
      storages.push_back({{j.then.storage, j.otherwise.storage}, j.result.storage});
    }
    add_aliases(storages);
  }
  void fill(Value& v, const std::vector<ValueId>& results) {
    if (v.text == "slot" && v.is(VK::kTensor)) {
      v = Value(joined_tensors_.at(static_cast<size_t>(v.integer.value())).result);
      return;
    }
    if (v.text == "slot" && (v.is_whole() || v.is(VK::kFloat))) {
      const ops::Term t(b_, results.at(static_cast<size_t>(v.integer.value())));
      v.text.clear();
      if (v.is(VK::kFloat)) {
        v = run_float(t);
      } else {
        Value carrier(aten::fresh(t));
        v.integer = v.is(VK::kBool) ? e_.condition_of(carrier) : e_.integer_of(carrier);
      }
    }
    if (v.sequence && !v.is(VK::kEnum))
      for (Value& item : v.sequence->items) fill(item, results);
  }

  void join(sym::Expr condition, std::vector<graph::Region> regions, const std::set<std::string>& names) {
    condition_ = condition;
    Outcome(&o)[2] = outcomes_;
    std::map<std::string, Value> merged;
    for (const std::string& name : names) {
      const auto a = o[0].names.find(name), c = o[1].names.find(name);
      if (a != o[0].names.end() && c != o[1].names.end()) merged[name] = joined(a->second, c->second);
    }
    join_contents(o);
    std::map<aten::Storage*, size_t> written;
    for (const size_t i : {0u, 1u})
      for (const auto& [storage, base] : o[i].writes.bases) {
        if (written.contains(storage)) continue;
        const auto& others = o[1 - i].writes.bases;
        const auto other = others.find(storage);
        const ValueId otherwise = other == others.end() ? storage->base : other->second;
        written[storage] = i == 0 ? slot(base, otherwise) : slot(otherwise, base);
      }
    std::vector<ValueId> results;
    const bool idle = slots_[0].empty() && regions[0].nodes.empty() && regions[1].nodes.empty();
    for (const size_t i : {0u, 1u}) regions[i].results = slots_[i];
    if (!idle)
      results = b_.add_with_regions(graph::OpKind::kIf, {}, {{"condition", condition}}, std::move(regions));
    make_joined_tensors(results);
    for (auto& [name, value] : merged) {
      fill(value, results);
      frame_.names[name] = value;
    }
    for (auto& [list, items] : lists_)
      for (Value& item : items) fill(item, results);
    for (auto& [list, items] : lists_) list->items = items;
    for (const auto& list : stale_lists_) list->stale = true;
    for (auto& [object, fields] : objects_) {
      for (auto& [name, value] : fields) fill(value, results);
      object->fields = fields;
    }
    for (const auto& [storage, at] : written) {
      storage->base = results.at(at);
      ++storage->version;
    }
    for (const Outcome& outcome : o)
      for (aten::Storage* storage : outcome.writes.stale) storage->stale = true;
  }
  void join_contents(Outcome (&o)[2]) {
    for (const size_t i : {0u, 1u}) {
      Contents &own = o[i].contents, &other = o[1 - i].contents;
      for (const auto& [list, after] : own.lists) {
        if (lists_.contains(list)) continue;
        const auto found = other.lists.find(list);
        const Sequence& otherwise = found == other.lists.end() ? *list : found->second;
        const std::vector<Value>&items = after.items, &others = otherwise.items;
        if (items.size() != others.size() || after.rows || otherwise.rows)
          Evaluator::unsupported(
              "a list that has another length in one branch, which data decide, than in the other");
        const auto &a = i == 0 ? items : others, &c = i == 0 ? others : items;
        std::vector<Value> out;
        for (size_t k = 0; k < a.size(); ++k) out.push_back(joined(a[k], c[k]));
        lists_[list] = std::move(out);
        if (after.stale || otherwise.stale) stale_lists_.insert(list);
      }
      if (!own.dicts.empty()) Evaluator::unsupported("a dict that a branch changes, which data decide");
      for (const auto& [object, fields] : own.objects) {
        if (objects_.contains(object)) continue;
        const auto found = other.objects.find(object);
        const auto& others = found == other.objects.end() ? object->fields : found->second;
        const auto &a = i == 0 ? fields : others, &c = i == 0 ? others : fields;
        std::map<std::string, Value> out;
        for (const auto& [name, value] : a)
          if (const auto same = c.find(name); same != c.end()) out[name] = joined(value, same->second);
        objects_[object] = std::move(out);
      }
    }
  }

  // ---- loops
  // A name that the body assigns and that is defined before it: a tensor, number or tuple of these, leaf by
  // leaf.
  struct Carried {
    Value* at = nullptr;  // in `values_`
    VK kind = VK::kTensor;
    bool complex = false;
    ValueId start;
    // An integer that every iteration changes by the same amount is not a carried value.
    bool inductive = false;
    sym::Expr first = 0, step = 0;
    std::shared_ptr<aten::Storage> storage;  // that the body writes; null: a name
  };

  void leaves(Value& v, std::vector<Value*>& to) {
    if (v.is(VK::kTuple) || v.is(VK::kList)) {
      v.sequence = std::make_shared<Sequence>(*v.sequence);
      for (Value& item : v.sequence->items) leaves(item, to);
      return;
    }
    to.push_back(&v);
  }
  std::vector<Value*> leaves_of(Names& values) {
    std::vector<Value*> out;
    for (const std::string& name : names_) leaves(values[name], out);
    return out;
  }

  void choose_carried(const Statement& s) {
    for (const std::string& name : assigned_names(s.body))
      if (frame_.names.contains(name) && !(s.kind == Statement::Kind::kFor && name == s.targets[0]) &&
          !is_kept(name, s))
        names_.push_back(name);
  }
  bool is_kept(const std::string& name, const Statement& s) const {
    const Value& value = frame_.names.at(name);
    return (value.is_tensor() || value.is(VK::kList)) && stays(name, s.body);
  }
  bool is_carriable(const Value& v) const { return v.is(VK::kTensor) || v.is_whole() || v.is(VK::kFloat); }

  void add_carried(const Value& v) {
    Carried c;
    c.kind = v.is_run_float() ? VK::kFloat : v.kind;
    if (v.is_tensor()) {
      c.complex = v.tensor.complex;
      c.start = aten::read(b_, v.tensor).id();
    } else {
      c.start = id_of(v, v.is(VK::kBool) ? DType::kBool : v.is(VK::kInt) ? DType::kI64 : DType::kF64);
    }
    carried_.push_back(std::move(c));
  }

  // Runs the body once and discards it, to learn which storages it writes, which values stay, and which
  // integers are counters.
  void learn(const Statement& s, std::optional<sym::Expr> count) {
    const Names before = frame_.names;
    Names values;
    for (const std::string& name : names_) values[name] = before.at(name);
    const std::vector<Value*> start = leaves_of(values);
    std::vector<sym::Expr> symbols(start.size(), sym::Expr(0));
    const graph::Undo undo(b_.graph());
    const size_t problems = e_.problems.size();
    std::vector<Value> next;
    std::map<aten::Storage*, ValueId> written;
    std::vector<Value> before_leaves;
    std::vector<StorageRef> starts;
    for (const Value* v : start) {
      before_leaves.push_back(*v);
      starts.push_back(v->is_tensor() ? v->tensor.storage : nullptr);
    }
    aliases_ = LoopAliases(starts);
    {
      const sym::Expr counter =
          b_.fresh_symbol("iteration", 0, count ? sym::max(*count - 1, 0) : sym::Expr(kUnbounded));
      const ops::OpenRegion region(b_, {}, count ? sym::lt(counter, *count) : sym::Expr(1));
      for (size_t i = 0; i < start.size(); ++i)
        if (start[i]->is(VK::kInt))
          symbols[i] = start[i]->integer = b_.fresh_symbol("carried", -(int64_t{1} << 40), int64_t{1} << 40);
        else if (start[i]->is(VK::kBool))
          start[i]->integer = sym::ne(b_.fresh_symbol("carried", 0, 1), 0);
        else if (start[i]->is(VK::kFloat))
          *start[i] = run_float({b_, b_.scalar(DType::kF64, start[i]->number)});
        else if (start[i]->is_tensor())
          *start[i] = own_copy(start[i]->tensor);
      const Carriers carriers = carriers_of(start);
      aliases_.link(carriers.storages);
      for (const auto& [name, value] : values) frame_.names[name] = value;
      if (s.kind == Statement::Kind::kFor) frame_.names[s.targets[0]] = Value::of_integer(counter);
      Outcome out = run([&] { return e_.run(s.body, frame_); }, nullptr);
      choose_growing(out.contents, count.has_value());
      Names after;
      for (const std::string& name : names_) after[name] = out.names.at(name);
      for (const Value* v : leaves_of(after)) next.push_back(*v);
      written = out.writes.bases;
      if (next.size() == start.size()) learn_aliases(carriers, next, out);
    }
    undo();
    frame_.names = before;
    e_.problems.resize(problems);
    if (next.size() != start.size())
      Evaluator::unsupported(
          "a tuple or list that a loop, whose end only the run knows, gives another length");
    template_ = std::move(values);
    const std::vector<Value*> own = leaves_of(template_);
    for (size_t i = 0; i < own.size(); ++i) {
      *own[i] = before_leaves[i];
      if (!is_carriable(*own[i])) {
        if (!same_value(*own[i], next[i]))
          Evaluator::unsupported(cat("a loop, whose end only the run knows, changes ", kind_name(*own[i])));
        continue;
      }
      add_carried(*own[i]);
      Carried& c = carried_.back();
      if (c.kind != VK::kInt || !next[i].is(VK::kInt)) continue;
      const sym::Expr step = next[i].integer - symbols[i];
      if (!step.is_const()) continue;
      c.inductive = true;
      c.first = own[i]->integer;
      c.step = step;
    }
    for (const auto& [storage, base] : written) {
      Carried c;
      c.start = storage->base;
      c.storage = storages_.find(storage);
      carried_.push_back(std::move(c));
    }
  }

  // The carried tensors at the start of an iteration, one for each leaf; null: of another kind.
  struct Carriers {
    std::vector<StorageRef> storages;
    std::vector<ValueId> bases;
  };
  static Carriers carriers_of(const std::vector<Value*>& leaves) {
    Carriers out;
    for (const Value* v : leaves) {
      out.storages.push_back(v->is_tensor() ? v->tensor.storage : nullptr);
      out.bases.push_back(v->is_tensor() ? v->tensor.storage->base : ValueId{});
    }
    return out;
  }
  Value own_copy(const aten::Tensor& t) {
    Value out(aten::fresh(aten::read(b_, t)));
    out.tensor.complex = t.complex;
    return out;
  }
  void learn_aliases(const Carriers& carriers, const std::vector<Value>& next, const Outcome& out) {
    std::vector<StorageRef> after;
    for (const Value& v : next) after.push_back(v.is_tensor() ? v.tensor.storage : nullptr);
    for (const auto& list : growing_)
      after.push_back(out.contents.lists.at(list).items.back().tensor.storage);
    aliases_.close(carriers.storages, after,
                   [&](const aten::Storage* storage) { return storages_.find(storage) != nullptr; });
    for (aten::Storage* storage : out.writes.stale) stale_.insert(storages_.find(storage));
    StorageSet written;
    for (const auto& [storage, base] : out.writes.bases) written.insert(storages_.find(storage));
    for (size_t i = 0; i < carriers.storages.size(); ++i)
      if (carriers.storages[i] && carriers.storages[i]->base != carriers.bases[i])
        written.insert(carriers.storages[i]);
    for (size_t i = 0; i < carriers.storages.size(); ++i) {
      const StorageRef& own = carriers.storages[i];
      if (!own) continue;
      // A stale one that no known write explains was written under a name of the body.
      const StorageSet others = with_aliases(own);
      const bool explained =
          std::ranges::any_of(others, [&](const StorageRef& s) { return written.contains(s); });
      if (written.contains(own) || (own->stale && !explained))
        stale_.insert(aliases_.outer(i).begin(), aliases_.outer(i).end());
    }
  }

  // Lists to which every iteration appends one tensor. Nothing else that is shared may change.
  void choose_growing(const Contents& after, bool counted) {
    bool good = after.dicts.empty() && after.objects.empty();
    for (const auto& [list, contents] : after.lists) {
      const std::vector<Value>&items = contents.items, &before = list->items;
      const bool one = counted && items.size() == before.size() + 1 && items.back().is_tensor() &&
                       !items.back().tensor.complex &&
                       std::equal(before.begin(), before.end(), items.begin(), same_value);
      good = good && one && !list->rows && !contents.rows;
      growing_.push_back(list);
    }
    if (good) return;
    Evaluator::unsupported("a loop whose end only the run knows changes a list, dict or attribute",
                           "fix the number of iterations: --dim NAME=SIZE");
  }

  ValueId condition_id(const Statement& s) {
    const Value v = e_.evaluate(s.value, frame_);
    if (v.is(VK::kTensor)) {
      const ops::Term t = ops::reshape(aten::read(b_, v.tensor), {});
      return (is_bool(t.dtype()) ? t : ops::logical_not(ops::equal(t, 0))).id();
    }
    return b_.elements({e_.condition_of(v)}, {}, DType::kBool);
  }

  // Puts the carried values into the template's leaves. `rows`: what the growing lists get.
  void set_values(Names& to, const std::vector<ValueId>& ids, sym::Expr counter,
                  const std::vector<StorageRef>& rows) {
    to = template_;
    const std::vector<Value*> own = leaves_of(to);
    size_t at = 0;
    for (Value* v : own) {
      if (!is_carriable(*v)) continue;
      const Carried& c = carried_[at];
      const ops::Term t(b_, ids[at++]);
      Value carrier(aten::fresh(t));
      carrier.tensor.complex = c.complex;
      if (c.inductive)
        *v = Value::of_integer(c.first + c.step * counter);
      else if (c.kind == VK::kInt)
        *v = Value::of_integer(e_.integer_of(carrier));
      else if (c.kind == VK::kBool)
        *v = Value::of_bool(e_.condition_of(carrier));
      else if (c.kind == VK::kFloat)
        *v = run_float(t);
      else
        *v = carrier;
    }
    for (; at < carried_.size(); ++at) {
      carried_[at].storage->base = ids[at];
      ++carried_[at].storage->version;
    }
    std::vector<StorageRef> storages = carriers_of(own).storages;
    storages.insert(storages.end(), rows.begin(), rows.end());
    aliases_.link(storages);
    for (const StorageRef& storage : stale_) storage->stale = true;
  }

  ops::LoopStep iteration(const Statement& s, const ops::LoopState& state, bool counted) {
    restore();
    earlier_rows_.clear();
    for (size_t i = 0; i < growing_.size(); ++i) earlier_rows_.push_back(std::make_shared<aten::Storage>());
    Names values;
    set_values(values, state.carried, state.counter, earlier_rows_);
    const Names before = frame_.names;
    const AtExit restore_names([&] { frame_.names = before; });
    for (const auto& [name, value] : values) frame_.names[name] = value;
    if (counted) frame_.names[s.targets[0]] = Value::of_integer(state.counter);
    for (const auto& list : growing_) list->growing = true;
    const AtExit grown([&] {
      for (const auto& list : growing_) list->growing = false;
    });
    if (e_.run(s.body, frame_) == Evaluator::Flow::kReturn) Evaluator::unsupported("a loop that returns");
    Names after;
    for (const std::string& name : names_) after[name] = frame_.names.at(name);
    ops::LoopStep step{.condition = {}, .carried = {}, .stacked = {}};
    if (!counted) step.condition = condition_id(s);
    size_t at = 0, leaf = 0;
    const std::vector<Value*> starts = leaves_of(template_);
    for (const Value* v : leaves_of(after)) {
      if (!is_carriable(*starts.at(leaf++))) continue;
      const Carried& c = carried_[at++];
      if (!is_carriable(*v)) Evaluator::unsupported(cat("a loop carries ", kind_name(*v)));
      const DType dtype = c.kind == VK::kBool ? DType::kBool : c.kind == VK::kInt ? DType::kI64 : DType::kF64;
      step.carried.push_back(c.inductive ? b_.elements({c.first + c.step * (state.counter + 1)}, {})
                                         : id_of(*v, dtype));
    }
    for (; at < carried_.size(); ++at) step.carried.push_back(carried_[at].storage->base);
    for (const auto& list : growing_) {
      if (list->items.empty() || !list->items.back().is_tensor())
        Evaluator::unsupported("a loop appends a value that is not known");
      step.stacked.push_back(aten::read(b_, list->items.back().tensor).id());
    }
    return step;
  }

  void finish(const ops::LoopResult& result, std::optional<sym::Expr> count) {
    std::vector<StorageRef> rows;
    for (size_t i = 0; i < growing_.size(); ++i) {
      growing_[i]->rows = aten::fresh({b_, result.stacked.at(i)});
      rows.push_back(growing_[i]->rows->storage);
      rows.back()->stale = earlier_rows_[i]->stale;
    }
    Names values;
    set_values(values, result.carried, 0, rows);
    // A counter's last value: known if the number of iterations is.
    const std::vector<Value*> own = leaves_of(values);
    size_t at = 0;
    for (Value* v : own) {
      if (!is_carriable(*v)) continue;
      const Carried& c = carried_[at];
      const ValueId id = result.carried[at++];
      if (!c.inductive) continue;
      Value carrier(aten::fresh({b_, id}));
      v->integer = count ? c.first + c.step * sym::max(*count, 0) : e_.integer_of(carrier);
    }
    for (const auto& [name, value] : values) frame_.names[name] = value;
  }

  static constexpr int64_t kUnbounded = int64_t{1} << 40;

  Evaluator& e_;
  graph::Builder& b_;
  Frame& frame_;
  const size_t outside_;  // symbols of the graph that are known outside of the regions
  Storages storages_;
  Journal journal_;
  sym::Expr condition_ = 0;
  Outcome outcomes_[2];
  std::vector<ValueId> slots_[2];
  struct JoinedTensor {
    size_t slot;
    aten::Tensor then, otherwise, result;
  };
  std::vector<JoinedTensor> joined_tensors_;
  std::map<std::pair<TensorKey, TensorKey>, size_t> tensor_numbers_;
  std::map<std::shared_ptr<Sequence>, std::vector<Value>> lists_;
  std::set<std::shared_ptr<Sequence>> stale_lists_;
  std::map<std::shared_ptr<Object>, std::map<std::string, Value>> objects_;
  std::vector<std::string> names_;
  Names template_;
  std::vector<Carried> carried_;
  std::vector<std::shared_ptr<Sequence>> growing_;
  LoopAliases aliases_;
  StorageSet stale_;                      // after an iteration
  std::vector<StorageRef> earlier_rows_;  // in an iteration: of the growing lists
};

Evaluator::Flow Evaluator::either(sym::Expr condition, Frame& frame, const std::set<std::string>& names,
                                  const std::function<Flow()>& then, const std::function<Flow()>& otherwise) {
  return ControlFlow(*this, frame).branch(condition, names, then, otherwise);
}
Evaluator::Flow Evaluator::if_on_data(const Statement& s, sym::Expr condition, Frame& frame) {
  std::set<std::string> names = assigned_names(s.body);
  names.merge(assigned_names(s.otherwise));
  return either(
      condition, frame, names, [&] { return run(s.body, frame); }, [&] { return run(s.otherwise, frame); });
}
void Evaluator::loop_on_data(const Statement& s, const Value& count, Frame& frame) {
  ControlFlow(*this, frame).loop(s, b.simplify(count.integer));
}
void Evaluator::while_on_data(const Statement& s, Frame& frame) {
  ControlFlow(*this, frame).loop(s, std::nullopt);
}

void Evaluator::touch(const Value& value) {
  for (Journal* journal : journals_) journal->touch(value);
  if (!value.sequence) return;
  for (const auto& alias : value.sequence->aliases) {
    Value other = Value::of_kind(VK::kList);
    other.sequence = alias.lock();
    if (!other.sequence) continue;
    for (Journal* journal : journals_) journal->touch(other);
    other.sequence->stale = true;
  }
}

}  // namespace stridec::torchscript
