// Reads what torch.save writes: a zip archive with a pickle and storages. The pickle is data of an untrusted
// file: names of Python globals are never looked up, and those that do not build plain data become kOther.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/base/zip.h"
#include "compiler/frontend/pt2/program.h"

namespace stridec::pt2 {

struct Item {
  enum class Kind : uint8_t { kNone, kBool, kInt, kFloat, kString, kTensor, kList, kTuple, kDict, kOther };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string text;  // of a string; of kOther what it is; of a tensor the name of its storage
  TensorMeta meta;   // of a tensor
  std::vector<std::shared_ptr<Item>> items;  // a dict has its keys and values by turns
  int depth = 1;                             // of nesting
  bool placed = false;                       // in another item: it is complete
};

// Throws Error kMalformed for bytes that are not a pickle, kUnsupported for one that builds something from
// other opcodes than torch.save's.
std::shared_ptr<Item> read_pickle(std::string_view bytes);

struct Saved {
  ZipFile zip;
  std::string root;  // of the members' names: "archive/"
  std::shared_ptr<Item> value;
};
// `what` names the archive in messages.
Saved read_saved(ZipBytes file, const std::string& what);
// Null if there is none. A storage has the name that tensors give it.
const ZipEntry* find_storage(const Saved& saved, const std::string& name);

}  // namespace stridec::pt2
