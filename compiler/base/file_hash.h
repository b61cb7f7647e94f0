// The SHA-256 of a file, made beside other work.
#pragma once

#include <future>
#include <string>
#include <thread>

namespace stridec {

// On a thread of its own, which ends with the object, whether or not it is done.
class FileHash {
 public:
  explicit FileHash(std::string path);
  FileHash(const FileHash&) = delete;
  FileHash& operator=(const FileHash&) = delete;
  // Until the thread takes no more time.
  void wait() const { hash_.wait(); }
  // Throws what sha256_of_file does.
  std::string get() const { return hash_.get(); }

 private:
  std::shared_future<std::string> hash_;
  std::jthread thread_;
};

}  // namespace stridec
