// CSE: merges equal lets, constants, index values, loads, binds and whole reductions.
#include <algorithm>
#include <map>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/loop/rewrite.h"
#include "compiler/loop/walk.h"

namespace stridec::loop {

using sym::Expr;

namespace {

using Key = std::vector<int64_t>;

class Sharing {
 public:
  explicit Sharing(Nest& nest) : nest_(nest) {}

  void block(Block& stmts) {
    scopes_.emplace_back();
    sym::Substitution renamed;
    Block out;
    for (Stmt& s : stmts) {
      resolve(s);
      for_each_expr(s, [&](Expr& e) { e = sym::substitute(e, names_); });
      if (auto* store = std::get_if<Store>(&s.node)) ++versions_[store->access.buffer.value];
      Block* body = body_of(s);
      if (body) {
        // Memory that the loop writes differs between iterations, and before and after the loop.
        touch(*body);
        block(*body);
        touch(*body);
        resolve(s);  // the body's yields
        if (same_reduce(s, out)) continue;
      } else if (auto* bind = std::get_if<Bind>(&s.node)) {
        if (const Bind* other = same_bind(*bind, out)) {
          names_[bind->var] = other->var;
          continue;
        }
      } else if (std::optional<Key> key = key_of(s)) {
        ValueId result;
        for_each_result(std::as_const(s), [&](ValueId v) { result = v; });
        if (std::optional<ValueId> known = find(*key)) {
          replaced_[result.value] = *known;
          inherit(*known, result);
          continue;
        }
        scopes_.back().emplace(std::move(*key), result);
      }
      out.push_back(std::move(s));
    }
    stmts = std::move(out);
    scopes_.pop_back();
  }

 private:
  void resolve(Stmt& s) {
    for_each_use(s, [&](ValueId& v) {
      for (auto it = replaced_.find(v.value); it != replaced_.end(); it = replaced_.find(v.value))
        v = it->second;
    });
  }
  // A value that a pass has made stands for one of the model from now on.
  void inherit(ValueId made, ValueId same) {
    Origin& origin = nest_.values[made.value].origin;
    if (!origin.node.valid()) origin = nest_.values[same.value].origin;
  }
  void touch(const Block& body) {
    for_each_stmt(body, [&](const Stmt& s) {
      if (auto* store = std::get_if<Store>(&s.node)) ++versions_[store->access.buffer.value];
    });
  }
  std::optional<ValueId> find(const Key& key) const {
    for (size_t i = scopes_.size(); i-- > 0;)
      if (auto it = scopes_[i].find(key); it != scopes_[i].end()) return it->second;
    return std::nullopt;
  }

  static int64_t id(Expr e) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(e.node())); }
  static void add(Key& key, const Scalar& s) {
    int64_t bits;
    static_assert(sizeof(bits) == sizeof(s.f));
    std::copy_n(reinterpret_cast<const char*>(&s.f), sizeof(bits), reinterpret_cast<char*>(&bits));
    key.insert(key.end(), {static_cast<int64_t>(s.dtype), bits, s.i});
  }

  std::optional<Key> key_of(const Stmt& s) {
    Key key{static_cast<int64_t>(s.node.index())};
    if (auto* let = std::get_if<Let>(&s.node)) {
      key.insert(key.end(), {static_cast<int64_t>(let->op),
                             static_cast<int64_t>(nest_.values[let->result.value].dtype)});
      for (ValueId a : let->args) key.push_back(a.value);
    } else if (auto* constant = std::get_if<Constant>(&s.node)) {
      add(key, constant->value);
    } else if (auto* index = std::get_if<IndexValue>(&s.node)) {
      key.insert(key.end(), {static_cast<int64_t>(nest_.values[index->result.value].dtype), id(index->expr)});
    } else if (auto* load = std::get_if<Load>(&s.node)) {
      key.insert(key.end(),
                 {load->access.buffer.value, versions_[load->access.buffer.value], id(load->access.mask)});
      for (Expr e : load->access.index) key.push_back(id(e));
      if (!load->access.mask.is_const(1)) add(key, load->fill);
    } else {
      return std::nullopt;
    }
    return key;
  }

  const Bind* same_bind(const Bind& bind, const Block& before) const {
    for (const Stmt& s : before) {
      auto* other = std::get_if<Bind>(&s.node);
      if (other && other->value == bind.value && other->extent == bind.extent && other->mode == bind.mode &&
          other->wrap_negative == bind.wrap_negative && other->sentence == bind.sentence)
        return other;
    }
    return nullptr;
  }

