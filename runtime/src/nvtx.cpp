#include "nvtx.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

// Weak: before glibc 2.34 they are not in libc.so.6. Applications that tools look into have libdl.
extern "C" void* dlopen(const char*, int) __attribute__((weak));
extern "C" void* dlsym(void*, const char*) __attribute__((weak));

namespace stridec::runtime {
namespace {

// The interface between NVTX's headers and a tool (nvtx3/nvtxDetail/nvtxTypes.h): the tool asks for a table
// of each module, and writes its functions to the places that the table points to.
using Entry = void (*)();
constexpr uint32_t kVersion = 3, kModules = 7, kCore2 = 5, kPlaces = 16;
constexpr uint32_t kSizes[kModules] = {0, 16, 9, 15, 7, 16, 7};  // of the modules' tables
enum : uint32_t { kRangePush = 4, kRangePop = 5, kRegisterString = 10, kDomainCreate = 12 };
enum : uint32_t { kCallbacks = 1, kVersionInfo = 3 };

struct Attributes {
  uint16_t version = kVersion, size = sizeof(Attributes);
  uint32_t category = 0;
  int32_t color_type = 0;
  uint32_t color = 0;
  int32_t payload_type = 0, reserved = 0;
  uint64_t payload = 0;
  int32_t message_type;  // 1: text; 3: a registered string
  const void* message;
};
static_assert(sizeof(Attributes) == 48);

Entry places[kModules][kPlaces];
Entry* tables[kModules][kPlaces + 1];

int give_table(uint32_t module, Entry*** table, uint32_t* size) {
  if (module == 0 || module >= kModules) return 0;
  for (uint32_t i = 0; i < kSizes[module]; ++i) tables[module][i] = &places[module][i];
  if (table) *table = tables[module];
  if (size) *size = kSizes[module];
  return 1;
}

void take_version(uint32_t) {}

const void* export_table(uint32_t id) {
  static const struct {
    size_t size = sizeof(*this);
    int (*give)(uint32_t, Entry***, uint32_t*) = give_table;
  } callbacks;
  static const struct {
    size_t size = sizeof(*this);
    uint32_t version = kVersion, reserved = 0;
    void (*take)(uint32_t) = take_version;
  } version;
  if (id == kCallbacks) return &callbacks;
  return id == kVersionInfo ? &version : nullptr;
}

enum State : uint64_t { kUnknown, kLoading, kAttached, kAbsent };
std::atomic<uint64_t> state;  // a State; of kLoading, with the number of the process that loads the tool
constexpr int kStateBits = 2;
void* domain;

template <class F>
F* function(uint32_t place) {
  return reinterpret_cast<F*>(places[kCore2][place]);
}

State load() {
  const char* const path = secure_getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path || !dlopen || !dlsym) return kAbsent;
  void* const tool = dlopen(path, 1 /* RTLD_LAZY */);
  if (!tool) return kAbsent;
  using Initialize = int(const void* (*)(uint32_t));
  auto* const initialize = reinterpret_cast<Initialize*>(dlsym(tool, "InitializeInjectionNvtx2"));
  if (!initialize || !initialize(export_table)) return kAbsent;
  if (!places[kCore2][kRangePush] || !places[kCore2][kRangePop]) return kAbsent;
  if (auto* const create = function<void*(const char*)>(kDomainCreate)) domain = create("stridec");
  return kAttached;
}

}  // namespace

bool nvtx_attached() {
  const uint64_t loading = kLoading | static_cast<uint64_t>(getpid()) << kStateBits;
  uint64_t now = kUnknown;
  if (state.compare_exchange_strong(now, loading)) state.store(load(), std::memory_order_release);
  while ((now = state.load(std::memory_order_acquire)) > kAbsent) {
    // A child that was forked meanwhile does not have the thread that loads the tool.
    if (now != loading) state.compare_exchange_strong(now, kAbsent);
    syscall(SYS_sched_yield);
  }
  return now == kAttached;
}

void* nvtx_register(const char* name) {
  auto* const add = function<void*(void*, const char*)>(kRegisterString);
  return add ? add(domain, name) : nullptr;
}

void nvtx_push(void* handle, const char* name) {
  const Attributes attributes = {.message_type = handle ? 3 : 1, .message = handle ? handle : name};
  function<int(void*, const Attributes*)>(kRangePush)(domain, &attributes);
}

void nvtx_pop() { function<int(void*)>(kRangePop)(domain); }

}  // namespace stridec::runtime
