#include "compiler/extend/operator_attributes.h"

#include "compiler/ops/call.h"

namespace stridec::extend {

std::vector<std::string_view> attributes_of(graph::OpKind kind) {
  using enum graph::OpKind;
  switch (kind) {
    case kMin:
    case kMax: return {"ties"};
    case kCast: return {"to", "saturate"};
    case kBitcast: return {"to"};
    case kIota: return {"shape", "dim", "dtype"};
    case kReduceSum:
    case kReduceProd:
    case kReduceMax:
    case kReduceMin:
    case kReduceAnd:
    case kReduceOr: return {"dims", "keep"};
    case kArgMax:
    case kArgMin: return {"dim", "last"};
    case kCumSum:
    case kCumProd: return {"dim", "exclusive", "reverse"};
    case kLinearScan: return {"dim", "reverse"};
    case kReshape:
    case kExpand: return {"shape"};
    case kPermute: return {"order"};
    case kSlice: return {"starts", "extents", "steps"};
    case kPad: return {"before", "after", "mode"};
    case kConcat: return {"dim"};
    case kGatherElements: return {"dim", "wrap", "sentence"};
    case kAsSoftmax: return {"dims"};
    case kGather: return {"dim", "batch_dims", "wrap", "sentence", "no_gradient_at", "shared_gradient"};
    case kGatherNd: return {"batch_dims", "wrap"};
    case kScatterElements: return {"dim", "reduction", "wrap"};
    case kScatterNd: return {"reduction", "wrap"};
    case kDotGeneral:
      return {"batch_a", "batch_b", "contract_a", "contract_b", "accumulate", "to", "byte_blocks"};
    case kConv: return {"strides", "dilations", "before", "after", "groups", "accumulate", "to"};
    case kConvTranspose:
      return {"strides", "dilations", "before", "after", "output_extra", "groups", "accumulate", "to"};
    case kReduceWindow:
    case kWindowArgMax: return {"kind", "window", "strides", "dilations", "before", "after", "extra"};
    case kAveragePool:
      return {"kind", "window", "strides", "dilations", "before", "after", "extra", "count_include_pad"};
    case kWindowSpread: return {"window", "strides", "dilations", "before", "after", "extra", "sizes"};
    case kResize:
    case kResizeTranspose:
      return {"dims",      "sizes",         "mode",     "coordinate",      "nearest",
              "antialias", "cubic_a",       "scale_p",  "scale_q",         "roi_p",
              "roi_q",     "extrapolation", "in_sizes", "exclude_outside", "sparse"};
    case kSort: return {"dim", "descending"};
    case kTopK: return {"dim", "k", "largest", "sorted"};
    case kSearchSorted: return {"right"};
    case kTreeWalk: return {"depth", "feature_at", "equal", "missing"};
    case kCall: {
      std::vector<std::string_view> all = {"routine"};
      for (const ops::CallDef& each : ops::call_defs())
        all.insert(all.end(), each.attributes.begin(), each.attributes.end());
      return all;
    }
    default: return {};
  }
}

bool can_be_written(graph::OpKind kind) {
  using enum graph::OpKind;
  switch (kind) {
    case kConstant:
    case kElements:
    case kIf:
    case kLoop:
    case kUpdateState:
    case kSymbolOf:
    case kNonZero:
    case kRandomUniform:
    case kUserKernel:
    case kUserGradient: return false;
    default: return true;
  }
}

std::vector<graph::OpKind> written_operations() {
  std::vector<graph::OpKind> kinds;
#define STRIDEC_OP(id, text) \
  if (can_be_written(graph::OpKind::id)) kinds.push_back(graph::OpKind::id);
#include "compiler/graph/op_kind.def"
#undef STRIDEC_OP
  return kinds;
}

}  // namespace stridec::extend
