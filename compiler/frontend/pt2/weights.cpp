#include "compiler/frontend/pt2/weights.h"

#include <algorithm>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"
#include "compiler/frontend/aten/strided.h"
#include "compiler/frontend/pt2/json.h"

namespace stridec::pt2 {
namespace {

int64_t constant(const Size& size, const std::string& name) {
  if (!size.value) malformed(cat("the size of '", name, "' is not a number"));
  return *size.value;
}

// The value of a tensor that has none in the file.
graph::Data missing_value(const std::string& name, const graph::Type& type, size_t bytes,
                          const MissingWeights& missing) {
  if (missing.are_zero) return graph::own(std::vector<uint8_t>(bytes));
  if (!missing.given)
    fail(ErrorKind::kUnsupported, "no-weights",
         cat("the file has no weights: '", name, "' has sizes, but its storage is empty"),
         "the program was exported from fake or meta tensors; name the file of its weights by "
         "--weights-from model.safetensors, or export the module with them");
  const auto found = missing.given->find(name);
  if (found == missing.given->end())
    fail(ErrorKind::kUsage, "bad-weights", cat("--weights-from has no value for '", name, "'"),
         "name each file of the weights by a --weights-from of its own");
  if (found->second.type != type)
    fail(ErrorKind::kUsage, "bad-weights",
         cat("--weights-from has '", name, "' as ", graph::to_string(found->second.type),
             ", but the program's is ", graph::to_string(type)),
         "give the weights of the module that was exported");
  return found->second.data;
}

// Whether the layout has gaps, elements in common or an offset: whether it is a view of a larger storage.
bool is_part_of_storage(const TensorMeta& meta) {
  int64_t count = 1, last = meta.offset.value.value_or(0);
  for (size_t d = 0; d < std::min(meta.sizes.size(), meta.strides.size()); ++d) {
    const int64_t size = meta.sizes[d].value.value_or(1), stride = meta.strides[d].value.value_or(0);
    if (__builtin_mul_overflow(count, size, &count)) return true;
    if (int64_t step = 0;
        __builtin_mul_overflow(size - 1, stride, &step) || __builtin_add_overflow(last, step, &last))
      return true;
  }
  return count > 0 && last + 1 != count;
}

}  // namespace

bool fills_storage(const StoredTensor& stored) {
  const TensorMeta& meta = stored.meta;
  int64_t count = 1;
  for (size_t d = meta.sizes.size(); d-- > 0; count *= meta.sizes[d].value.value_or(0))
    if (meta.strides.size() <= d || meta.strides[d].value != count) return false;
  return meta.offset.value == 0 && flat(stored).meta.sizes[0].value == count;
}

StoredTensor flat(const StoredTensor& stored) {
  const auto type = element_type(stored.meta.scalar_type);
  const int64_t width = type ? byte_size(type->dtype) * (type->complex ? 2 : 1) : 1;
  StoredTensor out = stored;
  out.meta.sizes = {{.value = static_cast<int64_t>(stored.storage.size) / width, .text = {}}};
  out.meta.strides = {{.value = 1, .text = {}}};
  out.meta.offset = {.value = 0, .text = {}};
  return out;
}

bool lacks_values(const StoredTensor& stored) {
  return stored.storage.size == 0 &&
         std::ranges::none_of(stored.meta.sizes, [](const Size& size) { return size.value == 0; });
}

void check_storages_of_missing(const std::map<std::string, StoredTensor>& tensors,
                               const std::set<std::string>& written) {
  for (const auto& [name, part] : tensors) {
    if (!lacks_values(part) || !is_part_of_storage(part.meta)) continue;
    for (const auto& [other, stored] : tensors)
      if (&part != &stored && lacks_values(stored) &&
          (written.contains(part.path) || written.contains(stored.path)))
        fail(ErrorKind::kUnsupported, "unknown-storage",
             cat("the program writes '", written.contains(part.path) ? name : other,
                 "', which may share its memory with '", written.contains(part.path) ? other : name, "': '",
                 name,
                 "' is a part of a larger storage, and a program exported from fake tensors does not say of "
                 "which"),
             "export the module with its weights, or without views among its buffers and parameters");
  }
}

Weight read_weight(const std::string& name, const StoredTensor& stored, const MissingWeights& missing) {
  const TensorMeta& meta = stored.meta;
  const auto type = element_type(meta.scalar_type);
  if (!type)
    fail(ErrorKind::kUnsupported, "unsupported-dtype",
         cat("'", name, "' has elements of type ", scalar_type_name(meta.scalar_type)));
  if (meta.layout != 7)
    fail(ErrorKind::kUnsupported, "unsupported-layout", cat("'", name, "' is not a dense tensor"));
  if (meta.sizes.size() != meta.strides.size()) malformed(cat("'", name, "' has other strides than sizes"));
  Weight out{.type = {type->dtype, {}}, .complex = type->complex, .data = {}};
  const size_t width = static_cast<size_t>(byte_size(type->dtype)) * (type->complex ? 2 : 1);
  aten::Layout layout{.offset = constant(meta.offset, name), .sizes = {}, .strides = {}};
  for (size_t d = 0; d < meta.sizes.size(); ++d) {
    layout.sizes.push_back(constant(meta.sizes[d], name));
    layout.strides.push_back(constant(meta.strides[d], name));
    out.type.shape.emplace_back(layout.sizes.back());
  }
  const int64_t total = aten::element_count(name, layout);  // checks the sizes
  if (type->complex) out.type.shape.emplace_back(2);
  graph::check_size(out.type);
  out.data = lacks_values(stored) ? missing_value(name, out.type, static_cast<size_t>(total) * width, missing)
                                  : aten::row_major(name, stored.storage, width, layout);
  return out;
}

}  // namespace stridec::pt2