  // Finds an equal reduce in the same block, comparing statement by statement up to renaming of definitions.
  bool same_reduce(const Stmt& s, const Block& before) {
    auto* reduce = std::get_if<Reduce>(&s.node);
    if (!reduce) return false;
    for (size_t i = before.size(); i-- > 0;) {
      if (touches_what_it_reads(before[i], *reduce)) return false;
      auto* other = std::get_if<Reduce>(&before[i].node);
      if (!other || !equal(*other, *reduce)) continue;
      for (size_t r = 0; r < reduce->results.size(); ++r)
        replaced_[reduce->results[r].value] = other->results[r];
      return true;
    }
    return false;
  }

  static bool touches_what_it_reads(const Stmt& s, const Reduce& reduce) {
    bool clash = false;
    auto against = [&](const Store& store) {
      for_each_stmt(reduce.body, [&](const Stmt& r) {
        auto* load = std::get_if<Load>(&r.node);
        clash = clash || (load && load->access.buffer == store.access.buffer);
      });
    };
    if (auto* store = std::get_if<Store>(&s.node)) against(*store);
    if (const Block* body = body_of(s))
      for_each_stmt(*body, [&](const Stmt& inner) {
        if (auto* store = std::get_if<Store>(&inner.node)) against(*store);
      });
    return clash;
  }

  struct Match {
    std::unordered_map<int32_t, int32_t> values;  // maps b's values to a's
    sym::Substitution indices;
  };

  bool equal(const Reduce& a, const Reduce& b) const {
    if (a.combine != b.combine || a.dims.size() != b.dims.size() || a.byte_blocks != b.byte_blocks)
      return false;
    Match match;
    return equal_dims(a.dims, b.dims, match) && equal(a.body, b.body, match) &&
           equal(a.yields, b.yields, match);
  }
  bool equal_dims(const std::vector<Dim>& a, const std::vector<Dim>& b, Match& m) const {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].extent != sym::substitute(b[i].extent, m.indices)) return false;
      m.indices[b[i].var] = a[i].var;
    }
    return true;
  }
  bool equal(const std::vector<ValueId>& a, const std::vector<ValueId>& b, const Match& m) const {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      auto it = m.values.find(b[i].value);
      if ((it == m.values.end() ? b[i].value : it->second) != a[i].value) return false;
    }
    return true;
  }
  bool equal(const Block& a, const Block& b, Match& m) const {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!equal(a[i], b[i], m)) return false;
    return true;
  }
  // Handles the kinds of statements that occur in reduces of real models; others compare as different.
  bool equal(const Stmt& a, const Stmt& b, Match& m) const {
    if (a.node.index() != b.node.index()) return false;
    std::vector<Expr> ea, eb;
    for_each_expr(a, [&](Expr e) { ea.push_back(e); });
    for_each_expr(b, [&](Expr e) { eb.push_back(sym::substitute(e, m.indices)); });
    if (std::holds_alternative<Reduce>(a.node)) {
      const auto &ra = std::get<Reduce>(a.node), &rb = std::get<Reduce>(b.node);
      if (ra.combine != rb.combine || ra.dims.size() != rb.dims.size() || !equal_dims(ra.dims, rb.dims, m) ||
          !equal(ra.body, rb.body, m) || !equal(ra.yields, rb.yields, m))
        return false;
    } else if (ea != eb) {
      return false;
    } else if (auto* let = std::get_if<Let>(&a.node)) {
      const Let& other = std::get<Let>(b.node);
      if (let->op != other.op || !equal(let->args, other.args, m)) return false;
    } else if (auto* constant = std::get_if<Constant>(&a.node)) {
      Key ka, kb;
      add(ka, constant->value);
      add(kb, std::get<Constant>(b.node).value);
      if (ka != kb) return false;
    } else if (auto* load = std::get_if<Load>(&a.node)) {
      const Load& other = std::get<Load>(b.node);
      Key ka, kb;
      add(ka, load->fill);
      add(kb, other.fill);
      if (load->access.buffer != other.access.buffer || (ka != kb && !load->access.mask.is_const(1)))
        return false;
    } else if (!std::holds_alternative<IndexValue>(a.node)) {
      return false;
    }
    std::vector<ValueId> ra, rb;
    for_each_result(a, [&](ValueId v) { ra.push_back(v); });
    for_each_result(b, [&](ValueId v) { rb.push_back(v); });
    for (size_t i = 0; i < ra.size(); ++i) {
      if (nest_.values[ra[i].value].dtype != nest_.values[rb[i].value].dtype) return false;
      m.values[rb[i].value] = ra[i].value;
    }
    return true;
  }

  Nest& nest_;
  std::vector<std::map<Key, ValueId>> scopes_;
  std::unordered_map<int32_t, ValueId> replaced_;
  std::unordered_map<int32_t, int64_t> versions_;  // by buffer that the nest writes
  sym::Substitution names_;                        // variables of merged binds
};

}  // namespace

void eliminate_common(Nest& nest) { Sharing(nest).block(nest.body); }

}  // namespace stridec::loop
