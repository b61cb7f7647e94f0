// The SHA-256 of a file, computed in the background.
#pragma once

#include <future>
#include <string>
#include <thread>

namespace stridec {

// Runs on its own thread. The destructor stops the thread, even if the hash is not complete.
class FileHash {
 public:
  explicit FileHash(std::string path);
  FileHash(const FileHash&) = delete;
  FileHash& operator=(const FileHash&) = delete;
  // Waits until the thread is done.
  void wait() const { hash_.wait(); }
  // Throws like sha256_of_file.
  std::string get() const { return hash_.get(); }

 private:
  std::shared_future<std::string> hash_;
  std::jthread thread_;
};

}  // namespace stridec
