#include "compiler/train/loss_scale.h"

#include "compiler/train/states.h"

namespace stridec::train {

using namespace ops;

namespace {

constexpr double kInitial = 65536, kGrowthInterval = 2000, kLeast = 1, kMost = 0x1p126;

}  // namespace

LossScale::LossScale(graph::Builder& b)
    : b_(b),
      scale_(state(b, "loss_scale", {DType::kF32, {}}, kInitial)),
      good_steps_(state(b, "loss_scale.good_steps", {DType::kF32, {}})) {}

Term LossScale::scaled(Term loss) const { return loss * cast(scale_, loss.dtype()); }

Term LossScale::unscaled(Term gradient) const { return gradient / cast(scale_, gradient.dtype()); }

void LossScale::advance(Term finite) {
  const Term good = good_steps_ + 1.0, grows = greater_equal(good, kGrowthInterval);
  const Term grown = select(grows, minimum(scale_ * 2.0, kMost), scale_);
  update(b_, scale_, select(finite, grown, maximum(scale_ * 0.5, kLeast)));
  update(b_, good_steps_, select(logical_and(finite, logical_not(grows)), good, 0));
}

}  // namespace stridec::train
