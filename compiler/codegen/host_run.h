// Parts of host_text.cpp: names, messages, and the function that runs the steps of one variant.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/codegen/host.h"
#include "compiler/codegen/launch_group.h"
#include "compiler/loop/module_values.h"

namespace stridec::codegen {

// A comment to the end of its line. Names in it come from models: they may have line ends, or a backslash at
// their end.
std::string line_comment(std::string_view text);

// Maps the program's symbols to elements of an array v, and the number of threads to a variable.
class HostNames {
 public:
  explicit HostNames(const loop::Program& program);
  std::string text(sym::Expr e, const sym::Facts& facts) const;
  std::string checked_text(sym::Expr e, const sym::Facts& facts) const;  // sym::to_checked_c
  bool from_data(sym::Expr e) const;  // depends on a symbol that is bound during the run
  // A C condition: some symbol of e is not bound yet; "" if all always are.
  std::string unknown(sym::Expr e) const;
  size_t index(sym::Expr symbol) const;

 private:
  std::string name(sym::Expr symbol) const;

  const loop::Program& program_;
  sym::Expr threads_;
  std::map<sym::Expr, size_t, sym::ExprLess> index_;
};

// The message table.
struct HostMessages {
  enum Kind { kGuard, kData };
  std::vector<std::pair<Kind, std::string>> list;
  std::map<std::pair<Kind, std::string>, size_t> numbers;  // indices into the list
  size_t number(Kind kind, const std::string& text);
  std::vector<std::string> callbacks;  // names of operators that the application computes
  size_t callback(const std::string& name);
};

// workspace_<suffix>, run_<suffix>, and for a GPU scratch_<suffix> and counters_<suffix>.
class HostRun {
 public:
  HostRun(const HostVariant& variant, std::string suffix, HostMessages& messages,
          const loop::ModuleValues& states, const HostOptions& options, size_t first_step);
  std::string text();
  std::vector<std::string> step_names;
  int slot_count = 0;  // separate allocations that the run makes

 private:
  // Prints the steps to out_; returns functions that they call.
  std::string pieces(const std::string& threads);
  std::string c(sym::Expr e);
  std::string pointer(loop::BufferId id);
  void line(const std::string& text);
  void set_capacities(const loop::Steps& steps);
  void steps(const loop::Steps& steps);
  void step_of(const loop::Steps& steps, size_t at);
  void step(const loop::Step& step);
  void launch(const LaunchedKernel& kernel, const std::string& name);
  const Kernel* reader_ahead() const;
  void call_application(const loop::Call& call);
  void launch_device(const LaunchedNest& nest, const std::string& name, bool concurrent);
  void launch_device(const DeviceKernel& kernel, int number, int64_t step, bool concurrent);
  void bind(const loop::BindSymbol& bind);
  void bound(sym::Expr symbol);  // prints the guards that were waiting for the symbol
  void loop(const loop::While& loop);
  void branch(const loop::If& branch);
  void side(const loop::Steps& steps, sym::Expr condition);
  bool is_known(sym::Expr e) const;
  sym::Expr here(sym::Expr e) const;
  void resize(const loop::Step& step);
  void resize(size_t output);
  void allocate(const loop::Step& step);
  void allocate(const std::string& name, const std::string& slot, sym::Expr bytes,
                const std::string& copies = {});
  // A buffer that grows with a loop.
  struct Growing {
    std::string memory, slot;  // variables: its address and the slot that it is in
    int slots;                 // sum of its two slots
    sym::Expr bytes;
  };
  std::vector<Growing> growing_of(sym::Expr capacity);
  void double_capacity(const std::string& counter, sym::Expr capacity, const std::vector<Growing>& growing);

  const HostVariant& variant_;
  const loop::Program& program_;
  std::string suffix_;
  HostMessages& messages_;
  const loop::ModuleValues& states_;
  const HostOptions& options_;
  size_t first_step_;  // step numbers below belong to other programs of the variant
  HostNames names_;
  sym::Facts facts_;
  // With the conditions of the Ifs around the place. Size expressions are evaluated before them.
  sym::Facts side_facts_;
  std::string out_;
  int depth_ = 1;
  std::span<const loop::Step> ahead_;  // the steps that follow the current one unconditionally
  std::set<size_t> resized_;
  LaunchGroup group_;
  int scratch_slot_ = -1;                            // for kernels whose scratch the run allocates
  std::map<loop::BufferId, std::string> allocated_;  // buffers allocated outside the arena
  std::map<loop::BufferId, int> slots_;              // of all buffers that have been in allocated_
  std::map<loop::BufferId, int> second_slots_;       // of buffers that grow with a loop
  std::set<sym::Expr, sym::ExprLess> known_;         // symbols that are bound at this point
  // Size expressions over the inputs' symbols, evaluated once per run: indices into an array e.
  std::map<sym::Expr, size_t, sym::ExprLess> evaluated_;
  std::string evaluations_;
};

}  // namespace stridec::codegen
