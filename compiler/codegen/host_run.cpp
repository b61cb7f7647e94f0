#include "compiler/codegen/host_run.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "compiler/base/check.h"
#include "compiler/base/printable.h"
#include "compiler/base/text.h"
#include "compiler/loop/capacity.h"
#include "compiler/loop/context_sizes.h"
#include "compiler/loop/user_kernel.h"
#include "compiler/loop/walk.h"
#include "compiler/schedule/analysis/effects.h"
#include "compiler/schedule/memory/memory_plan.h"
#include "compiler/sym/text.h"

namespace stridec::codegen {
using sym::Expr;

// ---- names and messages

std::string line_comment(std::string_view text) {
  return cat("// ", printable(text), text.ends_with('\\') ? "." : "");
}

HostNames::HostNames(const loop::Program& program) : program_(program), threads_(loop::threads_of(program)) {
  for (size_t i = 0; i < program.symbols.size(); ++i) index_[program.symbols[i].var] = i;
}

size_t HostNames::index(Expr symbol) const {
  auto found = index_.find(symbol);
  STRIDEC_CHECK(found != index_.end(), cat("symbol ", symbol, " is not in the program's table"));
  return found->second;
}

std::string HostNames::name(Expr symbol) const {
  return symbol == threads_ ? "threads" : cat("v[", index(symbol), "]");
}

std::string HostNames::text(Expr e, const sym::Facts& facts) const {
  return sym::to_c(e, [&](Expr var) { return name(var); }, facts);
}

std::string HostNames::checked_text(Expr e, const sym::Facts& facts) const {
  return sym::to_checked_c(e, [&](Expr var) { return name(var); }, facts);
}

bool HostNames::from_data(Expr e) const { return !unknown(e).empty(); }

std::string HostNames::unknown(Expr e) const {
  std::string out;
  for (const Expr& var : sym::free_vars(e))
    if (var != threads_ && !loop::is_bound_before_run(program_, program_.symbols[index(var)]))
      out += cat(out.empty() ? "(" : " || ", name(var), " < 0");
  return out.empty() ? out : out + ")";
}

size_t HostMessages::number(Kind kind, const std::string& text) {
  const auto [found, fresh] = numbers.try_emplace({kind, text}, list.size());
  if (fresh) list.emplace_back(kind, text);
  return found->second;
}

size_t HostMessages::callback(const std::string& name) {
  const auto found = std::ranges::find(callbacks, name);
  if (found != callbacks.end()) return static_cast<size_t>(found - callbacks.begin());
  callbacks.push_back(name);
  return callbacks.size() - 1;
}

// ---- one variant

HostRun::HostRun(const HostVariant& variant, std::string suffix, HostMessages& messages,
                 const loop::ModuleValues& states, const HostOptions& options, size_t first_step)
    : variant_(variant),
      program_(*variant.program),
      suffix_(std::move(suffix)),
      messages_(messages),
      states_(states),
      options_(options),
      first_step_(first_step),
      names_(program_),
      facts_(program_.facts),
      side_facts_(program_.facts) {
  for (const loop::Symbol& s : program_.symbols)
    if (loop::is_bound_before_run(program_, s)) known_.insert(s.var);
}

void HostRun::line(const std::string& text) {
  out_ += std::string(static_cast<size_t>(depth_) * 2, ' ') + text + '\n';
}

// Sizes over the inputs' symbols are evaluated once, at the top of the function.
std::string HostRun::c(Expr e) {
  if (e.is_const() || names_.from_data(e)) return names_.text(e, facts_);
  if (e.is_var()) return names_.text(e, facts_);
  if (const auto found = evaluated_.find(e); found != evaluated_.end()) return cat("e[", found->second, "]");
  // The conditions that select a memory plan are evaluated once for all offsets.
  const std::string text = e.op() == sym::Op::kSelect
                               ? cat(c(e.arg(0)), " ? ", c(e.arg(1)), " : ", c(e.arg(2)))
                               : names_.text(e, facts_);
  const size_t number = evaluated_.size();
  evaluated_[e] = number;
  evaluations_ += cat("  e[", number, "] = ", text, ";\n");
  return cat("e[", number, "]");
}

std::string HostRun::pointer(loop::BufferId id) {
  const loop::Buffer& b = program_[id];
  switch (b.storage) {
    case loop::Storage::kInput: return cat("(void*)run->inputs[", b.ordinal, "]");
    case loop::Storage::kOutput: return cat("run->outputs[", b.ordinal, "]");
    case loop::Storage::kState: return cat("run->states[", states_.index_of(program_, id), "]");
    case loop::Storage::kParameter:
      return cat("(void*)(run->", b.replaceable ? "parameters" : "weights", " + ", c(b.offset), ")");
    case loop::Storage::kArena:
      if (const auto own = allocated_.find(id); own != allocated_.end()) return own->second;
      STRIDEC_CHECK(!b.offset.is_const(-1), cat("'", b.name, "' is used before its size is known"));
      return cat("run->arena + ", c(b.offset));
    case loop::Storage::kLocal: break;
  }
  STRIDEC_CHECK(false, cat("buffer '", b.name, "' is local to a nest"));
}

// The next launch that reads weights in panels, if at most one other launch is in between: more would evict
// the prefetched data from the cache.
const Kernel* HostRun::reader_ahead() const {
  constexpr size_t kOthers = 1;
  for (size_t i = 0; i < ahead_.size() && i <= kOthers; ++i) {
    const auto* next = std::get_if<loop::Launch>(&ahead_[i].node);
    if (!next) return nullptr;
    const Kernel& kernel = *variant_.launches.at(next->nest).kernel;
    if (kernel.weights) return names_.from_data(kernel.tasks) ? nullptr : &kernel;
  }
  return nullptr;
}

void HostRun::launch(const LaunchedKernel& launched, const std::string& name) {
  const Kernel& kernel = *launched.kernel;
  const size_t step = first_step_ + step_names.size();
  step_names.push_back(name);
  line(cat("{  ", line_comment(name)));
  ++depth_;
  if (!kernel.buffers.empty())
    line(cat("void* const b[] = {",
             join(kernel.buffers, ", ", [&](loop::BufferId id) { return pointer(id); }), "};"));
  std::vector<std::string> sizes;
  for (const Expr& e : kernel.sizes) sizes.push_back(c(e));
  for (const std::string& sentence : kernel.messages)
    sizes.push_back(cat(messages_.number(HostMessages::kData, sentence)));
  if (!sizes.empty()) line(cat("const int64_t z[] = {", join(sizes, ", "), "};"));
  std::string scratch = "0", stride = "0";
  if (const Expr bytes = launched.scratch.stride(); launched.scratch.offset.is_const(-1)) {
    // Launches run in sequence, so one slot serves all of them.
    if (scratch_slot_ < 0) scratch_slot_ = slot_count++;
    line("char* scratch;");
    allocate("scratch", cat(scratch_slot_), bytes, "threads");
    scratch = "scratch", stride = c(bytes);
  } else if (!bytes.is_const(0)) {
    scratch = cat("run->arena + ", c(launched.scratch.offset)), stride = c(bytes);
  }
  // As it is: a grain of a dozen quotients takes a quarter of a second to simplify, and becomes no shorter.
  const auto grain_of = [&](const Kernel& k) {
    return c(sym::max(1, sym::floordiv(k.grain, options_.thread_cost)));
  };
  const Kernel* next = kernel.asks_ahead ? reader_ahead() : nullptr;
  if (next) {
    const WeightPanels& w = *next->weights;
    line(cat("const stridec_abi_ahead ahead = {(const char*)", pointer(w.buffer), ", ", c(w.bytes), ", ",
             c(w.panels), ", ", c(w.run), ", ", c(next->tasks), ", ", grain_of(*next), ", run->threads};"));
  }
  line(cat("const stridec_abi_args a = {", kernel.buffers.empty() ? "0" : "b", ", ",
           sizes.empty() ? "0" : "z", ", ", scratch, ", ", stride, ", run->failures, ", next ? "&ahead" : "0",
           "};"));
  line(cat("const int64_t tasks = ", c(kernel.tasks), ", grain = ", grain_of(kernel), ";"));
  // A single part needs no call of the runtime.
  line("if (run->direct && (tasks <= grain || run->threads == 1)) {");
  line(cat("  if (tasks > 0) ", launched.symbol, "(&a, 0, tasks, 0);"));
  line("  if (run->failures->code) return 1;");
  line(cat("} else if (run->launch(run, ", launched.symbol, ", &a, tasks, grain, ", step, ", ",
           kernel.movable ? 1 : 0, ")) {"));
  line("  return 1;");
  line("}");
  --depth_;
  line("}");
}

void HostRun::launch_device(const DeviceKernel& kernel, int number, int64_t step, bool concurrent) {
  const Kernel& code = kernel.code;
  std::vector<std::string> words;
  for (loop::BufferId id : code.buffers) words.push_back(cat("(int64_t)(", pointer(id), ")"));
  for (const Expr& e : code.sizes) words.push_back(c(e));
  for (const std::string& sentence : code.messages)
    words.push_back(cat(messages_.number(HostMessages::kData, sentence)));
  if (!words.empty()) line(cat("const int64_t w[] = {", join(words, ", "), "};"));
  if (!kernel.maps.empty()) {
    auto list = [](const auto& items, const std::function<std::string(size_t)>& text) {
      std::string out = "{";
      for (size_t i = 0; i < items.size(); ++i) out += cat(i ? ", " : "", text(i));
      return out + "}";
    };
    line("const stridec_abi_tensor_map t[] = {");
    for (const TensorMap& map : kernel.maps) {
      auto sizes = [&](const std::vector<Expr>& items) {
        return list(items, [&](size_t i) { return c(items[i]); });
      };
      auto numbers = [&](const std::vector<int>& items) {
        return list(items, [&](size_t i) { return cat(items[i]); });
      };
      const std::vector<int> ones(map.dims.size(), 1);
      line(cat("  {(char*)(", pointer(map.buffer), ") + ", c(map.offset), ", ", map.lower.empty() ? 0 : 1,
               ", ", driver_dtype(map), ", ", map.dims.size(), ", ", driver_swizzle(map), ", ",
               driver_promotion(map), ", ", numbers(map.box), ", ",
               numbers(map.element_strides.empty() ? ones : map.element_strides), ", ", numbers(map.lower),
               ", ", numbers(map.upper), ", ", sizes(map.dims), ", ", sizes(map.strides), "},"));
    }
    line("};");
  }
  line(cat("const stridec_abi_device_launch l = {", number, ", ", step, ", {", c(kernel.grid[0]), ", ",
           c(kernel.grid[1]), ", ", c(kernel.grid[2]), "}, ", c(kernel.shared_bytes), ", ",
           c(kernel.workspace_bytes), ", ", c(kernel.counter_bytes), ", ", words.empty() ? "0" : "w", ", ",
           kernel.maps.empty() ? "0" : "t", ", ", words.size(), ", ", kernel.maps.size(), ", ",
           kernel.fails ? 1 : 0, ", ", concurrent ? 1 : 0, "};"));
  line("if (run->launch_device(run, &l)) return 1;");
}

// Launches the first choice whose condition holds.
void HostRun::launch_device(const LaunchedNest& launched, const std::string& name, bool concurrent) {
  const size_t step = step_names.size();
  step_names.push_back(name);
  const std::vector<DeviceChoice>& choices = launched.nest->choices;
  const bool joins = group_.add(*launched.nest, concurrent);
  for (size_t i = 0; i < choices.size(); ++i) {
    const DeviceChoice& choice = choices[i];
    std::string condition = choice.condition.is_const(1) ? "" : cat("(", c(choice.condition), ")");
    std::string all;
    for (loop::BufferId id : choice.aligned)
      all += cat(all.empty() ? "" : " | ", "(int64_t)(", pointer(id), ")");
    if (!all.empty()) condition += cat(condition.empty() ? "" : " && ", "((", all, ") & 15) == 0");
    line(cat(i ? "else " : "", condition.empty() ? "{" : cat("if (", condition, ") {"),
             i ? "" : cat("  ", line_comment(name))));
    ++depth_;
    for (size_t k = 0; k < choice.launches.size(); ++k) {
      line("{");
      ++depth_;
      launch_device(choice.launches[k], launched.kernels[i][k], k == 0 ? static_cast<int64_t>(step) : -1,
                    joins);
      --depth_;
      line("}");
    }
    --depth_;
    line("}");
    if (condition.empty()) break;
  }
}

bool HostRun::is_known(Expr e) const {
  const std::vector<Expr> vars = sym::free_vars(e);
  return std::all_of(vars.begin(), vars.end(), [&](Expr v) { return known_.count(v) > 0; });
}

// A size simplified by the conditions of the enclosing Ifs, if that is needed to know it at this place.
Expr HostRun::here(Expr e) const { return is_known(e) ? e : sym::simplify(e, side_facts_); }

// An output with data-dependent dims is allocated before the first step that writes it. If its dims are known
// before a loop, the loop counts as that step.
void HostRun::resize(size_t output) {
  if (!resized_.insert(output).second) return;
  const loop::Buffer& b = program_[program_.outputs[output]];
  line("{");
  line(cat("  const int64_t d[] = {", join(b.shape, ", ", [&](Expr e) { return c(here(e)); }), "};"));
  line(cat("  if (!run->resize_output(run, ", output, ", d)) return 1;"));
  line("}");
}

void HostRun::resize(const loop::Step& step) {
  std::set<loop::BufferId> written;
  loop::for_each_step({step}, [&](const loop::Step& inner) {
    for (loop::BufferId id : schedule::effects_of(program_, inner).writes) written.insert(id);
  });
  for (loop::BufferId id : written) {
    const loop::Buffer& b = program_[id];
    if (b.storage != loop::Storage::kOutput) continue;
    if (!std::all_of(b.shape.begin(), b.shape.end(), [&](Expr e) { return is_known(here(e)); })) continue;
    if (std::any_of(b.shape.begin(), b.shape.end(), [&](Expr e) { return names_.from_data(e); }))
      resize(static_cast<size_t>(b.ordinal));
  }
}

// Sets `name` to `bytes` bytes of a slot's memory, times `copies`. Data-dependent sizes may overflow 64 bits.
void HostRun::allocate(const std::string& name, const std::string& slot, Expr bytes,
                       const std::string& copies) {
  line("int32_t overflow = 0;");
  line(cat("int64_t bytes = ", names_.checked_text(bytes, facts_), ";"));
  if (!copies.empty()) line(cat("overflow |= __builtin_mul_overflow(bytes, (int64_t)", copies, ", &bytes);"));
  line(cat("if (!(", name, " = (char*)run->allocate(run, ", slot, ", overflow ? -1 : bytes))) return 1;"));
}

// Allocates buffers that are not in the arena as soon as their sizes are known. For a loop that is before the
// loop, so that they keep what earlier iterations wrote.
void HostRun::allocate(const loop::Step& step) {
  if (std::holds_alternative<loop::TiledGroup>(step.node)) {
    for (loop::BufferId id : std::get<loop::TiledGroup>(step.node).own)
      allocated_[id] = "0";  // in its kernel's scratch
  }
  auto place = [&](loop::BufferId id) {
    const loop::Buffer& b = program_[id];
    if (b.storage != loop::Storage::kArena || !b.offset.is_const(-1) || allocated_.count(id)) return;
    const Expr bytes = here(schedule::extent_in_elements(b) * byte_size(b.dtype));
    if (!is_known(bytes)) return;
    // One slot for both sides of an If, which may both write it.
    const auto [slot, fresh] = slots_.try_emplace(id, slot_count);
    slot_count += fresh;
    const std::string name = cat("m[", slot->second, "]");
    line("{");
    ++depth_;
    allocate(name, cat(slot->second), bytes);
    --depth_;
    line("}");
    allocated_[id] = name;
  };
  loop::for_each_step({step}, [&](const loop::Step& inner) {
    const auto effects = schedule::effects_of(program_, inner);
    for (loop::BufferId id : effects.reads) place(id);
    for (loop::BufferId id : effects.writes) place(id);
  });
}

void HostRun::bound(Expr symbol) {
  known_.insert(symbol);
  for (const sym::Guard& guard : program_.guards) {
    if (!sym::depends_on(guard.condition, symbol)) continue;
    if (!is_known(guard.condition)) continue;
    std::string list;
    for (size_t i = 0; i < 4; ++i) list += cat(", ", i < guard.values.size() ? c(guard.values[i]) : "0");
    line(cat("if (!(", c(guard.condition), ")) { stridec_abi_record(run->failures, ",
             messages_.number(HostMessages::kGuard, guard.sentence), list, "); return 1; }"));
  }
}

void HostRun::bind(const loop::BindSymbol& bind) {
  const loop::Buffer& b = program_[bind.buffer];
  const char* type = "signed char";
  switch (b.dtype) {
    case DType::kI16: type = "short"; break;
    case DType::kI32: type = "int"; break;
    case DType::kI64:
    case DType::kU64: type = "long"; break;
    case DType::kU16: type = "unsigned short"; break;
    case DType::kU32: type = "unsigned"; break;
    case DType::kBool:
    case DType::kU2:
    case DType::kU4:
    case DType::kU8: type = "unsigned char"; break;
    default: break;
  }
  const std::string v = cat("v[", names_.index(bind.symbol), "]");
  line(variant_.gpu ? cat("{ ", type, " x; if (run->read(run, &x, ", pointer(bind.buffer),
                          ", sizeof x)) return 1; ", v, " = x; }")
                    : cat("{ ", type, " x; __builtin_memcpy(&x, ", pointer(bind.buffer), ", sizeof x); ", v,
                          " = x; }"));
  std::string values;
  for (size_t i = 0; i < bind.values.size(); ++i) values += ", " + c(bind.values[i]);
  for (size_t i = bind.values.size(); !bind.values.empty() && i < 4; ++i) values += ", 0";
  if (bind.values.empty()) values = cat(", ", v, ", ", c(bind.lower), ", ", c(bind.upper), ", 0");
  line(cat("if (!(", c(bind.lower), " <= ", v, " && ", v, " <= ", c(bind.upper),
           ")) { stridec_abi_record(run->failures, ", messages_.number(HostMessages::kData, bind.sentence),
           values, "); return 1; }"));
  bound(bind.symbol);
}

// Each growing buffer has two slots and moves between them. A variable of the generated code says which one
// it is in.
std::vector<HostRun::Growing> HostRun::growing_of(Expr capacity) {
  std::vector<Growing> out;
  for (loop::BufferId id : loop::growing_buffers(program_, capacity)) {
    const auto own = allocated_.find(id);
    if (own == allocated_.end()) continue;  // the loop does not use it
    STRIDEC_CHECK(!variant_.gpu, cat("'", program_[id].name, "' grows"));
    const auto [second, fresh] = second_slots_.try_emplace(id, slot_count);
    slot_count += fresh;
    const int slot = slots_.at(id);
    out.push_back({.memory = own->second,
                   .slot = cat("slot", depth_, "_", out.size()),
                   .slots = slot + second->second,
                   .bytes = schedule::extent_in_elements(program_[id]) * byte_size(program_[id].dtype)});
    line(cat("int32_t ", out.back().slot, " = ", slot, ";"));
  }
  return out;
}

void HostRun::double_capacity(const std::string& counter, Expr symbol, const std::vector<Growing>& growing) {
  const std::string capacity = cat("v[", names_.index(symbol), "]");
  line(cat("if (", counter, " == ", capacity, ") {"));
  ++depth_;
  for (size_t i = 0; i < growing.size(); ++i)
    line(cat("const int64_t held", i, " = ", c(growing[i].bytes), ";"));
  line(cat(capacity, " *= 2;"));
  for (size_t i = 0; i < growing.size(); ++i) {
    const Growing& each = growing[i];
    line("{");
    ++depth_;
    line(cat(each.slot, " = ", each.slots, " - ", each.slot, ";"));
    line("char* more;");
    allocate("more", each.slot, each.bytes);
    line(cat("__builtin_memcpy(more, ", each.memory, ", (unsigned long)held", i, ");"));
    line(cat(each.memory, " = more;"));
    --depth_;
    line("}");
  }
  --depth_;
  line("}");
}

void HostRun::loop(const loop::While& loop) {
  const std::string i = cat("v[", names_.index(loop.counter), "]"), n = cat("n", depth_);
  line("{");
  ++depth_;
  const auto capacity = loop::capacity_of(program_, loop);
  if (!capacity) line(cat("const int64_t ", n, " = ", c(loop.trip_count), ";"));
  const std::vector<Growing> growing = capacity ? growing_of(*capacity) : std::vector<Growing>();
  const bool on_device = loop.condition.valid() && variant_.gpu;
  const std::string condition = loop.condition.valid() && !on_device
                                    ? cat(" && *(const unsigned char*)(", pointer(loop.condition), ")")
                                    : "";
  line(cat("for (", i, " = 0; ", capacity ? "1" : cat(i, " < ", n), condition, "; ++", i, ") {"));
  ++depth_;
  if (on_device) {
    line(cat("unsigned char go; if (run->read(run, &go, ", pointer(loop.condition), ", 1)) return 1;"));
    line("if (!go) break;");
  }
  if (capacity) double_capacity(i, *capacity, growing);
  const auto before = resized_;
  const auto allocated = allocated_;
  const auto known = known_;
  known_.insert(loop.counter);
  steps(loop.body);
  resized_ = before;
  allocated_ = allocated;
  known_ = known;
  --depth_;
  line("}");
  line(cat("v[", names_.index(loop.iterations), "] = ", i, ";"));
  --depth_;
  line("}");
  bound(loop.iterations);
}

// One side of an If. Of a size that is select(condition, a, b) it knows the side's own operand.
void HostRun::side(const loop::Steps& list, Expr condition) {
  const sym::Facts facts = side_facts_;
  side_facts_.assume(condition);
  ++depth_;
  steps(list);
  --depth_;
  side_facts_ = facts;
}

void HostRun::branch(const loop::If& s) {
  const auto resized = resized_;
  const auto allocated = allocated_;
  const auto known = known_;
  line(cat("if (", c(s.condition), ") {"));
  side(s.then_steps, s.condition);
  const auto then_resized = std::exchange(resized_, resized);
  const auto then_allocated = std::exchange(allocated_, allocated);
  const auto then_known = std::exchange(known_, known);
  if (!s.else_steps.empty()) {
    line("} else {");
    side(s.else_steps, sym::logical_not(s.condition));
  }
  line("}");
  // After the If, outputs and buffers that both sides have sized are done. Symbols that either side has bound
  // are known: a later expression reads them only in a select on that side's condition.
  std::erase_if(resized_, [&](size_t output) { return then_resized.count(output) == 0; });
  std::erase_if(allocated_, [&](const auto& buffer) { return then_allocated.count(buffer.first) == 0; });
  known_.insert(then_known.begin(), then_known.end());
}

void HostRun::set_capacities(const loop::Steps& list) {
  for (Expr capacity : loop::capacities_of(program_, list)) {
    line(cat("v[", names_.index(capacity), "] = ", loop::kFirstCapacity, ";"));
    known_.insert(capacity);
  }
}

void HostRun::steps(const loop::Steps& list) {
  set_capacities(list);
  for (size_t at = 0; at < list.size(); ++at) step_of(list, at);
}

void HostRun::step_of(const loop::Steps& list, size_t at) {
  ahead_ = std::span(list).subspan(at + 1);
  step(list[at]);
}

void HostRun::step(const loop::Step& step) {
  allocate(step);
  resize(step);
  std::visit(loop::Overloaded{
                 [&](const loop::Launch& s) {
                   if (variant_.gpu)
                     launch_device(variant_.device_nests.at(s.nest), program_[s.nest].name, s.concurrent);
                   else
                     launch(variant_.launches.at(s.nest), program_[s.nest].name);
                 },
                 [&](const loop::BindSymbol& s) { bind(s); },
                 [&](const loop::If& s) { branch(s); },
                 [&](const loop::While& s) { loop(s); },
                 [&](const loop::TiledGroup& s) { launch(variant_.launches.at(&s), s.name); },
                 [&](const loop::Call& s) {
                   if (loop::is_callback(s.routine))
                     call_application(s);
                   else if (variant_.gpu)
                     launch_device(variant_.device_routines.at(&s), loop::label_of(s.routine), false);
                   else
                     launch(variant_.launches.at(&s), loop::label_of(s.routine));
                 },
                 [&](const loop::Copy&) { STRIDEC_CHECK(false, "copies are launches by now"); },
             },
             step.node);
}

// Long programs are split into several functions, because some LLVM passes are superlinear in the size of a
// function that launches thousands of kernels.
std::string HostRun::pieces(const std::string& threads) {
  constexpr size_t kSteps = 128;
  if (program_.steps.size() <= kSteps) {
    steps(program_.steps);
    return "";
  }
  std::string functions, calls;
  set_capacities(program_.steps);
  for (size_t at = 0, piece = 0; at < program_.steps.size(); ++piece) {
    for (const size_t end = std::min(at + kSteps, program_.steps.size()); at < end; ++at)
      step_of(program_.steps, at);
    const std::string name = cat("run_", suffix_, "_", piece);
    functions += cat(
        "static __attribute__((noinline)) int32_t ", name,
        "(stridec_abi_run* run, int64_t* v, const int64_t* e, char** m) {\n  (void)v, (void)e, (void)m;\n",
        threads, out_, "  return 0;\n}\n");
    calls += cat("  if (", name, "(run, v, e, m)) return 1;\n");
    out_.clear();
  }
  out_ = calls;
  return functions;
}

std::string HostRun::text() {
  const std::string threads = "  const int64_t threads = run->threads;\n  (void)threads;\n",
                    functions = pieces(threads);
  for (size_t o = 0; o < program_.outputs.size(); ++o) {
    const loop::Buffer& b = program_[program_.outputs[o]];
    if (std::any_of(b.shape.begin(), b.shape.end(), [&](Expr e) { return names_.from_data(e); })) resize(o);
  }
  std::string externs;
  std::set<std::string> symbols;
  for (const auto& [key, kernel] : variant_.launches) symbols.insert(kernel.symbol);
  for (const std::string& symbol : symbols)
    externs += cat("extern \"C\" __attribute__((visibility(\"hidden\"))) void ", symbol,
                   "(const stridec_abi_args*, int64_t, int64_t, int32_t);\n");
  Expr scratch = 0, counters = 0;
  // Data-dependent sizes are allocated during the run.
  auto reserve = [&](Expr& most, Expr bytes) {
    if (!names_.from_data(bytes)) most = sym::max(most, bytes);
  };
  auto reserve_nest = [&](const LaunchedNest& launched) {
    for (const DeviceChoice& choice : launched.nest->choices)
      for (const DeviceKernel& kernel : choice.launches) {
        reserve(scratch, kernel.workspace_bytes);
        reserve(counters, kernel.counter_bytes);
      }
  };
  for (const auto& [id, nest] : variant_.device_nests) reserve_nest(nest);
  for (const auto& [call, nest] : variant_.device_routines) reserve_nest(nest);
  auto size_function = [&](const char* name, const char* parameters, Expr e) {
    return cat("static int64_t ", name, "_", suffix_, "(", parameters,
               ") {\n  (void)v;\n  int32_t overflow = 0;\n  const int64_t bytes = ",
               names_.checked_text(e, facts_), ";\n  return overflow ? -1 : bytes;\n}\n");
  };
  return externs + size_function("workspace", "const int64_t* v, int64_t threads", program_.arena_bytes) +
         (variant_.gpu ? size_function("scratch", "const int64_t* v", scratch) +
                             size_function("counters", "const int64_t* v", counters)
                       : "") +
         functions +
         cat("static int32_t run_", suffix_,
             "(stridec_abi_run* run) {\n  int64_t* const v = run->symbols;\n  int64_t e[",
             evaluated_.size() + 1, "];\n  char* m[", slot_count + 1,
             "] = {};\n  (void)v, (void)e, (void)m;\n", threads, evaluations_, out_, "  return 0;\n}\n");
}

}  // namespace stridec::codegen
