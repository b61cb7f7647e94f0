#include "compiler/base/file_hash.h"

#include <utility>

#include "compiler/base/sha256.h"

namespace stridec {

FileHash::FileHash(std::string path) {
  std::packaged_task<std::string(std::stop_token)> task(
      [path = std::move(path)](std::stop_token stop) { return sha256_of_file(path, stop); });
  hash_ = task.get_future().share();
  thread_ = std::jthread([task = std::move(task)](std::stop_token stop) mutable { task(stop); });
}

}  // namespace stridec
