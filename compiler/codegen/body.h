// Prints the statements of a nest: the body of the general loop emitter, and what templates put into their
// prologue and epilogue slots.
//
// A template that has a tile of results in registers prints what follows like this (lanes along %n):
//
//   Body body(text, nest);
//   body.set_index(m, "(m0 + i)");
//   body.set_index(n, "(n0 + 16 * j)");
//   body.set_lanes(n, 16, tail ? "live" : "");
//   body.set_value(reduced, {.text = "acc[i][j]", .dtype = DType::kF32, .width = 16});
//   body.print(epilogue);
//
// Every value is computed as written in the IR: storage floats in f32 and rounded at each statement, integers
// modulo 2^bits. A value that is the same for all lanes stays a scalar until it meets one that is not.
//
// Vector mode. At most one index variable runs along the lanes; lane l stands for its value plus l.
// Unit-stride accesses become vector loads and stores, others gathers and scatters; with `live` lanes at and
// beyond it touch no memory and their values are unspecified (but never trap). Statements nested in a vector
// mode (reduce, for, scan) keep it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen/emit_text.h"
#include "compiler/codegen/precision_slack.h"
#include "compiler/loop/program.h"

namespace stridec::codegen {

// A C expression without side effects, cheap to repeat (a name, an array element).
struct CValue {
  std::string text;
  DType dtype = DType::kF32;
  int width = 1;            // 1: one scalar for all lanes
  bool number = false;      // a literal, and no NaN
  std::string stored = {};  // the same as its dtype lies in memory, where that is at hand
  bool whole = false;       // a float without fraction, or NaN
  std::string as_f32 = {};  // an integer as f32, where that is at hand
  // Of a whole f32, or of an integer that it became: it is this one, rounded to the nearest with ties to even, and the
  // shift, where those are at hand.
  std::string unrounded = {};
  double shift = 0;
  bool clamped = false;  // `unrounded`, to numbers between which there is no rounding of sums and shifts
};

// How the dims of For and Reduce statements inside a body are mapped; dims that are not named run as plain
// loops.
struct InnerLoops {
  std::map<sym::Expr, int, sym::ExprLess> width;         // lanes along this dim
  std::map<sym::Expr, int, sym::ExprLess> accumulators;  // of a reduce vectorised along this dim
};

class Body {
 public:
  Body(KernelText& text, const loop::Nest& nest, InnerLoops inner = {});

  // ---- what the statements may use ----
  // An index variable as a C expression of type int64_t: a name or a parenthesised sum, pasted wherever it is
  // used.
  void set_index(sym::Expr var, std::string c);
  // The range of a variable of a loop around the statements, where the nest's dims do not tell.
  void add_dim(const loop::Dim& dim) { facts_.set_index(dim.var, dim.extent); }
  // Runs `var` along `width` lanes, a power of two, of which those set in `live` (a C expression: bits of a
  // u64) count; "" = all. `aligned`: lane 0 stands for a multiple of `width`.
  void set_lanes(sym::Expr var, int width, std::string live = {}, bool aligned = false);
  void clear_lanes();
  void set_value(loop::ValueId id, CValue value);
  // The value is loaded already: all lanes of it, as `dtype` has them in memory.
  void set_stored(loop::ValueId id, const std::string& vector, DType dtype);
  int width() const { return width_; }
  // Reads and writes of `buffer` go to `pointer` (of its storage type) with these strides instead of the
  // argument.
  void set_buffer(loop::BufferId buffer, std::string pointer, std::vector<sym::Expr> strides);

  // Parts of masks, as they stand in accesses, that hold in what is printed from here on; {}: none.
  void assume(std::vector<sym::Expr> conditions) { assumed_ = std::move(conditions); }

  // ---- printing ----
  void print(const loop::Block& block);
  void print(const loop::Stmt& stmt);

  // Plain loops over dims, the first outermost.
  void print_loops(const std::vector<loop::Dim>& dims, size_t next, const std::function<void()>& inside);
  // Vectors along `var` from `from` to `to` (C expressions; `count` points where that is known), `unroll` at
  // a time, each with a chain of its own (`chain`: "" alone, else a C loop variable); then what is left,
  // masked by the lanes `live` (bits of a u64) or, where the target has no masks or with `single`, point by point outside
  // any vector mode. `aligned`: `from` is a multiple of `width`.
  void print_strips(sym::Expr var, const std::string& from, const std::string& to,
                    std::optional<int64_t> count, int width, int unroll,
                    const std::function<void(const std::string& chain, const std::string& live)>& inside,
                    bool aligned = false, bool single = false);

