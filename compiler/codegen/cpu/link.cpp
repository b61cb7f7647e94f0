#include "compiler/codegen/cpu/link.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "compiler/base/diagnostic.h"
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
  ~Descriptor() { close(); }
  void close() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }
};

Descriptor memory_file(const std::string& name, std::string_view bytes) {
  Descriptor file(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (file.fd < 0) fail_system("memfd_create");
  while (!bytes.empty()) {
    const ssize_t n = write(file.fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_system("write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return file;
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
  if (options.strip) arguments.push_back("--strip-all");

  std::vector<std::pair<Descriptor, std::string>> files;  // with the name for messages
  for (const LinkInput& input : inputs) files.emplace_back(memory_file(input.name, input.object), input.name);
  files.emplace_back(memory_file("libc.so.6", libc_stub()), "libc.so.6");
  for (size_t i = 0; i < files.size(); ++i) {
    const bool lazy = i < inputs.size() && inputs[i].if_needed;
    if (lazy) arguments.push_back("--start-lib");
    arguments.push_back(files[i].first.path());
    if (lazy) arguments.push_back("--end-lib");
  }

  // The output is a pipe: LLD writes to a non-regular file sequentially, without a temporary file.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_system("pipe2");
  Descriptor read_end(ends[0]), write_end(ends[1]);
  arguments.push_back("-o");
  arguments.push_back(write_end.path());
  std::string output;
  std::thread reader([&] {
    char buffer[65536];
    for (ssize_t n; (n = read(read_end.fd, buffer, sizeof buffer)) != 0;)
      if (n > 0)
        output.append(buffer, static_cast<size_t>(n));
      else if (errno != EINTR)
        return;
  });
  std::string messages;
  const bool ok = run_lld(arguments, messages);
  write_end.close();
  reader.join();
  if (ok && !output.empty()) return output;

  // LLD names memory files by their descriptor; messages should name the input.
  for (const auto& [file, name] : files) messages = replaced(std::move(messages), file.path(), name);
  fail_toolchain("link", "the artifact does not link", messages);
}

}  // namespace stridec::codegen
