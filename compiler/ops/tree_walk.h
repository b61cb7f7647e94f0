// Node encoding of the tree_walk op (decision tree ensembles).
//
// Inputs:
//   x [rows, features]
//   nodes: one u64 per node of all trees
//   roots: one u32 per tree
//   thresholds: one per node, of x's dtype; absent if x is f32 and nodes hold theirs in the low 32 bits
//
// Fields of a node, from bit 0, or from bit 32 if it holds its threshold:
//   the index of its "no" successor; its "yes" successor is the next node
//   from bit `feature_at`: the feature that the node tests
//   kTreeEqualBit: the test is x == t instead of x <= t
//   kTreeMissingBit: NaN takes the "yes" branch
// A leaf is its own "no" successor, and its threshold is NaN, so that its test fails.
//
// Attributes:
//   depth: number of steps from a root to the deepest leaf
//   feature_at: see above
//   equal: kTreeEqualBit is set in all nodes with a threshold other than NaN (1), in some (-1), in none (0)
//   missing: kTreeMissingBit is set in some node
#pragma once

namespace stridec::ops {

inline constexpr int kTreeEqualBit = 62, kTreeMissingBit = 63;

}  // namespace stridec::ops
