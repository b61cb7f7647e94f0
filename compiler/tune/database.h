// The tuning database: which schedule a kernel was found to run best with, as text that is reviewed and merged in git.
//
// One line an entry, fields between spaces, parts between " | ":
//
//   structure shape target threads compiler | time default noise tried | schedule | kernel
//   9f86d081884c7d65 1x128 znver5 2 0.1.0-1b4f0e98 | 612.4us 701.2us 0.8% 9 | gemm.f32.8x48: rows %i0 ... | matmul+bias
//   60303ae22b998861 32x128 sm_90a@NVIDIA_H200 0 0.1.0-5d0c77e1 | 8.1us 9.0us 0.3% 14 | wgmma.128x128: rows ... | matmul+bias
//
//   structure  the first 16 digits of the SHA-256 of the nest's canonical text, which loop/analysis.h describes
//   shape      values of its symbols in the text's order, each rounded up to a power of two; "-" without symbols;
//              with commas between the shapes that it was judged at
//   target, threads, compiler   what it was measured with, and on: version and revision of code generation. Of a GPU
//              "target@device" and 0 threads; machines without a GPU take the last entry of any device
//   time       of one call with the schedule, the geometric mean over the shapes; default: with the schedule of the
//              analytic model; 0 for what could not be measured
//   noise      standard error of time over default
//   tried      schedules that were measured
//   kernel     a name, for people
//
// and one for each family of schedules that was measured, with what that taught about the analytic model (cost_model_calibration.h):
//
//   learned target threads compiler | count sum squares | family
//   learned znver5 2 0.1.0-1b4f0e98 | 24 -0.7440 0.1961 | gemm.f32.8x48 direct weights
//
// Lines are appended; of several entries with the same key the last one holds, lessons add up. Lines that start with
// '#' are remarks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/tune/cost_model_calibration.h"

namespace stridec::tune {

extern const char* const kCodegenRevision;  // changes with the sources that make kernels for CPUs
extern const char* const kGpuRevision;      // and for GPUs

struct Key {
  std::string structure, shape, target;
  std::string device;  // of a GPU: where it was measured; "": wherever
  int threads = 1;     // 0: of a GPU
  std::string compiler;
  bool is_gpu() const { return threads == 0; }
  bool operator==(const Key&) const = default;
};
std::string to_string(const Key& key);
std::string machine_of(const Key& key);  // "znver5", "sm_90a@NVIDIA_H200"
// What `key` has otherwise than `wanted`, whose structure it has: "sizes up to batch=1,sequence=128, target znver5, 4 threads". Sizes of
// the structure's symbols as --tune-shape takes them, with " and " between shapes.
std::string difference(const Key& key, const Key& wanted, const std::vector<sym::Expr>& symbols);
// "0.1.0-3eae99da", version and revision, in the keys that this build makes.
std::string this_compiler();
std::string this_gpu_compiler();
inline std::string this_compiler_of(const Key& key) {
  return key.is_gpu() ? this_gpu_compiler() : this_compiler();
}

struct Entry {
  Key key;
  double microseconds = 0, default_microseconds = 0;
  double noise_percent = 0;
  int tried = 0;
  std::string schedule;  // in the canonical text's names
  std::string kernel;
};
std::string to_string(const Entry& entry);  // a line without its end

struct Learned {
  Key key;  // target, device, threads and compiler alone
  std::string family;
  ModelError lesson;
};

struct Contents {
  std::vector<Entry> entries;
  std::vector<Learned> learned;
};
// Throws Error kMalformed ("bad-tuning") with file and line; names a file of another format.
Contents parse_contents(const std::string& text, const std::string& file);

class Database {
 public:
  // A file that does not exist yet is empty, unless it has to be there (then kUnreadable). "": in memory alone.
  explicit Database(std::string file, bool must_exist = false);

  // The last one; for a key without a device, of any.
  const Entry* find(const Key& key) const;
  // At the end of the file too, in one write, so that processes may share it.
  void append(const Entry& entry);
  // What was measured on the same machine with the same compiler has taught, and more of it.
  ModelErrors lessons(const Key& key) const;
  void append(const Key& key, const ModelErrors& lessons);
  const Contents& contents() const { return contents_; }
  const std::vector<Entry>& entries() const { return contents_.entries; }
  // Those that `find` finds: of each key the last one, in the file's order.
  std::vector<Entry> held() const;
  const std::string& file() const { return file_; }

 private:
  void write_lines(std::string lines) const;

  std::string file_;
  Contents contents_;
};

// $STRIDEC_CACHE/tuning.txt (default ~/.cache/stridec); "" where there is no home.
std::string default_database();

// One entry for each key, sorted by kernel and key. Where several have it, the one that tried more schedules holds;
// of equals the last. ModelErrors of a key and family are added up.
Contents merged(const Contents& contents);
// A whole file.
std::string file_text(const Contents& contents);

}  // namespace stridec::tune
