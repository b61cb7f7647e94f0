// `-O trace.enabled=true` and `-O trace.graph_diagram=true`: a folder with what a compilation made at each
// stage.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "compiler/compile.h"

namespace stridec::cli {

// NAME.trace next to NAME.so or NAME.onnx: STAGE.txt as `inspect --stage=STAGE` prints it, report.html with
// report.json, and command.sh, which repeats the command; graph.svg.
class TraceFolder {
 public:
  // `beside`: the output of the command, or the model where it has none. Without the options, nothing is
  // written. Fails before the work where something that is no folder has the name.
  TraceFolder(const CompileOptions& options, const std::string& beside, const Globals& globals);

  // The stages up to `last`. A file of an earlier trace that is not written again is removed.
  void write(const Compilation& made, Stage last) const;
  // "": there is none.
  const std::string& path() const { return path_; }

 private:
  struct File {
    std::string name, text;
  };
  std::vector<File> stages(const Compilation& made, Stage last) const;

  bool enabled_, diagram_, rewrites_, kernels_;
  std::string path_, command_, title_;
};

}  // namespace stridec::cli
