#include "compiler/codegen/cpu/run_user_kernel.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "compiler/base/diagnostic.h"
#include "compiler/base/sha256.h"
#include "compiler/base/strided.h"
#include "compiler/base/target.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cpu/jit.h"
#include "compiler/codegen/cpu/kernel_object.h"
#include "compiler/codegen/user_kernel.h"

namespace stridec::codegen::cpu {
namespace {

using loop::RoutineBuffer;
using loop::UserArguments;
using loop::UserKernel;
using Function = int (*)(void* const* data, const int64_t* sizes, char* scratch, int64_t begin, int64_t end);

// The compiled functions of this process, by their texts.
Function function_of(const UserKernel& kernel) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Jit>> known;
  const std::lock_guard lock(mutex);
  const CpuTarget target = cpu_target("native");
  const std::string text = user_kernel_c(kernel, "user_kernel", target.f16c);
  std::shared_ptr<Jit>& jit = known[sha256(text.data(), text.size())];
  if (!jit) {
    std::string object;
    try {
      object = compile_to_object("kernel.c", text, {.cpu = target.name, .tune = target.tune, .c = true});
    } catch (const Error& error) {
      // Commands that list problems show their messages alone.
      const auto first = std::ranges::find_if(error.diagnostic.notes, [](const std::string& line) {
        return line.find(": error: ") != std::string::npos ||
               line.find(": fatal error: ") != std::string::npos;
      });
      throw Error({.kind = ErrorKind::kMalformed,
                   .code = "bad-operator",
                   .message = cat(kernel.name, ": the text does not compile: ",
                                  first == error.diagnostic.notes.end() ? kernel.c->place : *first),
                   .where = {},
                   .notes = error.diagnostic.notes,
                   .help = "docs/operators.md says what a kernel in C may use"});
    }
    if (const std::string problem = problem_of_kernel_object(object); !problem.empty())
      throw Error({.kind = ErrorKind::kMalformed,
                   .code = "bad-operator",
                   .message = cat(kernel.c->place, ": ", kernel.name, ": the text ", problem),
                   .help = "docs/operators.md says what a kernel in C may use"});
    auto made = std::make_shared<Jit>();
    made->add_object(object);
    jit = std::move(made);
  }
  return reinterpret_cast<Function>(jit->lookup("user_kernel"));
}

size_t page() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Most wrong indices reach less far. With a smaller guard they would reach another tensor, and nothing would
// fail. Pages without access cost addresses alone.
constexpr size_t kGuardBytes = size_t{64} << 20;

// Memory that the child shares with this process, between pages without access.
class Guarded {
 public:
  Guarded(size_t bytes, bool at_start) : bytes_(bytes) {
    const size_t inner = (bytes + page() - 1) / page() * page();
    guard_ = kGuardBytes / page() * page();
    mapped_ = inner + 2 * guard_;
    void* memory = mmap(nullptr, mapped_, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED ||
        (inner > 0 && mprotect(static_cast<char*>(memory) + guard_, inner, PROT_READ | PROT_WRITE) != 0))
      fail(ErrorKind::kOverBudget, "out-of-memory", cat("memory ran out: a tensor takes ", bytes, " bytes"));
    base_ = static_cast<uint8_t*>(memory);
    data_ = base_ + guard_ + (at_start ? 0 : inner - bytes);
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool holds(const uint8_t* address) const { return address >= base_ && address < base_ + mapped_; }
  void protect() const { mprotect(base_ + guard_, mapped_ - 2 * guard_, PROT_READ); }

 private:
  uint8_t *base_ = nullptr, *data_ = nullptr;
  size_t bytes_, mapped_ = 0, guard_ = 0;
};

// What the child leaves.
struct Result {
  int code, signal;
  bool done;
  const uint8_t* address;  // of the access that failed
};
Result* shared_result = nullptr;  // in the child

void report_fault(int signal, siginfo_t* info, void*) {
  shared_result->signal = signal;
  shared_result->address = static_cast<const uint8_t*>(info->si_addr);
  _exit(1);
}

void catch_faults() {
  static char stack[1 << 16];
  const stack_t other{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_sigaction = report_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigaction(signal, &action, nullptr);
}

// A tensor of the call: the elements of its buffer that its strides reach.
struct Reached {
  int64_t low = 0, count = 0, elements = 0;  // count: from the lowest to the highest
  std::vector<int64_t> dims, strides;
};

class Run {
 public:
  Run(const UserKernel& kernel, std::span<const RoutineBuffer> reads, std::span<const RoutineBuffer> writes,
      const std::vector<int64_t>& arguments, const UserRunOptions& options)
      : kernel_(kernel), arguments_(arguments), options_(options), at_(kernel) {
    for (const auto& list : {reads, writes})
      for (const RoutineBuffer& buffer : list) buffers_.push_back(buffer);
  }

  void run() {
    const Function function = function_of(kernel_);
    for (size_t t = 0; t < buffers_.size(); ++t) add(t);
    const int64_t bytes = arguments_[at_.last(UserArguments::kScratchBytes)];
    const Guarded scratch((static_cast<size_t>(bytes) + 63) / 64 * 64, options_.at_start);
    std::memset(scratch.data(), options_.fill, scratch.bytes());
    call(function, scratch);
    for (size_t t = kernel_.reads.size(); t < buffers_.size(); ++t) take_back(t);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::kDoesNotFit, "kernel-failed", cat(kernel_.name, ": its kernel ", what));
  }
  std::string shown(size_t t) const {
    return cat(t < kernel_.reads.size() ? "input '" : "output '", kernel_.tensor(t).name, "' ",
               stridec::name(kernel_.tensor(t).dtype), "[",
               join(reached_[t].dims, ", ", [](int64_t dim) { return cat(dim); }), "]");
  }
  bool is_read(size_t t) const { return t < kernel_.reads.size(); }
  size_t width(size_t t) const { return static_cast<size_t>(byte_size(kernel_.tensor(t).dtype)); }

  void add(size_t t) {
    Reached r{.low = arguments_[at_.offset(t)], .count = 1, .elements = 1, .dims = {}, .strides = {}};
    for (size_t d = 0; d < kernel_.tensor(t).rank; ++d) {
      r.dims.push_back(arguments_[at_.dim(t, d)]);
      r.strides.push_back(arguments_[at_.stride(t, d)]);
      r.elements *= r.dims.back();
    }
    if (r.elements == 0) r.count = 0;
    for (size_t d = 0; d < r.dims.size() && r.elements > 0; ++d) {
      const int64_t reach = (r.dims[d] - 1) * r.strides[d];
      r.low += std::min<int64_t>(reach, 0);
      r.count += std::abs(reach);
    }
    memory_.push_back(std::make_unique<Guarded>(static_cast<size_t>(r.count) * width(t), options_.at_start));
    uint8_t* to = memory_.back()->data();
    if (r.count > 0) std::memcpy(to, from(t, r), memory_.back()->bytes());
    if (!is_read(t) && !kernel_.tensor(t).in_place)
      for_each_element(r, [&](int64_t place) {
        std::memset(to + static_cast<size_t>(place) * width(t), options_.fill, width(t));
      });
    data_.push_back(to + (arguments_[at_.offset(t)] - r.low) * static_cast<int64_t>(width(t)));
    reached_.push_back(std::move(r));
  }

  uint8_t* from(size_t t, const Reached& r) const {
    return buffers_[t].data + r.low * static_cast<int64_t>(width(t));
  }

  // Places relative to the lowest one.
  template <class Visit>
  void for_each_element(const Reached& r, const Visit& visit) const {
    int64_t first = 0;
    for (size_t d = 0; d < r.dims.size(); ++d) first -= std::min<int64_t>((r.dims[d] - 1) * r.strides[d], 0);
    for_each_place(r.dims, r.strides, first, [&](int64_t, int64_t place) { visit(place); });
  }

  void call(Function function, const Guarded& scratch) {
    const Guarded shared(sizeof(Result), true);
    auto* result = reinterpret_cast<Result*>(shared.data());
    *result = {};
    const int64_t points = arguments_[at_.last(UserArguments::kPoints)];
    const int64_t parts = kernel_.parallel ? std::min(options_.parts, points) : 1;
    const pid_t child = fork();
    if (child < 0)
      fail(ErrorKind::kOverBudget, "no-process",
           cat("cannot start a process for a kernel: ", std::strerror(errno)));
    if (child == 0) {
      shared_result = result;
      catch_faults();
      for (size_t t = 0; t < kernel_.reads.size(); ++t) memory_[t]->protect();
      for (int64_t p = 0; p < parts && result->code == 0; ++p) {
        if (options_.part >= 0 && p != options_.part) continue;
        result->code =
            function(reinterpret_cast<void* const*>(data_.data()), arguments_.data(),
                     reinterpret_cast<char*>(scratch.data()), kernel_.parallel ? points * p / parts : 0,
                     kernel_.parallel ? points * (p + 1) / parts : 1);
      }
      result->done = true;
      _exit(0);
    }
    const int status = wait_for(child);
    if (result->signal != 0) refuse(fault(*result, scratch));
    if (!result->done)
      refuse(WIFSIGNALED(status) ? cat("is ended by signal ", WTERMSIG(status))
                                 : std::string("ends its process"));
    if (result->code != 0) refuse(cat("returned ", result->code, ", which says that it failed"));
  }

  int wait_for(pid_t child) const {
    int status = 0;
    double waited = 0;
    for (;;) {
      const pid_t ended = waitpid(child, &status, options_.max_seconds > 0 ? WNOHANG : 0);
      if (ended == child || (ended < 0 && errno != EINTR)) return status;
      if (options_.max_seconds == 0) continue;
      if (waited > options_.max_seconds) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        refuse(cat("runs for more than ", options_.max_seconds, " seconds"));
      }
      const timespec pause{.tv_sec = 0, .tv_nsec = 200'000};
      nanosleep(&pause, nullptr);
      waited += 2e-4;
    }
  }

  std::string fault(const Result& result, const Guarded& scratch) const {
    if (result.signal == SIGFPE) return "divides an integer by zero";
    if (result.signal == SIGILL || result.signal == SIGTRAP)
      return "reaches what its compiler takes for unreachable";
    const auto place = [&](const Guarded& memory) {
      const uint8_t *begin = memory.data(), *end = begin + memory.bytes();
      if (result.address < begin) return cat(begin - result.address, " bytes before the start of ");
      if (result.address == end) return std::string("just past the end of ");
      return cat(result.address - end, " bytes past the end of ");
    };
    for (size_t t = 0; t < memory_.size(); ++t) {
      const Guarded& memory = *memory_[t];
      if (!memory.holds(result.address)) continue;
      if (is_read(t) && result.address >= memory.data() && result.address < memory.data() + memory.bytes())
        return cat("writes to ", shown(t));
      return cat("reads or writes ", place(memory), shown(t));
    }
    if (scratch.holds(result.address)) return cat("reads or writes ", place(scratch), "its scratch memory");
    return "reads or writes memory outside of its tensors, or its stack overflows";
  }

  void take_back(size_t t) const {
    const Reached& r = reached_[t];
    if (r.count == 0) return;
    const uint8_t* made = memory_[t]->data();
    uint8_t* to = from(t, r);
    if (r.count > r.elements) {  // between the elements are those of others
      std::vector<bool> own(static_cast<size_t>(r.count), false);
      for_each_element(r, [&](int64_t place) { own[static_cast<size_t>(place)] = true; });
      for (size_t i = 0; i < own.size(); ++i)
        if (!own[i] && std::memcmp(made + i * width(t), to + i * width(t), width(t)) != 0)
          refuse(cat("writes between the elements of ", shown(t)));
    }
    std::memcpy(to, made, memory_[t]->bytes());
  }

  const UserKernel& kernel_;
  const std::vector<int64_t>& arguments_;
  const UserRunOptions& options_;
  const UserArguments at_;
  std::vector<RoutineBuffer> buffers_;
  std::vector<Reached> reached_;
  std::vector<std::unique_ptr<Guarded>> memory_;
  std::vector<uint8_t*> data_;
};

}  // namespace

void run_user_kernel(const UserKernel& kernel, std::span<const RoutineBuffer> reads,
                     std::span<const RoutineBuffer> writes, const std::vector<int64_t>& arguments,
                     const UserRunOptions& options) {
  Run(kernel, reads, writes, arguments, options).run();
}

void check_user_kernel(const UserKernel& kernel) {
  if (kernel.c) function_of(kernel);
}

}  // namespace stridec::codegen::cpu
