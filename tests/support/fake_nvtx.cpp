// A tool that takes NVTX ranges: it writes them as text, for the test that loads it by NVTX_INJECTION64_PATH.
#include <cstdint>
#include <string>

namespace {

struct Attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void* message;
};

using Function = void (*)();
struct Callbacks {
  size_t size;
  int (*give)(uint32_t module, Function*** table, uint32_t* size);
};

std::string seen;
int depth, names;

void* create_domain(const char* name) { return new std::string(name); }
void* register_string(void* domain, const char* text) {
  ++names;
  return new std::string(*static_cast<std::string*>(domain) + ":" + text);
}
int push(void*, const Attributes* attributes) {
  const bool registered = attributes->message_type == 3;
  seen += registered ? *static_cast<const std::string*>(attributes->message)
                     : static_cast<const char*>(attributes->message);
  seen += '(';
  return depth++;
}
int pop(void*) {
  seen += ')';
  return --depth;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
  const auto* callbacks = static_cast<const Callbacks*>(export_table(1));
  Function** table = nullptr;
  uint32_t size = 0;
  for (uint32_t module = 1; module < 7; ++module)
    if (!callbacks->give(module, &table, &size)) return 0;
  if (!callbacks->give(5, &table, &size) || size < 16) return 0;
  *table[4] = reinterpret_cast<Function>(push);
  *table[5] = reinterpret_cast<Function>(pop);
  *table[10] = reinterpret_cast<Function>(register_string);
  *table[12] = reinterpret_cast<Function>(create_domain);
  return 1;
}

extern "C" const char* fake_nvtx_seen() { return seen.c_str(); }
extern "C" int fake_nvtx_names() { return names; }
