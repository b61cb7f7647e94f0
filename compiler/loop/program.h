// The loop IR: what stridec optimises, and all that a backend has to understand.
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
// Meaning. A program runs its steps in order. A nest runs its body once for every point of its dims, in any
// order: its dims are parallel. Within a body, statements run in order. `reduce` combines what its body
// yields over all points of its dims, in any association that the combine allows, starting from the combine's
// identity; `for` runs its body at every point of its dims, in any order; `scan` runs along one dim in order
// and carries scalars. Loads and stores are the only memory access. A nest never reads an element that
// another point of the same nest writes, except elements written earlier in the same point.
//
// Two levels of indices and never more: index variables (sym::Expr variables whose names start with '%') and
// index expressions over them and the program's symbols. A value enters an index expression through `bind`
// alone.
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

// ---- memory ----------------------------------------------------------------------------------------------

enum class Storage : uint8_t {
  kInput,   // the caller's, read only
  kOutput,  // the caller's, written
  kWeight,  // constant bytes in the artifact, read only
  kState,   // kept by the context from run to run
  kArena,   // scratch of one run; memory planning gives the offset
  kLocal,   // private to one point of one nest: a row kept in cache, a packed tile
};

// Bytes of a constant: mapped from the model file or owned. Never copied into the IR.
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
  int ordinal =
      -1;  // input, output, state: position in the artifact's list; weight: position in the packed weights
  WeightData weight;       // kWeight; of a kState its value at the start, absent: zeros
  bool prepacked = false;  // kWeight whose bytes are computed at compile time by Program::prepack
  sym::Expr offset =
      0;  // after planning, in bytes: in the arena (-1: elsewhere, from when on it is needed) or the weights
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

// A constant: `f` where the dtype is float (f64 holds every float dtype exactly), `i` otherwise (u64 as its
// bits).
struct Scalar {
  DType dtype = DType::kF32;
  double f = 0;
  int64_t i = 0;
  bool operator==(const Scalar&) const = default;
};
Scalar float_scalar(DType dtype, double value);  // rounded or truncated to dtype, whatever its kind
Scalar int_scalar(DType dtype, int64_t value);   // wrapped or rounded to dtype, whatever its kind

// How a reduction combines. Float sums and products may be reassociated; the others are exact.
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
// What a reduction over nothing gives; of a pair's key. Formats without infinity use their largest number.
Scalar identity(Combine combine, DType dtype);

// ---- statements ------------------------------------------------------------------------------------------

struct Dim {
  sym::Expr var;     // an index variable, unique in its nest
  sym::Expr extent;  // runs from 0 to extent - 1; an expression of symbols (and of outer index variables in
                     // triangular loops)
};

struct Stmt;
using Block = std::vector<Stmt>;

// An element of a buffer. Where `mask` is false nothing is touched: a load gives `fill`, a store does
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
struct IndexValue {  // an index expression as a number of result's dtype (i64 unless a cast was folded in)
  ValueId result;
  sym::Expr expr;
};
struct Load {
  ValueId result;
  Access access;
  Scalar fill;  // where masked off
};
struct Store {
  Access access;
  ValueId value;
  // With a combine the element is updated in memory (scatter-add). Points of the nest may then meet in one
  // element; the backend makes the update atomic or runs such a nest serially, in order, so that results are
  // reproducible.
  bool update = false;
  Combine combine = Combine::kSum;
};
// Makes an index variable out of an integer value: gather and scatter.
struct Bind {
  enum class OutOfRange : uint8_t {
    kError,  // the run fails with `sentence` ({0}: the value, {1}: the extent)
    kClamp,  // to [0, extent - 1]
    kSkip,   // accesses that use the variable are masked off
  };
  sym::Expr var;
  ValueId value;               // any integer dtype
  sym::Expr extent;            // valid range [0, extent)
  bool wrap_negative = false;  // value < 0 counts from the end first
  OutOfRange mode = OutOfRange::kError;
  std::string sentence;
};
// Whether every value of the bound one's dtype is inside: nothing is checked, and no run fails.
bool holds_any(const Bind& bind, DType value);
struct Reduce {
  std::vector<Dim> dims;
  Block body;
  Combine combine;
  std::vector<ValueId> yields;   // from the body, arity(combine) of them
  std::vector<ValueId> results;  // outside the body; same dtypes
  // Of a sum of products: in each of so many consecutive points the factor that is no weight is integers of [-127, 127], of
  // which one is +-127 or all are 0, times one number, so that kernels may multiply these integers. 0: nobody says so.
  int64_t byte_blocks = 0;
};
struct For {
  std::vector<Dim> dims;
  Block body;
};
// In order along `dim` (reversed: from the end): carried[i] is init[i], then what the body yielded the step
// before.
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

// How a nest is mapped to a machine: a list of transforms with a text form, chosen by the schedule layer,
// replayed from the tuning cache, recorded in the manifest. A backend obeys it; the interpreter ignores it.
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
// "gemm: tile %m 14; vectorize %n 16": the kernel and a colon where there is one, then the directives.
std::string to_string(const Schedule& schedule);
Schedule parse_schedule(std::string_view text);

// ---- nests and programs ----------------------------------------------------------------------------------

