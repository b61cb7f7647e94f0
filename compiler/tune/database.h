// The tuning database: the best schedule found for each kernel, as text that can be reviewed and merged in
// git.
//
// One entry per line, fields separated by spaces, parts by " | ":
//
//   structure shape target threads compiler | time default noise tried | schedule | kernel
//   9f86d081884c7d65 1x128 znver5 2 0.1.0-1b4f0e98 | 612.4us 701.2us 0.8% 9 | gemm.f32.8x48: ... | matmul
//   60303ae22b998861 32x128 sm_90a@NVIDIA_H200 0 0.1.0-5d0c77e1 | 8.1us 9.0us 0.3% 14 | wgmma: ... | matmul
//
//   structure  the first 16 digits of the SHA-256 of the nest's canonical text, which loop/analysis.h
//              describes
//   shape      values of its symbols in the text's order, each rounded up to a power of two; "-" without
//              symbols; commas separate the shapes that it was measured at
//   target, threads, compiler   the environment of the measurement; the compiler is the version and the
//              revision of code generation. GPU: "target@device" and 0 threads; machines without a GPU use
//              the last entry of any device
//   time       of one call with the schedule, the geometric mean over the shapes
//   default    the same with the schedule of the analytic model; 0 if it could not be measured
//   noise      standard error of time / default
//   tried      number of schedules that were measured
//   kernel     a name, for people
//
// and one line for each measured family of schedules, with the correction of the analytic model
// (cost_model_calibration.h):
//
//   learned target threads compiler | count sum squares | family
//   learned znver5 2 0.1.0-1b4f0e98 | 24 -0.7440 0.1961 | gemm.f32.8x48 direct weights
//
// and one line for each file of rules and each pass of the user (compiler/extend) that a compilation which
// measured had; --frozen refuses others:
//
//   extension 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae | acme.rules
//
// Lines are appended. Of several entries with the same key the last one counts; `learned` lines add up. Lines
// that start with '#' are comments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/tune/cost_model_calibration.h"

namespace stridec::tune {

// Changes with the sources that generate CPU kernels.
extern const char* const kCodegenRevision;
// Changes with the sources that generate GPU kernels.
extern const char* const kGpuRevision;

struct Key {
  std::string structure, shape, target;
  std::string device;  // GPU: where it was measured; "": any device
  int threads = 1;     // 0: GPU
  std::string compiler;
  bool is_gpu() const { return threads == 0; }
  bool operator==(const Key&) const = default;
};
std::string to_string(const Key& key);
std::string machine_of(const Key& key);  // "znver5", "sm_90a@NVIDIA_H200"
// How `key` differs from `wanted`, which has the same structure: "sizes up to batch=1,sequence=128, target
// znver5, 4 threads". Sizes of the structure's symbols are written as for --tune-shape, with " and " between
// shapes.
std::string difference(const Key& key, const Key& wanted, const std::vector<sym::Expr>& symbols);
// "0.1.0-3eae99da": version and revision, as in the keys of this build.
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
  std::string schedule;  // with the names of the canonical text
  std::string kernel;
};
std::string to_string(const Entry& entry);  // without the line end

struct Learned {
  Key key;  // only target, device, threads and compiler
  std::string family;
  ModelError lesson;
};

struct Extension {
  std::string sha256, name;
  bool operator==(const Extension&) const = default;
};

struct Contents {
  std::vector<Entry> entries;
  std::vector<Learned> learned;
  std::vector<Extension> extensions;
};
std::string to_string(const Extension& extension);  // without the line end
// Throws Error kMalformed ("bad-tuning") with file and line. Also detects files of another format.
Contents parse_contents(const std::string& text, const std::string& file);

class Database {
 public:
  // A missing file counts as empty, or is an error (kUnreadable) if `must_exist`. "": keep the database in
  // memory only.
  explicit Database(std::string file, bool must_exist = false);

  // The last entry for the key. A key without a device matches any.
  const Entry* find(const Key& key) const;
  // Also appends to the file, in one write, so that several processes can share it.
  void append(const Entry& entry);
  // What earlier measurements on the same machine with the same compiler have learned.
  ModelErrors lessons(const Key& key) const;
  void append(const Key& key, const ModelErrors& lessons);
  void append(const Extension& extension);  // if it is not there
  const Contents& contents() const { return contents_; }
  const std::vector<Entry>& entries() const { return contents_.entries; }
  // The entries that `find` can return: the last one for each key, in the order of the file.
  std::vector<Entry> held() const;
  const std::string& file() const { return file_; }

 private:
  void write_lines(std::string lines) const;

  std::string file_;
  Contents contents_;
};

// tuning.txt in the cache folder (base/cache_folder.h); "" if there is none.
std::string default_database();

// One entry per key, sorted by kernel and key. Of several, the one that tried more schedules is kept; if
// equal, the last one. ModelErrors of the same key and family are added up.
Contents merged(const Contents& contents);
// The text of a whole file.
std::string file_text(const Contents& contents);

}  // namespace stridec::tune
