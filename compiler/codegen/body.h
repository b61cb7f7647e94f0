// Prints the statements of a nest as C: the body of the general loop emitter, and the prologue and epilogue
// of templates.
//
// A template that holds a tile of results in registers prints its epilogue like this (lanes along %n):
//
//   Body body(text, nest);
//   body.set_index(m, "(m0 + i)");
//   body.set_index(n, "(n0 + 16 * j)");
//   body.set_lanes(n, 16, tail ? "live" : "");
//   body.set_value(reduced, {.text = "acc[i][j]", .dtype = DType::kF32, .width = 16});
//   body.print(epilogue);
//
// Every value is computed as written in the IR: storage floats in f32 and rounded at each statement, integers
// modulo 2^bits. A value that is uniform across lanes stays a scalar until it is combined with one that is
// not.
//
// Vector mode. At most one index variable runs along the lanes; lane l stands for its value plus l.
// Unit-stride accesses become vector loads and stores, others gathers and scatters. With `live`, masked-off
// lanes access no memory and their values are unspecified (but never trap). Statements nested in a vector
// mode (reduce, for, scan) stay in it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "compiler/codegen/emit_text.h"
#include "compiler/codegen/precision_slack.h"
#include "compiler/loop/program.h"

namespace stridec::codegen {

// A C expression without side effects that is cheap to repeat (a name, an array element).
struct CValue {
  std::string text;
  DType dtype = DType::kF32;
  int width = 1;            // 1: a scalar, uniform across lanes
  bool number = false;      // a literal other than NaN
  std::string stored = {};  // the same value in its storage type, if available
  bool whole = false;       // a float without a fractional part, or NaN
  std::string as_f32 = {};  // an integer's value as f32, if available
  // For a whole f32, or an integer converted from one: the unrounded value and the shift, if available. The
  // value is `unrounded` rounded to nearest, ties to even, plus the shift.
  std::string unrounded = {};
  double shift = 0;
  bool clamped = false;  // `unrounded` is clamped to a range in which sums and shifts are exact
  // An i64's value as i32 in all lanes, strictly between the least and the largest i32, if available.
  std::string as_i32 = {};
};

// How the dims of For and Reduce statements inside a body are mapped; dims that are not listed run as plain
// loops.
struct InnerLoops {
  std::map<sym::Expr, int, sym::ExprLess> width;  // number of lanes along this dim
  // Number of independent accumulators of a reduce that is vectorised along this dim.
  std::map<sym::Expr, int, sym::ExprLess> accumulators;
};

class Body {
 public:
  Body(KernelText& text, const loop::Nest& nest, InnerLoops inner = {});

  // ---- inputs of the statements ----
  // Sets an index variable to a C expression of type int64_t: a name or a parenthesised sum, which is pasted
  // at every use.
  void set_index(sym::Expr var, std::string c);
  // Adds the range of a variable of an enclosing loop that is not among the nest's dims.
  void add_dim(const loop::Dim& dim) { facts_.set_index(dim.var, dim.extent); }
  // Runs `var` along `width` lanes, a power of two. `live`: the active lanes, as the bits of a u64 (a C
  // expression); "": all. `aligned`: lane 0 stands for a multiple of `width`.
  void set_lanes(sym::Expr var, int width, std::string live = {}, bool aligned = false);
  void clear_lanes();
  void set_value(loop::ValueId id, CValue value);
  // Sets a value that is already loaded: a vector with all lanes, in the storage type of `dtype`.
  void set_stored(loop::ValueId id, const std::string& vector, DType dtype);
  int width() const { return width_; }
  // Redirects accesses of `buffer` to `pointer` (of its storage type) with these strides, instead of the
  // argument.
  void set_buffer(loop::BufferId buffer, std::string pointer, std::vector<sym::Expr> strides);

  // Sets the mask conjuncts, as written in accesses, that hold in all statements printed from here on. {}:
  // none.
  void assume(std::vector<sym::Expr> conditions) { assumed_ = std::move(conditions); }

  // ---- printing ----
  void print(const loop::Block& block);
  void print(const loop::Stmt& stmt);

