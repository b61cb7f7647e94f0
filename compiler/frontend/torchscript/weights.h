// The tensors of an archive as constants and states of the graph.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/frontend/aten/strided.h"
#include "compiler/frontend/torchscript/archive.h"
#include "compiler/frontend/torchscript/value.h"

namespace stridec::torchscript {

class Weights {
 public:
  // `states`: storages ("data/7") that the program writes.
  Weights(const Archive& archive, aten::Builder& builder, const std::set<std::string>& states)
      : archive_(archive), b_(builder), states_(states) {}

  // The tensor of an item of a pickle. Tensors of one layout in one storage are one tensor. `folder` is
  // "data" or "constants". Throws Error for tensors that cannot be read.
  aten::Tensor load(const std::string& folder, const StoredTensor& stored, const std::string& name);

  // A state of its own, which starts with the tensor.
  aten::Tensor load_state(const std::string& folder, const StoredTensor& stored, const std::string& name);

  std::set<std::string> written() const;  // storages that the program wrote without being states
  void update_states();                   // adds the nodes that keep what the program wrote
  std::vector<Value> tensors() const;     // those that are loaded
  uint64_t bytes() const { return bytes_; }

 private:
  struct Loaded {
    std::string name, storage;
    int64_t element_type = 0;
    aten::Layout layout;
    aten::Tensor tensor;
    graph::ValueId initial;
  };
  aten::Tensor make(const std::string& folder, const StoredTensor& stored, const std::string& name,
                    bool state);

  const Archive& archive_;
  aten::Builder& b_;
  const std::set<std::string>& states_;
  std::vector<Loaded> loaded_;
  std::map<std::string, std::vector<size_t>> by_storage_;
  uint64_t bytes_ = 0;
};

}  // namespace stridec::torchscript
