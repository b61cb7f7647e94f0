// The words of nodes that tree_walk takes, for those who make them.
//
// Inputs: x [rows, features]; per node of all trees a word (u64); per tree its root (u32); per node a threshold (x's
// dtype), unless x is f32 and words hold theirs as their low 32 bits. Above that a word has, from bit 0 or 32, the node
// that follows on "no", the one on "yes" being the next one; from bit `feature_at` the feature that the node asks about;
// kTreeEqualBit: it asks whether x == t, not whether x <= t; kTreeMissingBit: NaN goes to yes. A leaf's "no" is itself, and
// its threshold, NaN, says no. Attributes: depth, the steps from a root to the deepest leaf; feature_at; equal:
// kTreeEqualBit of all thresholds but NaN is set (1), of some (-1), of none (0); missing: kTreeMissingBit of some node is set.
#pragma once

namespace stridec::ops {

inline constexpr int kTreeEqualBit = 62, kTreeMissingBit = 63;

}  // namespace stridec::ops