  // Statements for several points that differ along `along` alone, one statement after the other: what is the same for all
  // is computed once. The bodies, one a point, are copies of one whose index of `along` was set; `apart`: values that differ.
  static void print_together(std::vector<Body>& bodies, sym::Expr along,
                             const std::vector<const loop::Stmt*>& stmts, std::set<loop::ValueId>& apart);
  // Takes over the leader's lanes, and its index of `var`.
  void follow(const Body& leader, sym::Expr var);

  // ---- results ----
  bool has_value(loop::ValueId id) const;
  CValue value(loop::ValueId id) const;
  // The value with all lanes, broadcast if it is a scalar. Outside a vector mode: the scalar.
  std::string lanes(loop::ValueId id);

  // An index expression as C text of type int64_t. It must not depend on the lanes.
  std::string index(sym::Expr expr);
  // Element offset of an access from its buffer's pointer, a C expression that may be added to it; lane 0's where it depends
  // on the lanes.
  std::string offset(const loop::Access& access);
  sym::Expr offset_expr(const loop::Access& access) const;
  // The mask of an access, of the first lane; "" where it always holds.
  std::string condition(const loop::Access& access) { return mask_of(access).condition; }
  const sym::Facts& facts() const { return facts_; }

  // ---- words of statements, for templates ----
  std::string stored_fill(
      const loop::Load& load);  // what a load gives where it is masked off, as memory has it
  // A value as it lies in memory, and back.
  std::string to_storage(const std::string& text, DType dtype, int width);
  std::string to_storage(const CValue& value, DType dtype);  // a scalar
  std::string from_storage(const std::string& text, DType dtype, int width);
  std::string rounded(const std::string& text, DType dtype, int width);  // f32 to a storage float's values
  // What a reduction starts from; part 1: the index of a pair.
  std::string identity(loop::Combine combine, DType dtype, size_t part);
  // Statements that make `into` the combination of itself and `from`.
  void print_combine(loop::Combine combine, const std::vector<std::string>& into,
                     const std::vector<std::string>& from, const std::vector<DType>& dtypes, int width);

  // Ends when a statement recorded a failure (Bind with kError): what to print in order to leave, "return;"
  // by default.
  std::string leave = "return;";
  // Updates of memory compare and swap, so that threads may meet in an element (GPU; elements of 4 and 8 bytes).
  bool atomic_updates = false;
  // Whether this thread updates the element so far from its buffer's start, as a C expression; by default it updates all.
  std::function<std::string(const std::string& offset)> owns;
  // What a scalar update becomes instead of one of memory: prints it, of the element so far from its buffer's start.
  std::function<void(const std::string& offset, const std::string& value)> update;
  // Values of 16-bit floats stay f32: nothing is rounded on the way.
  bool wide_floats = false;
  // The statement by which a scalar goes to its element, both C expressions, where that is no assignment.
  std::function<std::string(const loop::Access&, const std::string& element, const std::string& value)>
      assign;
  // Where an access finds its element instead of in memory: a C expression of the storage type, "" for memory. For
  // templates that move several elements at a time; scalars only, masks do not count.
  std::function<std::string(const loop::Access&)> place;

 private:
  struct Memory {  // a buffer as the body sees it
    std::string pointer;
    std::vector<sym::Expr> strides;
  };
  // What decides whether an access happens, in parts: a C condition that is the same for all lanes, and the
  // lanes as the bits of a u64 expression. Empty: always.
  struct Mask {
    std::string condition, bits;
    bool only_live = true;  // bits say no more than which lanes are live
  };
  // Where an access goes: elements from the pointer for lane l are base + stride * l, base + spread[l], or
  // lanes[l] of an i64 vector.
  struct Address {
    std::string pointer, base;
    std::optional<sym::Expr> stride;  // 0: the same for all lanes
    std::vector<int64_t> spread;      // less than the width
    std::string lanes;
    // Beside `lanes`, of the first and the last one, where lanes that are as far apart as neighbours are neighbours.
    std::string first, last;
    std::string declaration;  // of `lanes`, which print_lanes() prints
    bool rises = false;       // `lanes` never_falls()
    std::string element(const std::string& l,
                        const std::string& stride_text) const;  // of lane l, a C expression
  };

