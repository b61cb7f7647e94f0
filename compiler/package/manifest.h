// The manifest: what it takes to run an artifact, for people and scripts. schemas/manifest.schema.json
// describes it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/loop/value_range.h"

namespace stridec::package {

// Tuned kernels: figures of the tuning database, at the shape bucket they were measured at.
struct TuningFacts {
  struct Measured {
    std::string shape;
    double microseconds, default_microseconds;
    int tried;
  };
  std::map<loop::NestId, Measured> measured;
  int entries = 0;     // of all variants
  std::string sha256;  // of their lines
};

// What the loop program does not know.
struct ManifestFacts {
  std::vector<loop::ValueRange> input_ranges;  // by input; empty: unknown
  std::string model_file, model_sha256;        // the file's name without its folder
  std::string mode;
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> dims;          // --dim, by name: "1..64%8"
  std::map<std::string, std::string> input_values;  // --input-value, by name: "16000"
  std::vector<std::string> variants;                // CPU variants, best first
  std::vector<std::string> gpu_variants;            // likewise
  std::string driver;                               // with GPU variants: NVIDIA's, the least that runs them
  std::string glibc;                                // "2.34": the least that the library runs on
  std::string weights_file;                         // beside the library; "": within it
  TuningFacts tuning;
  // Programs for some sizes alone, of the best variant, in the order in which the run asks for them.
  struct Specialization {
    sym::Expr when;
    const loop::Program* program;
  };
  std::vector<Specialization> specializations;
};

// Two-space indented JSON, keys in a fixed order, ended by a newline; the same bytes for the same arguments.
std::string manifest(const loop::Program& program, const ManifestFacts& facts);

}  // namespace stridec::package
