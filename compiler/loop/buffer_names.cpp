#include "compiler/loop/buffer_names.h"

#include <charconv>

#include "compiler/base/text.h"

namespace stridec::loop {

namespace {

// As BufferNames::unused(). Visits each buffer once, because programs have thousands.
std::string unused_name(const Program& program, const std::string& name, const std::string& stem) {
  bool taken = false;
  std::vector<bool> used;
  for (const Buffer& b : program.buffers) {
    taken = taken || b.name == name;
    if (b.name.size() < stem.size() + 2 || b.name[stem.size()] != '_' || !b.name.starts_with(stem)) continue;
    size_t number = 0;
    const char* end = b.name.data() + b.name.size();
    const auto parsed = std::from_chars(b.name.data() + stem.size() + 1, end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number > program.buffers.size() + 1) continue;
    if (number >= used.size()) used.resize(number + 1);
    used[number] = true;
  }
  if (!taken) return name;
  size_t n = 1;
  while (n < used.size() && used[n]) ++n;
  return cat(stem, "_", n);
}

// Whether callers know the buffer by its name: an input, output, state or parameter of the artifact. A model
// may use one name for an input and an output, and may list an output twice.
bool named_by_model(const Buffer& buffer) { return buffer.ordinal >= 0; }

// `unused`: of a name and its stem.
template <class Unused>
BufferId add(Program& program, Buffer buffer, const Unused& unused) {
  if (buffer.strides.empty()) buffer.strides = row_major(buffer.shape);
  if (buffer.name.empty())
    buffer.name = unused(cat("t", program.buffers.size()), "t");
  else if (!named_by_model(buffer))
    buffer.name = unused(buffer.name, buffer.name);
  program.buffers.push_back(std::move(buffer));
  return BufferId(static_cast<int64_t>(program.buffers.size()) - 1);
}

}  // namespace

std::string BufferNames::unused(const std::string& name, const std::string& stem) {
  for (; seen_ < program_.buffers.size(); ++seen_) names_.insert(program_.buffers[seen_].name);
  if (!names_.contains(name)) return name;
  size_t& next = next_.emplace(stem, 1).first->second;
  while (names_.contains(cat(stem, "_", next))) ++next;
  return cat(stem, "_", next);
}

BufferId add_buffer(Program& program, Buffer buffer, BufferNames& names) {
  return add(program, std::move(buffer),
             [&](const std::string& name, const std::string& stem) { return names.unused(name, stem); });
}

BufferId add_buffer(Program& program, Buffer buffer) {
  return add(program, std::move(buffer), [&](const std::string& name, const std::string& stem) {
    return unused_name(program, name, stem);
  });
}

}  // namespace stridec::loop
