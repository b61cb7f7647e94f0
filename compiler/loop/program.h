// The loop IR: the representation that stridec optimises, and all that a backend has to understand.
//
//   program bert(batch, sequence)
//     input  x   f32 [batch, sequence, 768]
//     weight w   f32 [768, 2304]
//     arena  t0  f32 [batch, sequence, 2304]
//     nest qkv (%b<batch, %s<sequence, %n<2304)
//       %0 : f32 = reduce sum (%k<768)
//         %1 : f32 = load x[%b, %s, %k]
//         %2 : f32 = load w[%k, %n]
//         %3 : f32 = mul %1 %2
//         yield %3
//       store t0[%b, %s, %n] %0
//
// Semantics. A program runs its steps in order. A nest runs its body once for every point of its dims, in any
// order: its dims are parallel. Within a body, statements run in order. `reduce` combines the values its body
// yields over all points of its dims, in any association that the combine allows, starting from the combine's
// identity; `for` runs its body at every point of its dims, in any order; `scan` runs along one dim in order
// and carries scalars. Loads and stores are the only memory access. A nest never reads an element that
// another point of the same nest writes, except elements written earlier in the same point.
//
// There are exactly two levels of indices: index variables (sym::Expr variables whose names start with '%')
// and index expressions over them and the program's symbols. Only `bind` turns a value into an index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/base/ids.h"
#include "compiler/sym/expr.h"
#include "compiler/sym/facts.h"
#include "compiler/sym/guard.h"

