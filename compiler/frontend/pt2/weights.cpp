#include "compiler/frontend/pt2/weights.h"

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

}  // namespace

Weight read_weight(const std::string& name, const StoredTensor& stored, bool missing_is_zero) {
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
  const int64_t total = aten::element_count(name, layout);
  if (type->complex) out.type.shape.emplace_back(2);
  graph::check_size(out.type);
  if (total > 0 && stored.storage.size == 0) {
    if (!missing_is_zero)
      fail(ErrorKind::kUnsupported, "no-weights",
           cat("the file has no weights: '", name, "' has sizes, but its storage is empty"),
           "the program was exported from fake or meta tensors; export the module with its weights");
    out.data = graph::own(std::vector<uint8_t>(static_cast<size_t>(total) * width));
    return out;
  }
  out.data = aten::row_major(name, stored.storage, width, layout);
  return out;
}

}  // namespace stridec::pt2
