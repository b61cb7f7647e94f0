// The tuning database: which schedule a kernel was found to run best with, as text that is reviewed and merged in git.
//
// One line an entry, fields between spaces, parts between " | ":
//
//   structure shape cpu threads compiler | time default noise tried | schedule | kernel
//   9f86d081884c7d65 1x128 znver5 2 0.1.0-1b4f0e98 | 612.4us 701.2us 0.8% 9 | gemm.f32.8x48: rows %i0 ... | matmul+bias
//
//   structure  the first 16 digits of the SHA-256 of the nest's canonical text, which loops/analysis.h describes
//   shape      values of its symbols in the text's order, each rounded up to a power of two; "-" without symbols
//   cpu, threads, compiler   what it was measured with, and on: version and revision of code generation
//   time       of one call with the schedule; default: with the schedule of the analytic model
//   noise      standard error of time over default
//   tried      schedules that were measured
//   kernel     a name, for people
//
// Entries are appended; of several with the same key the last one holds. Lines that start with '#' are remarks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/loop/program.h"

namespace stridec::tune {

extern const char* const kCodegenRevision;  // changes with the sources that make kernels

struct Key {
  std::string structure, shape, cpu;
  int threads = 1;
  std::string compiler;
  bool operator==(const Key&) const = default;
};
std::string to_string(const Key& key);
std::string this_compiler();  // "0.1.0-3eae99da", version and revision, in the keys that this build makes

struct Entry {
  Key key;
  double microseconds = 0, default_microseconds = 0;
  double noise_percent = 0;
  int tried = 0;
  std::string schedule;  // in the canonical text's names
  std::string kernel;
};
std::string to_string(const Entry& entry);  // a line without its end
// Throws Error kMalformed ("bad-tuning") with file and line; names a file of another format.
std::vector<Entry> parse_entries(const std::string& text, const std::string& file);

class Database {
 public:
  // A file that does not exist yet is empty, unless it has to be there (then kUnreadable). "": in memory alone.
  explicit Database(std::string file, bool must_exist = false);

  const Entry* find(const Key& key) const;
  // At the end of the file too, in one write, so that processes may share it.
  void append(const Entry& entry);
  const std::vector<Entry>& entries() const { return entries_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::vector<Entry> entries_;
};

// $STRIDEC_CACHE/tuning.txt (default ~/.cache/stridec); "" where there is no home.
std::string default_database();

// One entry for each key, sorted by kernel and key. Where several have it, the one that tried more schedules holds;
// of equals the last.
std::vector<Entry> merged(const std::vector<Entry>& entries);
// A whole file.
std::string file_text(const std::vector<Entry>& entries);

}  // namespace stridec::tune
