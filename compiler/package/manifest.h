// Writes the manifest: what is needed to run an artifact, for people and scripts.
// schemas/manifest.schema.json describes it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/loop/program.h"
#include "compiler/loop/value_range.h"
#include "compiler/schedule/memory/recompute.h"

namespace stridec::package {

// Figures of tuned kernels, from the tuning database, for the shape bucket they were measured at.
struct TuningFacts {
  struct Measured {
    std::string shape;
    double microseconds, default_microseconds;
    int tried;
  };
  std::map<loop::NestId, Measured> measured;
  int entries = 0;     // of all variants
  std::string sha256;  // of the lines of these entries
};

// What became of a node of the model.
struct NodeFate {
  enum class Kind : uint8_t {
    kKernel,     // kernels compute it
    kRoutine,    // a routine of the library computes it; `by` is its name
    kControl,    // branches and loops of the host program
    kConstant,   // computed when compiling
    kView,       // index arithmetic of what reads it
    kSize,       // expressions over sizes
    kRewritten,  // replaced by other operations
    kDead,       // nothing reads it, or it never runs
  };
  std::string node;  // the model's node, as in KernelRow::nodes
  Kind kind;
  std::string by = {};          // the pass after which it is no longer there
  std::string with = {};        // kRewritten: the node that computes the same, if that is why
  int count = 1;                // nodes with this text
  std::vector<int> steps = {};  // of the profile: kernels and routines
};
std::string_view name(NodeFate::Kind kind);  // "kernel", "view" ...

// One function. The program is the general one of the best variant.
struct FunctionFacts {
  const loop::Program* program = nullptr;
  const loop::Program* declared = nullptr;          // has the model's shapes of parameters; null: `program`
  std::vector<loop::ValueRange> input_ranges = {};  // one per input; empty: unknown
  std::string model_file, model_sha256;             // the file's name without its folder
  std::string method = {};                          // --method
  std::map<std::string, std::string> dims = {};     // --dim, by name: "1..64%8"
  std::map<std::string, std::string> shapes = {};   // --shape, by name: "f32[batch,3,224,224]"
  std::map<std::string, std::string> input_values = {};  // --input-value, by name: "16000"
  TuningFacts tuning = {};
  std::vector<NodeFate> nodes = {};  // of the model, in its order
  // Rules of users, and the nodes that each replaced or whose operations it changed.
  std::vector<std::pair<std::string, std::vector<std::string>>> rewritten = {};
  const schedule::RecomputePlan* recomputation = nullptr;  // of the best variant; null: it keeps all tensors
  // Programs for specialised sizes, of the best variant, in the order in which the run tries them.
  struct Specialization {
    sym::Expr when;
    const loop::Program* program;
  };
  std::vector<Specialization> specializations = {};
};

// Rules, operators and passes of users.
struct ExtensionFacts {
  struct Rule {
    std::string name, check, reason;  // reason: of trusting it
    int fired = 0;
  };
  struct RuleFile {
    std::string file, name, sha256;
    int version = 1;
    std::vector<Rule> rules;
  };
  struct Pass {
    std::string after, kind, command, sha256;  // kind: command or plugin
  };
  struct OperatorFile {
    std::string file, name, sha256;
    int version = 1;
    std::vector<std::string> operators;  // "acme::Rotary"
  };
  struct KernelFile {
    std::string file, name, sha256;
    std::vector<std::pair<std::string, int>> kernels;  // how many places each was chosen for
  };
  std::vector<RuleFile> rules;
  std::vector<OperatorFile> operators;
  std::vector<KernelFile> kernels;
  std::vector<Pass> passes;
};

struct ManifestFacts {
  std::vector<FunctionFacts> functions;  // at least one
  std::string mode;
  std::map<std::string, std::string> settings;
  std::vector<std::string> variants;      // CPU variants, best first
  std::vector<std::string> gpu_variants;  // GPU variants, best first
  std::string driver;        // with GPU variants: the lowest version of the NVIDIA driver that runs them
  std::string glibc;         // "2.34": the lowest version that the library runs on
  std::string weights_file;  // file name of external weights; "": embedded
  std::map<std::string, std::string> metadata = {};  // --metadata and the model's own
  ExtensionFacts extensions = {};
};

// JSON, indented by two spaces, keys in a fixed order, ending with a newline. Equal arguments give equal
// bytes.
std::string manifest(const ManifestFacts& facts);

}  // namespace stridec::package
