// Kernels that the user gives (--ops): routines whose text is in no table of this compiler.
//
// A Call of such a routine passes each tensor as a buffer and, among its arguments, the tensor's offset, dims
// and strides in elements, so that tensors may be views: slices, transposes, parts of a concatenation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/base/dtype.h"
#include "compiler/loop/library.h"

namespace stridec::loop {

struct UserKernel {
  // Which strides the text takes: row-major without gaps; 1 in the last dim and any others; any.
  enum class Strides : uint8_t { kDense, kRows, kAny };
  struct Tensor {
    std::string name;
    DType dtype = DType::kF32;
    size_t rank = 0;
    Strides strides = Strides::kDense;
    // Of a write: the read whose memory it takes, so that it holds the contents of that read before the call.
    std::optional<size_t> in_place = {};
  };
  // What the function of the text gets in place of a parameter.
  struct Parameter {
    enum class Kind : uint8_t {
      kData,     // a pointer to the first element of tensor `index`
      kDims,     // its dims
      kStrides,  // its strides
      kRank,
      kSize,     // size `index`
      kReal,     // size `index` as the bits of a double
      kNumbers,  // a constant array; the text is its elements
      kCount,    // the number of its elements, which is `index`
      kBegin,    // the first of the points of the parallel domain that the call computes
      kEnd,      // one past the last
      kScratch,
    };
    Kind kind = Kind::kData;
    size_t index = 0;
    std::string name, text;  // name: of the function's parameter
    bool real = false;       // of kNumbers: doubles, not integers of 64 bits
  };
  struct Text {
    std::string source, place;  // the place is named in errors: "acme.json#/operators/0/body/kernel/c"
    std::string function;
    bool returns = false;  // an int, which is 0 if nothing failed
    std::vector<Parameter> parameters;
  };

  std::string name;     // "acme::Op"
  std::string routine;  // of Call, set by add_user_kernel(): "acme.Op.1f2e3d4c5b6a"
  std::string key;      // what distinguishes it from others of its name
  std::vector<Tensor> reads, writes;
  size_t sizes = 0;                                  // number of sizes that the texts may take
  std::vector<std::pair<std::string, DType>> types;  // names of types that the texts may use
  bool parallel = false;  // the points of the parallel domain may be computed by several calls
  std::optional<Text> c, cuda;
  int threads = 256;  // of a block of the CUDA text
  // The application computes it: what its callback gets besides the tensors.
  bool callback = false;
  std::vector<Parameter> attributes;  // kSize and kReal, by their names

  // Computes the writes from the reads for the interpreter: by the reference if the user declares one,
  // otherwise by the text in C. The arguments are those of the call. Throws Error.
  using Run =
      std::function<void(const UserKernel& kernel, std::span<const RoutineBuffer> reads,
                         std::span<const RoutineBuffer> writes, const std::vector<int64_t>& arguments)>;
  Run run;

  size_t tensor_count() const { return reads.size() + writes.size(); }
  const Tensor& tensor(size_t i) const { return i < reads.size() ? reads[i] : writes[i - reads.size()]; }
};

// Positions in Call::arguments: for each tensor, reads first, its offset, dims and strides; then the sizes,
// and last a fixed number of others.
struct UserArguments {
  // kFlops and kBytes: of the call, for cost models and profiles; kFlops is 0 where nothing is known.
  enum Last : uint8_t {
    kPoints,
    kScratchBytes,
    kGridX,
    kGridY,
    kGridZ,
    kSharedBytes,
    kFlops,
    kBytes,
    kLastCount
  };
  explicit UserArguments(const UserKernel& kernel);
  size_t offset(size_t tensor) const { return at[tensor]; }
  size_t dim(size_t tensor, size_t d) const { return at[tensor] + 1 + d; }
  size_t stride(size_t tensor, size_t d) const { return at[tensor] + 1 + ranks[tensor] + d; }
  size_t size(size_t i) const { return sizes + i; }
  size_t last(Last which) const { return total - kLastCount + which; }

  std::vector<size_t> at, ranks;
  size_t sizes = 0, total = 0;
};

// Makes the kernel known by its routine, which it returns; kernels of one name and key are one. Thread-safe.
std::string add_user_kernel(UserKernel kernel);
// Null if none has been added with this routine.
std::shared_ptr<const UserKernel> find_user_kernel(std::string_view routine);

// Whether the application computes the routine, which then has no kernel.
bool is_callback(std::string_view routine);

// What people call the routine: "acme::Op", or the name of a row of library.def.
std::string label_of(std::string_view routine);

}  // namespace stridec::loop