  // body_access.cpp
  Memory memory(loop::BufferId buffer);
  static const sym::Expr& lane();  // the lanes' variable, of a width_
  bool lane_dependent(
      sym::Expr expr) const;  // of a by_lane() expression, in which the lanes' variable is lane 0's
  sym::Expr by_lane(sym::Expr expr) const;  // over the lane variable, simplified
  sym::Expr uniform(sym::Expr expr);
  sym::Expr canonical(sym::Expr expr);  // size symbols for everything uniform
  std::string scalar_text(sym::Expr expr);
  bool fits_i32(sym::Expr expr) const;
  std::string vector_text(sym::Expr expr, const std::string& element);  // i64xW or i32xW
  std::string vector_condition(sym::Expr expr, const std::string& element);
  Mask mask_of(const loop::Access& access);
  Address address_of(const loop::Access& access);
  // Prints what the elements' addresses need, unless that has been done. A vector of neighbours does without.
  void print_lanes(Address& at);
  bool finds_neighbours(const Address& at, const std::string& bits) const;
  void print_load(const loop::Load& load);
  bool print_table_load(const loop::Load& load);
  void print_store(const loop::Store& store);
  void print_update(const loop::Store& store);
  std::string atomic_function(loop::Combine combine, DType dtype);
  void print_bind(const loop::Bind& bind);
  void print_index_value(const loop::IndexValue& value);

  // body_ops.cpp
  void print_let(const loop::Let& let);
  void print_constant(const loop::Constant& constant);
  std::string let_text(const loop::Let& let, int width);
  std::string native_text(const loop::Let& let);
  struct Call {
    const char* function;
    std::vector<loop::ValueId> args;
    bool negated = false;  // the arguments
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
  // From f32 or f64. The integer that is nearest, for numbers beyond all of them too; 0 for NaN.
  std::string nearest_integer_of_float(const std::string& text, DType from, DType to, int width);
  std::string integer_of_float(const std::string& text, DType from, DType to, int width);
  std::string integer_of_integer(const std::string& text, DType from, DType to, int width, bool saturate);
  std::string convert(const std::string& text, DType to, int width);   // as C does
  std::string splat(const std::string& text, DType dtype, int width);  // a constant, in all lanes
  std::string narrowed(const std::string& text, DType to, int width);  // to a type of fewer bits than C's
  std::string clamped(const std::string& text, DType from, DType to, int width, double shift = 0,
                      bool above = true);
  std::string nearest_text(const std::string& text, int width) const;

  // body_together.cpp
  // A reduction of each body, in loops that they share; `inside` prints what makes the terms.
  static void print_reduces(std::vector<Body>& bodies, const loop::Reduce& reduce,
                            const std::function<void()>& inside);

  // body_loops.cpp
  void print_reduce(const loop::Reduce& reduce);
  void print_for(const loop::For& loop);
  void print_scan(const loop::Scan& scan);

  KernelText& text_;
  const loop::Nest& nest_;
  InnerLoops inner_;
  sym::Facts facts_;
  std::map<sym::Expr, std::string, sym::ExprLess>
      index_;  // variables that all lanes share (lane 0's, of the lane's own)
  std::map<sym::Expr, std::string, sym::ExprLess>
      lane_index_;  // bound variables that differ by lane: an i64 vector
  std::map<sym::Expr, std::string, sym::ExprLess>
      byte_index_;                                    // those of them that are bytes: a vector of u8
  std::map<sym::Expr, CValue, sym::ExprLess> valid_;  // of variables bound with kSkip
  std::map<loop::BufferId, Memory> buffers_;
  std::vector<std::optional<CValue>> values_;
  // Values that nothing but a sum takes: a product among them may be added in one rounding. Every other product
  // is rounded by itself, so that a value computed again in another nest is the same value.
  std::vector<bool> summed_;
  std::vector<Slack> slack_;
  std::map<loop::ValueId, double> numbers_;            // constants of floats
  std::map<loop::ValueId, const loop::Let*> made_by_;  // of erf, tanh, products and quotients
  std::vector<sym::Expr> assumed_;
  std::optional<sym::Expr> lane_var_;
  bool lanes_are_aligned_ = false;  // lane 0's value is a multiple of the width
  bool lanes_are_points_ = false;   // the lanes are points of the nest, each with its own local buffers
  int width_ = 1;
  std::string live_;
};

}  // namespace stridec::codegen
