// Reads the pickles of a TorchScript archive as data. Names of Python globals are never looked up: those that
// TorchScript writes have a fixed meaning, and every other one is refused by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stridec::torchscript {

struct Item;
using ItemRef = std::shared_ptr<Item>;

// Elements of a storage, and the scale of quantised ones.
struct StoredTensor {
  int64_t element_type = 0;  // element_type.h
  std::string storage;       // its name in the archive's folder: "7"
  int64_t offset = 0;
  std::vector<int64_t> sizes, strides;
  bool quantized = false;
  ItemRef quantizer;  // (torch.per_tensor_affine, scale, zero_point)
};

struct Item {
  enum class Kind : uint8_t {
    kNone,
    kBool,     // integer
    kInt,      // integer
    kFloat,    // number
    kString,   // text
    kTensor,   // tensor
    kList,     // items
    kTuple,    // items
    kDict,     // items: keys and values by turns
    kName,     // text: a global, "torch FloatStorage"
    kStorage,  // text: its name; integer: the element type
    kDevice,   // text
    kObject,   // text: the class; items: its state, once it is built
    kCall,     // text: a class of the program; items: the arguments it is called with
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  StoredTensor tensor;
  std::vector<ItemRef> items;
  int depth = 1;        // of nesting
  bool placed = false;  // in another item: it is complete
};

// Throws Error kMalformed for bytes that are not a pickle or that are damaged, kUnsupported for opcodes and
// globals that TorchScript does not write.
ItemRef read_pickle(std::string_view bytes, const std::string& what);

}  // namespace stridec::torchscript
