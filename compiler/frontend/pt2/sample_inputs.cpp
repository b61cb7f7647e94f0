#include "compiler/frontend/pt2/sample_inputs.h"

#include <cstring>
#include <optional>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/pt2/archive.h"
#include "compiler/frontend/pt2/input_names.h"
#include "compiler/frontend/pt2/pickle.h"
#include "compiler/frontend/pt2/weights.h"

namespace stridec::pt2 {
namespace {

using Kind = Item::Kind;

// The leaves in the order of the tree spec; false if an item is of the user's own class.
bool flatten(const Item& item, std::vector<const Item*>& out) {
  if (item.kind == Kind::kOther) return false;
  if (item.kind != Kind::kList && item.kind != Kind::kTuple && item.kind != Kind::kDict) {
    out.push_back(&item);
    return true;
  }
  const size_t step = item.kind == Kind::kDict ? 2 : 1;
  for (size_t i = step - 1; i < item.items.size(); i += step)
    if (!flatten(*item.items[i], out)) return false;
  return true;
}

std::optional<SampleInput> read_leaf(const Saved& saved, const std::string& name, const Item& leaf) {
  SampleInput out{.name = name, .shape = {}, .bytes = {}};
  if (leaf.kind == Kind::kInt) {
    out.dtype = DType::kI64;
    out.bytes.resize(sizeof leaf.integer);
    std::memcpy(out.bytes.data(), &leaf.integer, sizeof leaf.integer);
    return out;
  }
  const ZipEntry* storage = leaf.kind == Kind::kTensor ? find_storage(saved, leaf.text) : nullptr;
  if (!storage) return std::nullopt;
  const ZipBytes data = read_entry(saved.zip, *storage);
  const Weight weight =
      read_weight(name, {leaf.meta, storage->name, {data.owner, data.bytes, data.size}}, {});
  out.dtype = weight.type.dtype;
  for (sym::Expr dim : weight.type.shape) out.shape.push_back(dim.value());
  out.bytes.assign(weight.data.bytes, weight.data.bytes + weight.data.size);
  return out;
}

}  // namespace

std::vector<SampleInput> sample_inputs(const graph::Data& file, const std::string& program) {
  try {
    const Archive archive = read_archive(file, program);
    const ZipFile zip = open_zip({file.owner, file.bytes, file.size});
    const ZipEntry* member = nullptr;
    for (const ZipEntry& entry : zip.entries)
      if (entry.name.ends_with(cat("data/sample_inputs/", archive.model, ".pt")) ||
          entry.name == "serialized_example_inputs.pt")
        member = &entry;
    if (!member || member->size == 0) return {};
    const Saved saved = read_saved(read_entry(zip, *member), cat("'", member->name, "'"));
    std::vector<const Item*> leaves;
    if (!flatten(*saved.value, leaves)) return {};
    const std::vector<InputSpec>& specs = archive.program.inputs;
    const InputNames names = input_names(archive.program);
    std::vector<SampleInput> out;
    size_t at = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].kind != InputSpec::Kind::kUser && specs[i].kind != InputSpec::Kind::kFixed) continue;
      if (at >= leaves.size()) return {};
      const Item& leaf = *leaves[at++];
      if (specs[i].kind == InputSpec::Kind::kFixed) continue;
      auto sample = read_leaf(saved, names.names[i], leaf);
      if (!sample) return {};
      out.push_back(std::move(*sample));
    }
    return at == leaves.size() ? out : std::vector<SampleInput>();
  } catch (const Error&) {
    return {};  // the program itself may be sound: samples are a convenience
  }
}

}  // namespace stridec::pt2