  // Prints plain loops over dims, the first outermost.
  void print_loops(const std::vector<loop::Dim>& dims, size_t next, const std::function<void()>& inside) {
    print_loops(dims, next, inside, nullptr);
  }
  // A vectorised loop along `var` from `from` to `to` (C expressions; `count` points if known), unrolled by
  // `unroll`.
  struct Strips {
    sym::Expr var;
    std::string from, to;
    std::optional<int64_t> count;
    int width, unroll = 1;
    bool aligned = false;  // `from` is a multiple of `width`
    // The tail runs point by point outside vector mode, as it does on targets without masks.
    bool single = false;
    // On targets without masks, unless `single`: the tail first runs in vectors of this width, less than
    // `width`; 0: it does not.
    int narrow = 0;
  };
  // Prints the loop; `inside` prints its body. Each copy of an unrolled loop has an accumulator chain of its
  // own. `chain`: the C loop variable that numbers the copies, "" if there is one copy. `live`: the lanes
  // that mask the tail (bits of a u64); "": all.
  void print_strips(const Strips& strips,
                    const std::function<void(const std::string& chain, const std::string& live)>& inside);

  // Prints statements for several points that differ along `along` only, interleaved statement by statement;
  // what is uniform across the points is computed once. The bodies, one per point, are copies of one body
  // with different indices for `along`. `apart`: the values that differ between points.
  static void print_together(std::vector<Body>& bodies, sym::Expr along,
                             const std::vector<const loop::Stmt*>& stmts, std::set<loop::ValueId>& apart);
  // Copies the leader's lanes and its index of `var`.
  void follow(const Body& leader, sym::Expr var);

  // ---- results ----
  bool has_value(loop::ValueId id) const;
  CValue value(loop::ValueId id) const;
  // The value in all lanes, broadcast if it is a scalar. Outside vector mode: the scalar.
  std::string lanes(loop::ValueId id);

  // An index expression as C text of type int64_t. It must be uniform across lanes.
  std::string index(sym::Expr expr);
  // Element offset of an access from its buffer's pointer, as a C expression that may be added to; lane 0's
  // offset if it differs between lanes.
  std::string offset(const loop::Access& access);
  sym::Expr offset_expr(const loop::Access& access) const;
  // The mask of an access for the first lane; "" if it always holds.
  std::string condition(const loop::Access& access) { return mask_of(access).condition; }
  const sym::Facts& facts() const { return facts_; }

  // ---- statement fragments, for templates ----
  // The value of a masked-off load, in its storage type.
  std::string stored_fill(const loop::Load& load);
  // Conversion of a value to its storage type and back.
  std::string to_storage(const std::string& text, DType dtype, int width);
  std::string to_storage(const CValue& value, DType dtype);  // a scalar
  std::string from_storage(const std::string& text, DType dtype, int width);
  // Rounds f32 to the values of a storage float.
  std::string rounded(const std::string& text, DType dtype, int width);
  // The start value of a reduction; part 1 is the index of a pair.
  std::string identity(loop::Combine combine, DType dtype, size_t part);
  // Prints statements that combine `from` into `into`.
  void print_combine(loop::Combine combine, const std::vector<std::string>& into,
                     const std::vector<std::string>& from, const std::vector<DType>& dtypes, int width);

  // The statement printed to leave the kernel after a recorded failure (Bind with kError).
  std::string leave = "return;";
  // Updates of memory use compare-and-swap, so that several threads may update one element (GPU; 4- and
  // 8-byte elements).
  bool atomic_updates = false;
  // Returns a C condition: whether this thread updates the element at this offset from its buffer's start.
  // Unset: always.
  std::function<std::string(const std::string& offset)> owns;
  // Prints a replacement for a scalar update of the element at this offset from its buffer's start.
  std::function<void(const std::string& offset, const std::string& value)> update;
  // 16-bit float values stay in f32: intermediates are not rounded.
  bool wide_floats = false;
  // The statement that stores a scalar to its element (both C expressions), if it is not an assignment.
  std::function<std::string(const loop::Access&, const std::string& element, const std::string& value)>
      assign;
  // A C expression of the storage type that replaces an access's memory element; "" for memory. For templates
  // that move several elements at a time; scalars only, and masks are ignored.
  std::function<std::string(const loop::Access&)> place;

 private:
  struct Memory {  // a buffer's pointer and strides in this body
    std::string pointer;
    std::vector<sym::Expr> strides;
  };
  // The mask of an access, split into a C condition that is uniform across lanes and the lanes as bits of a
  // u64 expression. Empty: always true.
  struct Mask {
    std::string condition, bits;
    bool only_live = true;  // bits equal the live lanes
    // A scalar condition under which all bits are set, cheaper than `bits`; "" if there is none.
    std::string all;
  };
  // The address of an access: lane l's element offset from the pointer is base + stride * l, base +
  // spread[l], or lanes[l] of an i64 vector.
  struct Address {
    std::string pointer, base;
    std::optional<sym::Expr> stride;  // 0: uniform across lanes
    std::vector<int64_t> spread;      // each less than the width
    std::string lanes;
    // With `lanes`, the first and the last lane's offset, if their distance alone tells whether the lanes are
    // contiguous.
    std::string first, last;
    std::string declaration;  // declaration of `lanes`, which print_lanes() prints
    bool rises = false;       // never_falls() holds for `lanes`
    // Lane l's element, as a C expression.
    std::string element(const std::string& l, const std::string& stride_text) const;
  };

