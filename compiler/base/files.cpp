#include "compiler/base/files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec {
namespace {

// File names in a form that a signal handler can read: fixed memory, published by the flag.
constexpr int kSlots = 8;
constexpr size_t kLongestPath = 4096;
struct Slot {
  std::atomic<int> state{0};  // 0 free, 1 being written, 2 published
  char path[kLongestPath];
};
Slot slots[kSlots];

int publish(const std::string& path) {
  if (path.size() >= kLongestPath) return -1;
  for (int i = 0; i < kSlots; ++i) {
    int expected = 0;
    if (!slots[i].state.compare_exchange_strong(expected, 1)) continue;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].state.store(2);
    return i;
  }
  return -1;
}

uint32_t random_word() {
  uint32_t word = 0;
  return getrandom(&word, sizeof word, GRND_NONBLOCK) == sizeof word ? word : 0;
}

[[noreturn]] void fail_with_errno(const std::string& what, const std::string& path) {
  const int reason = errno;
  const bool space = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  fail(space ? ErrorKind::kOverBudget : ErrorKind::kUnreadable, space ? "no-space" : "cannot-write",
       cat("cannot ", what, " '", path, "': ", std::strerror(reason)));
}

// Whether the paths name one file, which need not exist.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto equivalent = [](const std::filesystem::path& x, const std::filesystem::path& y) {
    std::error_code error;
    return std::filesystem::equivalent(x, y, error);
  };
  if (equivalent(a, b)) return true;
  const auto folder = [](const std::filesystem::path& path) {
    return path.has_parent_path() ? path.parent_path() : ".";
  };
  return a.filename() == b.filename() && equivalent(folder(a), folder(b));
}

}  // namespace

std::string read_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0 || S_ISDIR(status.st_mode)) {
    const int reason = fd < 0 ? errno : EISDIR;
    if (fd >= 0) close(fd);
    fail(ErrorKind::kUnreadable, "cannot-read", cat("cannot read '", path, "': ", std::strerror(reason)));
  }
  std::string contents;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = read(fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      close(fd);
      fail(ErrorKind::kUnreadable, "cannot-read", cat("cannot read '", path, "': ", std::strerror(reason)));
    }
    if (n == 0) break;
    contents.append(chunk, static_cast<size_t>(n));
  }
  close(fd);
  return contents;
}

void check_replaceable(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail_with_errno("write", path);
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  fail(ErrorKind::kUnreadable, "cannot-write",
       cat("cannot write '", path, "': it is ",
           S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe, which a file would replace"));
}

void check_outputs(const std::vector<OutputFile>& outputs, const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputFile& output = outputs[i];
    if (output.path.empty()) continue;
    check_replaceable(output.path);
    for (const std::string& input : inputs)
      if (!input.empty() && is_same_file(output.path, input))
        fail(ErrorKind::kUsage, "overwrites-input",
             cat("writing ", output.what, " to '", output.path, "' would overwrite '", input,
                 "', which is an input"),
             output.help);
    for (size_t j = 0; j < i; ++j)
      if (!outputs[j].path.empty() && is_same_file(output.path, outputs[j].path))
        fail(ErrorKind::kUsage, "same-output",
             cat(outputs[j].what, " and ", output.what, " would be written to one file, '", output.path, "'"),
             outputs[j].help);
  }
}

UnfinishedFile::UnfinishedFile(std::string path) : path_(std::move(path)) {
  check_replaceable(path_);
  // A process id is not unique enough: containers that share a folder may have equal ones, and threads of one
  // process may write the same file. O_EXCL neither follows a link nor opens an existing file.
  static std::atomic<uint32_t> made{0};
  for (;;) {
    temporary_ = cat(path_, ".", getpid(), "-", random_word() + made++, ".part");
    slot_ = publish(temporary_);
    descriptor_ = open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) return;
    const int reason = errno;
    if (slot_ >= 0) slots[slot_].state.store(0);
    errno = reason;
    if (reason != EEXIST) fail_with_errno("write", path_);
  }
}

UnfinishedFile::~UnfinishedFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  if (slot_ >= 0) slots[slot_].state.store(0);
}

void UnfinishedFile::write(const void* bytes, size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::write(descriptor_, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno("write", path_);
    at += n;
    size -= static_cast<size_t>(n);
  }
}

void UnfinishedFile::commit() {
  const int fd = descriptor_;
  descriptor_ = -1;
  if (close(fd) != 0) fail_with_errno("write", path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno("write", path_);
  temporary_.clear();
}

void write_file(const std::string& path, std::string_view contents) {
  UnfinishedFile file(path);
  file.write(contents.data(), contents.size());
  file.commit();
}

void remove_unfinished_files() {
  for (Slot& slot : slots)
    if (slot.state.load() == 2) unlink(slot.path);
}

}  // namespace stridec