struct ValueInfo {
  DType dtype;
};

struct Nest {
  std::string name;                // readable, from the model's op ("matmul+add+relu")
  std::vector<std::string> nodes;  // the model's nodes that it computes, for messages and `verify`
  std::vector<Dim> dims;           // parallel
  Block body;
  std::vector<ValueInfo> values;  // dtype of every ValueId
  Schedule schedule;
};

struct Step;
using Steps = std::vector<Step>;

struct Launch {
  NestId nest;
};
// Reads one integer from memory into a symbol (data-dependent sizes, trip counts). Fails with `sentence`
// outside [lower, upper]; its places {0}, {1}, {2} are the number and the bounds, or `values` where there are any (at most
// four).
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
// Runs body for counter = 0, 1, ... while counter < trip_count and, when `condition` is valid, while that
// bool is true (read before each iteration). After the loop `iterations` holds the number of completed
// iterations.
struct While {
  sym::Expr counter;  // a symbol visible in the body
  sym::Expr trip_count;
  BufferId condition;    // invalid: none
  sym::Expr iterations;  // a symbol bound after the loop
  Steps body;
};
// Launches that work their way along `points` in strips, one strip after the other or side by side: [0, points) is cut
// into ranges [first, first + size) of at most `most`, as even as can be, as few of them as can be but for an even number,
// so that two threads have equal shares, and the body runs once for each; all of it for every one of `rounds`. What `own`
// names, arena buffers that nothing else touches, lasts for a strip: whoever runs it has memory for one.
struct TiledGroup {
  // A symbol of the body that follows from the others: rows of an image that a strip needs, say.
  struct Size {
    sym::Expr symbol, value;
    std::optional<int64_t> most;
    sym::Expr total = 0;  // over all strips, or a little more, where it is an extent
  };
  // What a strip needs of a buffer of its own and the strip before it in its round has made: who runs both, one after the
  // other, moves it to where this strip has it, and of the rows [at, at + rows) that a nest makes only the rest is left. Row r
  // lies along `dim` from place per * r - base on.
  struct Carried {
    BufferId buffer;
    size_t dim = 0;
    sym::Expr at, rows;  // symbols of `sizes`, which symbols behind them there may depend on
    int64_t per = 1;
    sym::Expr base;  // by the strip's symbols
  };
  std::string name;
  sym::Expr first, size;  // symbols of the body
  sym::Expr points;
  int64_t least = 1, most = 1;  // what size can be
  sym::Expr rounds = 1, round;  // how many, and a symbol of the body where there can be more than one
  std::vector<Size> sizes;
  std::vector<Carried> carried;
  Steps body;  // launches alone
  std::vector<BufferId> own;
  sym::Expr count() const { return rounds * count_of_round(); }
  sym::Expr count_of_round() const {  // an even number, or one strip a point
    return sym::min(points, sym::align_up(sym::ceildiv(points, most), 2));
  }
  sym::Expr first_of(sym::Expr strip) const {  // of a round
    return sym::floordiv(points * strip, count_of_round());
  }
  std::vector<sym::Expr> symbols() const;  // of the body
};
void set_ranges(sym::Facts& facts, const TiledGroup& strips);  // of its symbols
// A routine of the runtime library with a stable contract (sort, top-k, string ops): not a nest.
struct Call {
  std::string routine;  // a row of library.def
  std::vector<BufferId> reads, writes;
  std::vector<sym::Expr> arguments;
  std::vector<std::string> nodes;
};
// Copies a whole buffer over another of the same shape (loop-carried values that could not be made one
// buffer).
struct Copy {
  BufferId from, to;
};
struct Step {
  std::variant<Launch, BindSymbol, If, While, TiledGroup, Call, Copy> node;
};

// A symbol of the program: bound from a dim of an input, or by a BindSymbol or While step.
struct Symbol {
  sym::Expr var;
  int input = -1, dim = -1;  // where the caller's shapes give it; -1: bound during the run
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
  std::vector<NestId> prepack;  // run once at compile time: read weights, write prepacked weights
  std::vector<BufferId> inputs, outputs, states;
  int64_t weight_bytes = 0;  // of all weights that the run reads, after memory planning
  sym::Expr arena_bytes =
      0;  // of one run, after memory planning; an expression of the inputs' symbols and threads_of

  Buffer& operator[](BufferId id) { return buffers[id.value]; }
  const Buffer& operator[](BufferId id) const { return buffers[id.value]; }
  Nest& operator[](NestId id) { return nests[id.value]; }
  const Nest& operator[](NestId id) const { return nests[id.value]; }
};

// How many threads a run has, as a symbol of what memory planning makes: a name that no other symbol has.
sym::Expr threads_of(const Program& program);

// Dense row-major strides for a shape.
std::vector<sym::Expr> row_major(const std::vector<sym::Expr>& shape);
sym::Expr element_count(const std::vector<sym::Expr>& shape);
// Fills strides when empty. Makes the name unique, but an input, output or state (ordinal set) keeps its own.
BufferId add_buffer(Program& program, Buffer buffer);
NestId add_nest(Program& program, Nest nest);  // does not launch it

}  // namespace stridec::loop