  // body_access.cpp
  Memory memory(loop::BufferId buffer);
  static const sym::Expr& lane();  // the lane variable
  // For a by_lane() expression, in which the lane variable is lane 0's.
  bool lane_dependent(sym::Expr expr) const;
  sym::Expr by_lane(sym::Expr expr) const;  // in terms of the lane variable, simplified
  sym::Expr uniform(sym::Expr expr);
  sym::Expr canonical(sym::Expr expr);  // replaces uniform subexpressions by size symbols
  std::string scalar_text(sym::Expr expr);
  bool fits_i32(sym::Expr expr) const;
  std::string vector_text(sym::Expr expr, const std::string& element);  // i64xW or i32xW
  std::string vector_condition(sym::Expr expr, const std::string& element);
  Mask mask_of(const loop::Access& access);
  bool add_ends(sym::Expr condition, std::string& all);
  Address address_of(const loop::Access& access);
  // Prints the lanes' addresses unless already printed. A vector access to contiguous elements does not need
  // them.
  void print_lanes(Address& at);
  bool finds_neighbours(const Address& at, const std::string& bits) const;
  void print_load(const loop::Load& load);
  struct LaneLoad;
  // The statement that loads all lanes without a loop over them: by vector loads, or by one scalar load that
  // all lanes share. Returns nothing if the addresses or the mask do not allow it.
  std::optional<std::string> vector_load(const LaneLoad& load);
  // Prints the load lane by lane, with cheaper alternatives if the lanes' addresses turn out to allow them.
  void print_gather(LaneLoad& load);
  // Prints a vector load of contiguous lanes, and opens a branch for others.
  void open_unless_contiguous(const LaneLoad& load);
  // Prints one vector load that covers the elements of all lanes, then a permutation. Opens two blocks, the
  // inner one a branch for elements that are too far apart.
  void open_unless_near(const LaneLoad& load);
  // The loaded value, with the fill in lanes that did not load.
  std::string filled(const loop::Load& load, const LaneLoad& lanes);
  bool print_table_load(const loop::Load& load);
  void print_store(const loop::Store& store);
  void print_update(const loop::Store& store);
  std::string atomic_function(loop::Combine combine, DType dtype);
  void print_bind(const loop::Bind& bind);
  void print_index_value(const loop::IndexValue& value);

  // body_ops.cpp
  void print_let(const loop::Let& let);
  void print_constant(const loop::Constant& constant);
  class Operation;
  std::string let_text(const loop::Let& let, int width);
  std::string native_text(const loop::Let& let);
  void narrow_comparands(const loop::Let& let, std::string& a, std::string& b);
  struct Call {
    const char* function;
    std::vector<loop::ValueId> args;
    bool negated = false;  // the function takes the negated arguments
  };
  std::optional<Call> coarse_call(const loop::Let& let) const;
  std::string normal_argument(const loop::Let& let, int width);
  bool print_quantized(const loop::Let& let, int width);
  void find_unrounded(const loop::Let& let, int width, CValue& result);
  std::string literal(const loop::Scalar& scalar);
  std::string widened(const CValue& value, int width);
  void define(loop::ValueId id, const std::string& text, int width);

  // body_casts.cpp
  std::string cast_text(const std::string& text, DType from, DType to, int width, bool saturate);
  std::string float_of_float(const std::string& text, DType from, DType to, int width, bool saturate);
  // From f32 or f64. The nearest integer, saturating; 0 for NaN.
  std::string nearest_integer_of_float(const std::string& text, DType from, DType to, int width);
  std::string integer_of_float(const std::string& text, DType from, DType to, int width);
  std::string integer_of_integer(const std::string& text, DType from, DType to, int width, bool saturate);
  std::string convert(const std::string& text, DType to, int width);   // as a C conversion
  std::string splat(const std::string& text, DType dtype, int width);  // a constant in all lanes
  // Wraps to a type with fewer bits than its C type.
  std::string narrowed(const std::string& text, DType to, int width);
  std::string clamped(const std::string& text, DType from, DType to, int width, double shift = 0,
                      bool above = true);
  std::string nearest_text(const std::string& text, int width) const;

