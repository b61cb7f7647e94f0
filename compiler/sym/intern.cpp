#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "compiler/base/diagnostic.h"
#include "compiler/sym/node.h"

namespace stridec::sym {
namespace {

// Recursive walks use stack in proportion; real models stay below 100.
constexpr uint16_t kMaxDepth = 1000;

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return h ^ (h >> 33);
}

uint64_t hash_text(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return mix(h, text.size());
}

bool same(const Node& a, const Node& b) {
  if (a.hash != b.hash || a.op != b.op || a.count != b.count || a.value != b.value) return false;
  if (a.op == Op::kVar) return *a.name == *b.name;
  return std::equal(a.args, a.args + a.count, b.args);
}

// An open-addressing hash table of nodes, which are never freed. Several shards reduce lock contention.
class Shard {
 public:
  const Node* find_or_add(const Node& wanted) {
    std::lock_guard lock(mutex_);
    if (2 * (used_ + 1) > slots_.size()) grow();
    size_t at = slot(wanted.hash);
    for (; slots_[at].node; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].hash == wanted.hash && same(*slots_[at].node, wanted)) return slots_[at].node;
    }
    Node* node = new Node(wanted);
    if (wanted.count != 0) {
      auto* args = static_cast<Expr*>(::operator new(sizeof(Expr) * wanted.count));
      std::uninitialized_copy_n(wanted.args, wanted.count, args);
      node->args = args;
    }
    if (wanted.name) node->name = new std::string(*wanted.name);
    ++used_;
    slots_[at] = {node->hash, node};
    return node;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    const Node* node = nullptr;
  };

  size_t slot(uint64_t hash) const { return (hash >> 8) & (slots_.size() - 1); }

  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(std::max<size_t>(64, old.size() * 2), Slot{});
    for (const Slot& s : old) {
      if (!s.node) continue;
      size_t at = slot(s.hash);
      while (slots_[at].node) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = s;
    }
  }

  std::mutex mutex_;
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

const Node* find_or_add(const Node& wanted) {
  static auto* shards = new std::array<Shard, 32>;  // never freed, like the nodes
  return (*shards)[wanted.hash & 31].find_or_add(wanted);
}

const Node* make_constant(int64_t value) {
  Node node;
  node.op = Op::kConst;
  node.value = value;
  node.condition = value == 0 || value == 1;
  node.hash = mix(0x51, static_cast<uint64_t>(value));
  return find_or_add(node);
}

constexpr int64_t kSmallMin = -32, kSmallMax = 1024;

}  // namespace

const Node* Expr::constant(int64_t value) {
  static const auto* small = [] {
    auto* table = new std::array<const Node*, kSmallMax - kSmallMin + 1>;
    for (int64_t v = kSmallMin; v <= kSmallMax; ++v) (*table)[v - kSmallMin] = make_constant(v);
    return table;
  }();
  if (value >= kSmallMin && value <= kSmallMax) return (*small)[value - kSmallMin];
  return make_constant(value);
}

Expr::Expr() : node_(constant(0)) {}

Expr var(std::string_view text) {
  std::string name(text);
  Node node;
  node.op = Op::kVar;
  node.name = &name;
  node.index = text.starts_with('%');
  node.hash = mix(0x7a, hash_text(text));
  node.variables = uint64_t{1} << (node.hash >> 58);
  return Expr(find_or_add(node));
}

Expr intern(Op op, std::span<const Expr> args) {
  Node node;
  node.op = op;
  node.args = args.data();
  node.count = static_cast<uint32_t>(args.size());
  node.hash = mix(0x1000 + static_cast<uint64_t>(op), args.size());
  uint64_t size = 1;
  uint16_t depth = 0;
  for (const Expr& arg : args) {
    const Node& n = *arg.node();
    node.hash = mix(node.hash, n.hash);
    node.variables |= n.variables;
    node.index |= n.index;
    size += n.size;
    depth = std::max(depth, n.depth);
  }
  node.size = static_cast<uint32_t>(std::min<uint64_t>(size, UINT32_MAX));
  node.depth = static_cast<uint16_t>(depth + 1);
  if (node.depth > kMaxDepth) {
    fail(ErrorKind::kOverBudget, "expression-too-deep",
         "a symbolic size is nested more than 1000 levels deep");
  }
  switch (op) {
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kAnd:
    case Op::kOr: node.condition = true; break;
    case Op::kSelect: node.condition = args[1].is_condition() && args[2].is_condition(); break;
    default: break;
  }
  return Expr(find_or_add(node));
}

}  // namespace stridec::sym