namespace stridec::loop {

using BufferId = Id<struct BufferTag>;  // into Program::buffers
using ValueId = Id<struct ValueTag>;    // into Nest::values
using NestId = Id<struct NestTag>;      // into Program::nests
using NodeId = Id<struct NodeTag>;      // a node of the model, by its text (node_of)

// ---- memory ----------------------------------------------------------------------------------------------

enum class Storage : uint8_t {
  kInput,      // the caller's, read only
  kOutput,     // the caller's, written
  kParameter,  // stored in the artifact; does not change within a run
  kState,      // kept by the context between runs
  kArena,      // scratch of one run; memory planning assigns the offset
  kLocal,      // private to one point of one nest: a row kept in cache, a packed tile
};

// The bytes of a constant, mapped from the model file or owned. They are never copied into the IR.
struct WeightData {
  std::shared_ptr<const void> owner;  // keeps the mapping or the vector alive
  const uint8_t* bytes = nullptr;
  size_t size = 0;
};

struct Buffer {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<sym::Expr> shape;
  std::vector<sym::Expr> strides;  // in elements, per dim; row-major unless a layout transform changed them
  Storage storage = Storage::kArena;
  int ordinal = -1;   // input, output, state, named parameter: position in the artifact's list
  WeightData weight;  // kParameter: the bytes; kState: the initial value (absent: zeros)
  // kParameter: computed from other parameters by nests of Program::prepack, not stored in the model.
  bool prepacked = false;
  // kParameter: the user may replace the bytes after compilation; `weight` is the initial value. No pass may
  // depend on them. codegen::cpu::derivation_of sets this for prepacked buffers as well.
  bool replaceable = false;
  // In bytes, after planning: from the start of the arena or of the weights; -1: allocated separately, when
  // it is first needed.
  sym::Expr offset = 0;
};

// ---- scalars ---------------------------------------------------------------------------------------------

enum class ScalarOp : uint8_t {
#define STRIDEC_SCALAR_OP(id, ...) id,
#include "compiler/loop/scalar_op.def"
#undef STRIDEC_SCALAR_OP
};

enum class ResultRule : uint8_t { kSame, kBool, kGiven };
struct ScalarOpInfo {
  std::string_view name;
  int arity;
  ResultRule result;
  int cost;  // relative to an add
};
const ScalarOpInfo& info(ScalarOp op);
std::optional<ScalarOp> parse_scalar_op(std::string_view name);

// A constant: `f` holds the value of a float dtype (f64 represents every float dtype exactly), `i` any other
// (u64 as its bits).
struct Scalar {
  DType dtype = DType::kF32;
  double f = 0;
  int64_t i = 0;
  bool operator==(const Scalar&) const = default;
};
Scalar float_scalar(DType dtype, double value);  // rounded or truncated to dtype, whatever its kind
Scalar int_scalar(DType dtype, int64_t value);   // wrapped or rounded to dtype, whatever its kind

// How a reduction combines its values. Float sums and products may be reassociated; the others are exact.
enum class Combine : uint8_t {
  kSum,
  kProd,
  kMax,  // NaN wins
  kMin,  // NaN wins
  kAnd,
  kOr,
  kArgMax,  // two values (key, index i64): the largest key, the first index among equals; NaN wins
  kArgMin,
  kArgMaxLast,  // the last index among equals
  kArgMinLast,
};
int arity(Combine combine);
std::string_view name(Combine combine);
std::optional<Combine> parse_combine(std::string_view name);
// The identity element; for a pair, that of its key. Formats without infinity use their largest finite value.
Scalar identity(Combine combine, DType dtype);

// ---- statements ------------------------------------------------------------------------------------------

struct Dim {
  sym::Expr var;  // an index variable, unique in its nest
  // The loop runs from 0 to extent - 1. The extent is an expression of symbols, and in triangular loops also
  // of outer index variables.
  sym::Expr extent;
};

struct Stmt;
using Block = std::vector<Stmt>;

// An element of a buffer. Where `mask` is false memory is not touched: a load gives `fill`, a store does
// nothing.
struct Access {
  BufferId buffer;
  std::vector<sym::Expr> index;  // one per dim of the buffer
  sym::Expr mask = 1;
};

struct Let {  // result = op(args)
  ValueId result;
  ScalarOp op;
  std::vector<ValueId> args;
};
struct Constant {
  ValueId result;
  Scalar value;
};
// The value of an index expression in the result's dtype (i64 unless a cast was folded in).
struct IndexValue {
  ValueId result;
  sym::Expr expr;
};
struct Load {
  ValueId result;
  Access access;
  Scalar fill;  // the result where the mask is false
};
struct Store {
  Access access;
  ValueId value;
  // With a combine the store updates the element in memory (scatter-add). Several points of the nest may then
  // update one element; the backend uses atomics or runs such a nest serially, in order, so that results are
  // reproducible.
  bool update = false;
  Combine combine = Combine::kSum;
};
// Defines an index variable by an integer value: gather and scatter.
struct Bind {
  enum class OutOfRange : uint8_t {
    kError,  // the run fails with `sentence` ({0}: the value, {1}: the extent)
    kClamp,  // to [0, extent - 1]
    kSkip,   // accesses that use the variable are masked off
  };
  sym::Expr var;
  ValueId value;               // any integer dtype
  sym::Expr extent;            // valid range [0, extent)
  bool wrap_negative = false;  // a negative value first has the extent added, as in Python
  OutOfRange mode = OutOfRange::kError;
  std::string sentence;
};
// Whether every value of the dtype is in range, so that the bind needs no check and cannot fail.
bool holds_any(const Bind& bind, DType value);
struct Reduce {
  std::vector<Dim> dims;
  Block body;
  Combine combine;
  // From the body: arity(combine) values, or with an arity of 1 several values of one dtype, each of which is
  // reduced by itself.
  std::vector<ValueId> yields;
  std::vector<ValueId> results;  // outside the body; same dtypes
  // For a sum of products over quantised activations: the length of the blocks of consecutive points in which
  // the non-weight factor is one scale times integers of [-127, 127], one of which is +-127 unless all are 0.
  // Kernels may multiply these integers. 0: not known to be so.
  int64_t byte_blocks = 0;
};
struct For {
  std::vector<Dim> dims;
  Block body;
};
// Runs in order along `dim` (reversed: from the end). carried[i] is init[i] at the first step, then the
// previous step's yield.
struct Scan {
  Dim dim;
  bool reverse = false;
  std::vector<ValueId> init;     // outside
  std::vector<ValueId> carried;  // visible in the body
  Block body;
  std::vector<ValueId> yields;
  std::vector<ValueId> results;  // outside: the carried values after the last step
};

struct Stmt {
  std::variant<Let, Constant, IndexValue, Load, Store, Bind, Reduce, For, Scan> node;
};

// ---- schedule --------------------------------------------------------------------------------------------

// How a nest is mapped to a machine: a list of transforms with a text form. The schedule layer chooses it,
// the tuning cache replays it and the manifest records it. A backend obeys it; the interpreter ignores it.
struct Directive {
  std::string name;               // "vectorize", "tile", "parallel", ...
  std::vector<std::string> args;  // dim names and numbers
  bool operator==(const Directive&) const = default;
};
struct Schedule {
  std::string kernel;  // template row of kernels.def, "" for the general loop emitter
  std::vector<Directive> directives;
  bool operator==(const Schedule&) const = default;
};
// "gemm: tile %m 14; vectorize %n 16": the kernel followed by a colon, if there is one, then the directives.
std::string to_string(const Schedule& schedule);
Schedule parse_schedule(std::string_view text);

// ---- nests and programs ----------------------------------------------------------------------------------

// The node of this text ("node 6 'head/mul' (Mul)"). Equal texts have equal ids in all programs of the
// process.
NodeId node_of(std::string_view text);
const std::string& text_of(NodeId node);

// Where a value comes from. Copies of a value have its origin, in whichever nest they are: operations of one
// origin in two kernels are one operation of the model, which is computed twice.
struct Origin {
  NodeId node;       // invalid: of a value that a pass has made; origins_of (origin.h) finds its node
  int32_t part = 0;  // numbers the values that the node was lowered to, from 1; 0: a pass has made it
};

struct ValueInfo {
  DType dtype;
  Origin origin = {};
};

struct Nest {
  std::string name;                // readable, derived from the model's op ("matmul+add+relu")
  std::vector<std::string> nodes;  // the model's nodes that it computes, for messages and `verify`
  std::vector<Dim> dims;           // parallel
  Block body;
  std::vector<ValueInfo> values;  // dtype and origin of every ValueId
  Schedule schedule;
};

struct Step;
using Steps = std::vector<Step>;

struct Launch {
  NestId nest;
  // May run at the same time as the launch directly before it, and as those with which that one does. None of
  // them touches what another one writes.
  bool concurrent = false;
};
// Reads one integer from memory into a symbol (data-dependent sizes, trip counts). Fails with `sentence` if
// it is outside [lower, upper]. The placeholders {0}, {1}, {2} stand for the value and the bounds, or for
// `values` (at most four) if there are any.
struct BindSymbol {
  sym::Expr symbol;
  BufferId buffer;  // one element, any integer dtype or bool
  sym::Expr lower, upper;
  std::string sentence;
  std::vector<sym::Expr> values;
};
struct If {
  sym::Expr condition;
  Steps then_steps, else_steps;
};
// Runs the body for counter = 0, 1, ... while counter < trip_count and, if `condition` is valid, while that
// bool is true (it is read before each iteration). After the loop `iterations` holds the number of completed
// iterations.
// A trip count that is a symbol which nothing else binds is a capacity (capacity.h): the loop has no bound on
// its iterations, but a condition. The capacity starts at kFirstCapacity and doubles before each iteration
// whose counter has reached it. Arena buffers whose first dim depends on it, and no other dim, keep their
// contents then.
struct While {
  sym::Expr counter;  // a symbol visible in the body
  sym::Expr trip_count;
  BufferId condition;    // invalid: none
  sym::Expr iterations;  // a symbol bound after the loop
  Steps body;
};
// Tile-and-fuse: launches that run tile by tile along `points`, so that intermediates stay in cache.
// [0, points) is cut into ranges [first, first + size) of nearly equal size, at most `most`; their number is
// the smallest even one (so that two threads get equal shares), at most one per point. Where that is fewer
// than kManyTiles in all, the ranges are as short as `finest` for more threads. The body runs once per
// range and per round of `rounds`; tiles are independent and may run in parallel. `own` lists arena buffers
// that only the body touches; they live for one tile, and each thread has one copy.
struct TiledGroup {
  // A symbol of the body that is computed from the others, such as the number of image rows that a tile
  // needs.
  struct Size {
    sym::Expr symbol, value;
    std::optional<int64_t> most;
    sym::Expr total = 0;  // sum over all tiles, or a slight overestimate, where it is an extent
  };
  // The part of an `own` buffer (the halo) that the previous tile of the round has computed too. A thread
  // that runs both tiles in sequence moves it to its place in this tile, and the nest computes only the
  // remaining rows of [at, at + rows). Row r is at position per * r - base along `dim`.
  struct Carried {
    BufferId buffer;
    size_t dim = 0;
    sym::Expr at, rows;  // symbols of `sizes`; later symbols there may depend on them
    int64_t per = 1;
    sym::Expr base;  // an expression over the tile's symbols
  };
  std::string name;
  sym::Expr first, size;  // symbols of the body
  sym::Expr points;
  int64_t least = 1, most = 1;  // bounds of `size`
  int64_t finest = 0;           // 0: `most`, however few tiles there are
  sym::Expr rounds = 1, round;  // their number; a symbol of the body, used if there can be more than one
  std::vector<Size> sizes;
  std::vector<Carried> carried;
  Steps body;  // launches only
  std::vector<BufferId> own;
  sym::Expr count() const { return rounds * count_of_round(); }
  static constexpr int64_t kManyTiles = 16;
  sym::Expr length() const {  // of the longest range
    if (finest == 0 || finest == most) return most;
    return sym::max(finest, sym::min(most, sym::ceildiv(points * rounds, kManyTiles)));
  }
  sym::Expr count_of_round() const {  // even, or one tile per point
    return sym::min(points, sym::align_up(sym::ceildiv(points, length()), 2));
  }
  sym::Expr first_of(sym::Expr strip) const {  // within a round
    return sym::floordiv(points * strip, count_of_round());
  }
  std::vector<sym::Expr> symbols() const;  // those that the body defines
};
void set_ranges(sym::Facts& facts, const TiledGroup& strips);  // ranges of its symbols
// A call of a routine of the runtime library with a stable contract (sort, top-k, string ops).
struct Call {
  std::string routine;  // a row of library.def
  std::vector<BufferId> reads, writes;
  std::vector<sym::Expr> arguments;
  std::vector<std::string> nodes;
};
// Copies a whole buffer over another of the same shape (loop-carried values that could not share one buffer).
struct Copy {
  BufferId from, to;
};
struct Step {
  std::variant<Launch, BindSymbol, If, While, TiledGroup, Call, Copy> node;
};

// A symbol of the program: bound by a dim of an input, or by a BindSymbol or While step.
struct Symbol {
  sym::Expr var;
  int input = -1, dim = -1;  // the dim of an input that determines it; -1: bound during the run
  int64_t multiple = 1;      // input dim == multiple * symbol  (8*h8)
};

struct Program {
  std::string name;
  std::vector<Symbol> symbols;
  sym::Facts facts;                // ranges and divisibility of the symbols
  std::vector<sym::Guard> guards;  // checked on every call before anything runs
  std::vector<Buffer> buffers;
  std::vector<Nest> nests;
  Steps steps;
  // Run at compile time, and again when parameters were replaced: read parameters, write prepacked ones.
  std::vector<NestId> prepack;
  std::vector<BufferId> inputs, outputs, states;
  std::vector<BufferId> parameters;  // replaceable ones that the model names
  // Bytes of all parameters that the run reads, and the offset at which the replaceable ones begin; set by
  // memory planning.
  int64_t weight_bytes = 0, replaceable_begin = 0;
  // Arena size of one run, set by memory planning: an expression of the inputs' symbols and threads_of().
  sym::Expr arena_bytes = 0;

  Buffer& operator[](BufferId id) { return buffers[id.value]; }
  const Buffer& operator[](BufferId id) const { return buffers[id.value]; }
  Nest& operator[](NestId id) { return nests[id.value]; }
  const Nest& operator[](NestId id) const { return nests[id.value]; }
};

// The number of threads of a run, as a symbol in the sizes that memory planning computes. No other symbol has
// its name.
sym::Expr threads_of(const Program& program);

// Dense row-major strides for a shape.
std::vector<sym::Expr> row_major(const std::vector<sym::Expr>& shape);
sym::Expr element_count(const std::vector<sym::Expr>& shape);
// Fills strides if they are empty. Makes the name unique; an input, output or state (ordinal set) keeps its
// own.
BufferId add_buffer(Program& program, Buffer buffer);
NestId add_nest(Program& program, Nest nest);  // does not launch it

// Whether the bytes are known when compiling and never change: of a parameter that is not replaceable. Before
// codegen::cpu::derivation_of, prepacked ones that depend on replaceable ones count as constant; none has
// bytes then.
bool is_constant(const Buffer& buffer);

}  // namespace stridec::loop