  // body_together.cpp
  // Prefetches into L2 the lines that the next row of results is the first to read. This is for reduces that
  // read many places of a tensor larger than L2: they have more streams than the hardware prefetcher follows.
  // Places may share a set of L1, so nothing is prefetched into L1.
  void prefetch_next_row(const loop::Reduce& reduce);

  // body_loops.cpp
  // A loop of a sum that runs in blocks of `points` points. After a block, the accumulators are added to
  // totals and start again from 0, if they took in the additions of a full block since the last time.
  struct Blocks {
    size_t loop;        // its place among the loops, 0 for the outermost
    int64_t points;     // a multiple of at_once
    int64_t at_once;    // points that different accumulators take in
    std::string taken;  // the C variable that counts the additions to an accumulator, or more
    std::function<void()> print_flush = {};
  };
  void print_loops(const std::vector<loop::Dim>& dims, size_t next, const std::function<void()>& inside,
                   const Blocks* blocks);
  void print_blocks(const Blocks& blocks, const std::string& count,
                    const std::function<void(const std::string& from, const std::string& to)>& inside);
  void print_for(const loop::For& loop);
  void print_scan(const loop::Scan& scan);

  // body_reduce.cpp
  void print_reduce(const loop::Reduce& reduce);
  // Prints one reduction per body in shared loops without lanes along the reduced dims; `inside` prints the
  // statements that compute the terms.
  static void print_reduces(std::span<Body> bodies, const loop::Reduce& reduce,
                            const std::function<void()>& inside);
  // Prints a reduction with lanes along dim number `along`.
  void print_reduce_along(const loop::Reduce& reduce, size_t along);
  struct Along;                                  // such a reduction
  struct Sums;                                   // names of its accumulators, or of their totals
  int chains_along(const loop::Dim& dim) const;  // vectors of partial results
  Sums declare_sums(const Along& a);             // with the reduction's start value
  void start_chains(const Along& a, const std::string& array, size_t part);
  void combine_sums(const Along& a, const Sums& into, const Sums& from);
  // Declares the values that a point, or a vector of them, yields; in lanes that are not live the start
  // value. Returns their names.
  std::vector<std::string> print_yields(const Along& a, const std::string& live);
  void print_whole(const Along& a, const Sums& sums);  // the results, from all accumulators
  // Combines the lanes of the vectors `parts`; returns the names of the results.
  std::vector<std::string> print_tree(const loop::Reduce& reduce, std::vector<std::string> parts, int width);
  void set_results(const loop::Reduce& reduce, const std::vector<std::string>& parts, int width);
  std::vector<DType> dtypes_of(const loop::Reduce& reduce) const;
  // The blocks that limit the rounding errors of a sum; none if it is short. `loops`: outermost first.
  // `at_once`: points of the last loop that different accumulators take in; `tail`: those that one
  // accumulator takes in at its end, at most.
  std::optional<Blocks> blocks_of(const loop::Reduce& reduce, const std::vector<loop::Dim>& loops,
                                  int64_t at_once, int64_t tail);
  // Sets accumulators to the reduction's start value.
  void print_start(const loop::Reduce& reduce, const std::vector<std::string>& parts, int width);

  KernelText& text_;
  const loop::Nest& nest_;
  InnerLoops inner_;
  sym::Facts facts_;
  // Variables that are uniform across lanes (for the lane variable: lane 0's value).
  std::map<sym::Expr, std::string, sym::ExprLess> index_;
  // Bound variables that differ between lanes: an i64 vector.
  std::map<sym::Expr, std::string, sym::ExprLess> lane_index_;
  // The variables of lane_index_ that are bytes: a vector of u8.
  std::map<sym::Expr, std::string, sym::ExprLess> byte_index_;
  std::map<sym::Expr, CValue, sym::ExprLess> valid_;  // conditions of variables bound with kSkip
  std::map<loop::BufferId, Memory> buffers_;
  std::vector<std::optional<CValue>> values_;
  // Values whose only uses are sums: a multiplication among them may be contracted into an fma. Every other
  // multiplication is rounded on its own, so that a value recomputed in another nest is identical.
  std::vector<bool> summed_;
  std::vector<Slack> slack_;
  std::map<loop::ValueId, double> numbers_;  // float constants
  // Values defined by erf, tanh, multiplication and division.
  std::map<loop::ValueId, const loop::Let*> made_by_;
  std::vector<sym::Expr> assumed_;
  std::optional<sym::Expr> lane_var_;
  bool lanes_are_aligned_ = false;  // lane 0's value is a multiple of the width
  bool lanes_are_points_ = false;   // the lanes are points of the nest, each with its own local buffers
  int width_ = 1;
  std::string live_;
};

}  // namespace stridec::codegen
