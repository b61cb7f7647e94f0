// A nest compiled for the interpreter: a flat list of instructions over lanes.
//
// The points of the nest's parallel dims run in blocks of lanes, all lanes in lockstep; loops inside the body
// run one iteration at a time for all lanes. Every value and every index that differs between lanes has a
// slot with one cell per lane; counters of inner loops are plain integers. Index expressions become linear
// forms over counters and slots, with this run's sizes as constants. Non-linear subexpressions are computed
// into slots, in the outermost loop that allows it.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/loop/interpret.h"
#include "compiler/loop/program.h"

namespace stridec::loop::bytecode {

inline constexpr int kLanes = 128;

union Cell {
  double f;
  int64_t i;
};

struct Linear {
  int64_t base = 0;
  std::vector<std::pair<int, int64_t>> counters;  // counter, coefficient
  std::vector<std::pair<int, int64_t>> slots;     // slot, coefficient
  bool is_constant() const { return counters.empty() && slots.empty(); }
};

enum class Code : uint8_t {
  kLinear,      // dst = linears[extra]
  kIndexOp,     // dst = sym op of a, b, c
  kScalar,      // dst = scalar op of a, b, c, of dtype `type`
  kConvert,     // dst = a (of dtype `from`) as `type`
  kBitcast,     // likewise, keeping the bits
  kIndexValue,  // dst = a (an index) as `type`
  kLoad,        // dst = accesses[extra]
  kStore,       // accesses[extra] = a
  kBind,        // binds[extra]
  kLoop,        // loops[extra]
};

struct Instr {
  Code code;
  uint8_t op = 0;  // ScalarOp, sym::Op, or Combine of an updating store
  DType type = DType::kF32, from = DType::kF32;
  bool flag = false;  // saturate; update
  int dst = -1, a = -1, b = -1, c = -1;
  int extra = -1;
};

struct AccessPlan {
  BufferId buffer;
  DType dtype = DType::kF32;
  uint8_t* data = nullptr;
  int64_t lane_stride = 0;  // in elements; not 0 for local buffers, which every lane has a copy of
  Linear offset;            // at most one slot, with coefficient 1
  int mask = -1;            // slot; -1: no mask
  Cell fill{};
  struct Check {
    int dim;
    Linear index;
    int64_t extent;
  };
  std::vector<Check> checks;  // dims whose indices are not proven in bounds
};

struct BindPlan {
  const Bind* bind = nullptr;
  bool is_unsigned = false;
  int value = -1;
  Linear extent;
  int dst = -1;
  int valid = -1;  // slot; kSkip only
};

struct LoopPlan {
  enum class Kind : uint8_t { kFor, kReduce, kScan } kind = Kind::kFor;
  std::vector<int> counters;
  std::vector<Linear> extents;
  std::vector<Instr> body;
  bool reverse = false;
  Combine combine = Combine::kSum;
  std::vector<DType> types;  // dtypes of the results
  std::vector<int> init, carried, yields, results, spare;
};

struct Bytecode {
  const Nest* nest = nullptr;
  int lanes = kLanes;
  int slot_count = 0, counter_count = 0;
  std::vector<std::pair<int, Cell>> constants;  // slots that never change
  std::vector<int> dim_slots;                   // of the parallel dims
  std::vector<Linear> dim_extents;              // over dim_slots of outer dims
  std::vector<Instr> body;
  std::vector<Linear> linears;
  std::vector<AccessPlan> accesses;
  std::vector<BindPlan> binds;
  std::vector<LoopPlan> loops;
  struct Local {
    DType dtype;
    std::vector<uint8_t> bytes;  // for all lanes
  };
  std::vector<Local> locals;
};

// The result points into `nest` and into the buffers.
Bytecode compile(const Program& program, const Nest& nest, const Bindings& symbols,
                 std::span<const BufferMemory> buffers);
void run(const Program& program, Bytecode& tape, bool poison);

// The value of a sym node of two or three operands; division by zero gives 0 (such an index is never read).
int64_t index_op(sym::Op op, int64_t a, int64_t b, int64_t c);

// Fills memory with NaNs or, for other dtypes, odd integers.
void poison_memory(DType dtype, uint8_t* data, size_t size);

}  // namespace stridec::loop::bytecode
