#include "compiler/codegen/cpu/link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "compiler/base/diagnostic.h"
#include "compiler/base/files.h"
#include "compiler/base/text.h"
#include "compiler/codegen/cpu/llvm.h"
#include "compiler/codegen/embedded.h"
#include "lld/Common/Driver.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

namespace stridec::codegen {
namespace {

[[noreturn]] void fail_system(const char* what) {
  const bool space = errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == ENOMEM;
  fail(space ? ErrorKind::kOverBudget : ErrorKind::kToolchain, space ? "no-space" : "link",
       std::string("the artifact does not link: ") + what + ": " + std::strerror(errno));
}

struct Descriptor {
  int fd = -1;
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Descriptor() { close(); }
  void close() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }
};

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_system("write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// The inputs and the output, which LLD knows by paths alone.
class LinkFiles {
 public:
  virtual ~LinkFiles() = default;
  virtual std::string add(const std::string& name, std::string_view bytes) = 0;  // returns its path
  virtual std::string output_path() const = 0;
  virtual std::string output() = 0;  // after LLD has returned
};

// Files in memory, whose paths lead through /proc. The output is a pipe: LLD writes to a non-regular file
// sequentially, without a temporary file.
class MemoryFiles : public LinkFiles {
 public:
  MemoryFiles() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail_system("pipe2");
    read_end_ = Descriptor(ends[0]), write_end_ = Descriptor(ends[1]);
    reader_ = std::thread([this] {
      char buffer[65536];
      for (ssize_t n; (n = read(read_end_.fd, buffer, sizeof buffer)) != 0;)
        if (n > 0)
          output_.append(buffer, static_cast<size_t>(n));
        else if (errno != EINTR)
          return;
    });
  }
  ~MemoryFiles() override { finish(); }

  std::string add(const std::string& name, std::string_view bytes) override {
    Descriptor& file = inputs_.emplace_back(memfd_create(name.c_str(), MFD_CLOEXEC));
    if (file.fd < 0) fail_system("memfd_create");
    write_all(file.fd, bytes);
    return file.path();
  }
  std::string output_path() const override { return write_end_.path(); }
  std::string output() override {
    finish();
    return std::move(output_);
  }

 private:
  void finish() {
    write_end_.close();
    if (reader_.joinable()) reader_.join();
  }

  std::vector<Descriptor> inputs_;
  Descriptor read_end_{-1}, write_end_{-1};
  std::string output_;
  std::thread reader_;
};

// For systems without /proc: a temporary folder.
class FolderFiles : public LinkFiles {
 public:
  FolderFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "stridec-link-XXXXXX").string();
    if (!mkdtemp(name.data())) fail_system(("no temporary folder " + name).c_str());
    folder_ = name;
  }
  ~FolderFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string add(const std::string&, std::string_view bytes) override {
    const std::string path = folder_ / cat("input", count_++, ".o");
    const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.fd < 0) fail_system(path.c_str());
    write_all(file.fd, bytes);
    return path;
  }
  std::string output_path() const override { return folder_ / "output.so"; }
  std::string output() override {
    return std::filesystem::exists(output_path()) ? read_file(output_path()) : std::string();
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

std::unique_ptr<LinkFiles> link_files() {
  if (access("/proc/self/fd", X_OK) == 0) return std::make_unique<MemoryFiles>();
  return std::make_unique<FolderFiles>();
}

// After some errors LLD's global state cannot be reused; LLD reports that.
std::mutex lld_mutex;
bool lld_usable = true;

bool run_lld(const std::vector<std::string>& arguments, std::string& messages) {
  std::vector<const char*> pointers;
  for (const std::string& a : arguments) pointers.push_back(a.c_str());
  llvm::raw_string_ostream out(messages);
  const std::lock_guard<std::mutex> lock(lld_mutex);
  if (!lld_usable) {
    out << "the linker did not recover from an earlier failure\n";
    return false;
  }
  const lld::Result result = lld::lldMain(pointers, out, out, {{lld::Gnu, &lld::elf::link}});
  lld_usable = result.canRunAgain;
  return result.retCode == 0;
}

}  // namespace

std::string link_shared(std::span<const LinkInput> inputs, const LinkOptions& options) {
  initialize_llvm();
  std::vector<std::string> arguments = {"ld.lld",
                                        "-shared",
                                        "-soname",
                                        options.soname,
                                        "--threads=1",
                                        "--no-undefined-version",
                                        "--build-id=none",
                                        "--gc-sections",
                                        "-Bsymbolic",
                                        "--hash-style=gnu",
                                        "-z",
                                        "defs",
                                        "-z",
                                        "now",
                                        "-z",
                                        "noexecstack",
                                        "-z",
                                        "relro",
                                        "--no-mmap-output-file",
                                        "--icf=safe",
                                        "-O1"};
  if (options.symbols == Symbols::kNone) arguments.push_back("--strip-all");
  if (options.symbols == Symbols::kNames) arguments.push_back("--strip-debug");

  const std::unique_ptr<LinkFiles> files = link_files();
  std::vector<std::pair<std::string, std::string>> names;  // of each path, the input's for messages
  for (const LinkInput& input : inputs) {
    names.emplace_back(files->add(input.name, input.object), input.name);
    if (input.if_needed) arguments.push_back("--start-lib");
    arguments.push_back(names.back().first);
    if (input.if_needed) arguments.push_back("--end-lib");
  }
  names.emplace_back(files->add("libc.so.6", libc_stub()), "libc.so.6");
  arguments.push_back(names.back().first);
  arguments.insert(arguments.end(), {"-o", files->output_path()});

  std::string messages;
  const bool ok = run_lld(arguments, messages);
  std::string output = files->output();
  if (ok && !output.empty()) return output;

  for (const auto& [path, name] : names) messages = replaced(std::move(messages), path, name);
  fail_toolchain("link", "the artifact does not link", messages);
}

}  // namespace stridec::codegen
