#include "compiler/loop/user_kernel.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>

#include "compiler/base/sha256.h"
#include "compiler/base/text.h"

namespace stridec::loop {
namespace {

struct Table {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const UserKernel>, std::less<>> kernels;
};

Table& table() {
  static Table one;
  return one;
}

}  // namespace

UserArguments::UserArguments(const UserKernel& kernel) {
  for (size_t t = 0; t < kernel.tensor_count(); ++t) {
    at.push_back(total);
    ranks.push_back(kernel.tensor(t).rank);
    total += 1 + 2 * ranks.back();
  }
  sizes = total;
  total += kernel.sizes + kLastCount;
}

std::string add_user_kernel(UserKernel kernel) {
  std::string name = kernel.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') c = '.';
  const std::string all = cat(kernel.name, "\n", kernel.key);
  kernel.routine = cat("user.", name, ".", sha256(all.data(), all.size()).substr(0, 12));
  Table& known = table();
  const std::lock_guard lock(known.mutex);
  std::string routine = kernel.routine;
  known.kernels.try_emplace(routine, std::make_shared<const UserKernel>(std::move(kernel)));
  return routine;
}

std::shared_ptr<const UserKernel> find_user_kernel(std::string_view routine) {
  if (!routine.starts_with("user.")) return nullptr;
  Table& known = table();
  const std::lock_guard lock(known.mutex);
  const auto found = known.kernels.find(routine);
  return found == known.kernels.end() ? nullptr : found->second;
}

bool is_callback(std::string_view routine) {
  const auto kernel = find_user_kernel(routine);
  return kernel && kernel->callback;
}

std::string label_of(std::string_view routine) {
  const auto kernel = find_user_kernel(routine);
  return kernel ? kernel->name : std::string(routine);
}

}  // namespace stridec::loop
