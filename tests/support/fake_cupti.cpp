// A CUPTI for the driver of fake_cuda.h: it records the launches of kernels, for tests of `profile --cupti`.
// FAKE_CUPTI_STATUS in the environment: what enabling it returns. FAKE_CUPTI_DROP: so many records are lost.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <string>

#include "tests/support/fake_cuda.h"

namespace {

// CUpti_ActivityKernel10.
struct Record {
  int32_t kind;
  uint8_t before[12];
  uint64_t start, end, completed;
  uint32_t numbers[13];
  uint32_t correlation;
  int64_t grid;
  const char* name;
  uint8_t middle[44];
  uint32_t graph;
  uint8_t after[56];
};
static_assert(sizeof(Record) == 216 && offsetof(Record, start) == 16 && offsetof(Record, correlation) == 92 &&
              offsetof(Record, name) == 104 && offsetof(Record, graph) == 156);

using Request = void (*)(uint8_t** buffer, size_t* size, size_t* records);
using Complete = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t used);

Request request;
Complete complete;
std::deque<Record> waiting;
std::set<std::string> names;
FakeCuda* (*controls)();
int to_drop;

int number(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

void seen(const FakeLaunch* launch, void*) {
  if (to_drop > 0) {
    --to_drop;
    return;
  }
  Record record = {};
  record.kind = 10;
  record.start = static_cast<uint64_t>(controls()->clock * 1000);
  record.end = record.start + 1000;
  record.name = names.insert(launch->symbol).first->c_str();
  record.graph = launch->replayed ? 7 : 0;
  waiting.push_back(record);
}

void hook(FakeKernel kernel) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* symbol = dlsym(driver, "fake_cuda_register");
  void (*add)(const char*, FakeKernel, void*) = nullptr;
  std::memcpy(&add, &symbol, sizeof symbol);
  symbol = dlsym(driver, "fake_cuda");
  std::memcpy(&controls, &symbol, sizeof symbol);
  add(nullptr, kernel, nullptr);
}

}  // namespace

extern "C" {

int32_t cuptiActivityRegisterCallbacks(Request give, Complete take) {
  request = give;
  complete = take;
  return 0;
}

int32_t cuptiActivityEnable(int32_t) {
  if (const int status = number("FAKE_CUPTI_STATUS")) return status;
  to_drop = number("FAKE_CUPTI_DROP");
  hook(seen);
  return 0;
}

int32_t cuptiActivityDisable(int32_t) {
  hook(nullptr);
  return 0;
}

int32_t cuptiActivityFlushAll(uint32_t) {
  while (!waiting.empty()) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 0, used = 0;
    request(&buffer, &size, &most);
    for (; !waiting.empty() && used + sizeof(Record) <= size; used += sizeof(Record)) {
      std::memcpy(buffer + used, &waiting.front(), sizeof(Record));
      waiting.pop_front();
    }
    complete(nullptr, 0, buffer, size, used);
  }
  return 0;
}

int32_t cuptiActivityGetNextRecord(uint8_t* buffer, size_t used, void** record) {
  constexpr int32_t kNoMore = 12;  // CUPTI_ERROR_MAX_LIMIT_REACHED
  uint8_t* const next = *record ? static_cast<uint8_t*>(*record) + sizeof(Record) : buffer;
  if (next + sizeof(Record) > buffer + used) return kNoMore;
  *record = next;
  return 0;
}

int32_t cuptiGetTimestamp(uint64_t* nanoseconds) {
  *nanoseconds = static_cast<uint64_t>(controls()->clock * 1000);
  return 0;
}

int32_t cuptiGetResultString(int32_t, const char** text) {
  *text = "CUPTI_ERROR_OF_A_TEST";
  return 0;
}
}
