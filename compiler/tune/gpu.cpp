#include "compiler/tune/gpu.h"

#include <algorithm>

#include "compiler/tune/gpu_worker.h"
#include "compiler/tune/ipc.h"

namespace stridec::tune {
namespace {

constexpr double kOpening = 60;  // maximum time in seconds for the driver to start

// The name as one word, for a line of the database.
std::string as_word(std::string name) {
  for (char& c : name)
    if (static_cast<unsigned char>(c) <= 32 || c == '|' || c == '@') c = '_';
  return name;
}

}  // namespace

Gpu::Gpu(const GpuTarget& target) : target_(target) { start(); }

Gpu::~Gpu() {
  if (child_.pid > 0) end(true);
}

void Gpu::start() {
  child_ = start_child([this](int descriptor) { serve_gpu(target_, descriptor); });
  Event event{};
  const int got = next_event(child_.descriptor, event, kOpening);
  if (got > 0 && event.kind == Event::Kind::kReady && event.subject == 0) {
    name_ = as_word(event.reason);
    problem_.clear();
    return;
  }
  problem_ = got > 0   ? event.reason
             : got < 0 ? "the NVIDIA driver does not answer"
                       : "the NVIDIA driver ends the process that opens it";
  end(true);
}

Child Gpu::ask(const std::vector<Subject>& subjects, const std::vector<bool>& alive,
               const MeasureOptions& options) {
  if (child_.pid <= 0) start();
  if (child_.pid <= 0) return {};
  // If sending fails no answer arrives, which the caller detects.
  const std::string request = pack(subjects, alive, options);
  const int64_t size = static_cast<int64_t>(request.size());
  if (send_all(child_.descriptor, &size, sizeof size))
    send_all(child_.descriptor, request.data(), request.size());
  return child_;
}

int Gpu::end(bool kill_it) {
  if (child_.pid <= 0) return 0;
  const int status = end_child(child_, kill_it);
  child_ = {};
  return status;
}

}  // namespace stridec::tune
