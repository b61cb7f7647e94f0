// An open region of a Builder; if an exception leaves it unclosed, the region is closed and discarded.
#pragma once

#include <utility>
#include <vector>

#include "compiler/graph/builder.h"

namespace stridec::ops {

class OpenRegion {
 public:
  OpenRegion(graph::Builder& builder, const std::vector<graph::Type>& parameters, sym::Expr assumption = 1)
      : builder_(builder) {
    builder.begin_region(parameters, assumption);
  }
  ~OpenRegion() {
    if (open_) builder_.end_region({});
  }
  OpenRegion(const OpenRegion&) = delete;
  OpenRegion& operator=(const OpenRegion&) = delete;
  graph::Region close(std::vector<graph::ValueId> results) {
    open_ = false;
    return builder_.end_region(std::move(results));
  }

 private:
  graph::Builder& builder_;
  bool open_ = true;
};

}  // namespace stridec::ops
