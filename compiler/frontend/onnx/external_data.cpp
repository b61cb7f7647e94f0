#include "compiler/frontend/onnx/external_data.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "compiler/base/diagnostic.h"

namespace stridec::onnx {

using frontend::Descriptor;
using frontend::map_descriptor;

namespace {

[[noreturn]] void refuse(const std::string& location, const std::string& reason) {
  fail(ErrorKind::kMalformed, "external-data", "external data file '" + location + "' " + reason,
       "external data must be a plain file in the model's own folder or below it; links may lead to the "
       "folder "
       "of the model's real file too, and in a hub's cache to its blobs: copy the file itself there, or, "
       "where "
       "its name leads elsewhere, save the model again with its data beside it");
}

// openat2 does this in one call. Kernels before 5.6 and some container filters lack it. Then each component
// is opened without following links, which is equally safe because '..' has been rejected before.
int open_beneath(int folder, const std::string& location) {
  struct open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long fd = syscall(SYS_openat2, folder, location.c_str(), &how, sizeof(how));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);

  int at = dup(folder);
  for (size_t begin = 0; at >= 0;) {
    const size_t slash = location.find('/', begin);
    const bool last = slash == std::string::npos;
    const std::string part = location.substr(begin, last ? std::string::npos : slash - begin);
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (last ? O_NONBLOCK : O_DIRECTORY);
    const int next = part.empty() && !last ? dup(at) : openat(at, part.c_str(), flags);
    int error = errno;
    struct stat status = {};
    if (next < 0 && error == ENOTDIR && fstatat(at, part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode))
      error = ELOOP;
    close(at);
    errno = error;
    at = next;
    if (last) break;
    begin = slash + 1;
  }
  return at;
}

bool has_parent_component(const std::string& location) {
  for (const auto& part : std::filesystem::path(location))
    if (part == "..") return true;
  return false;
}

// `path` relative to `root`, or "" if it is not below `root`. Both without links.
std::string relative_below(const std::filesystem::path& path, const std::filesystem::path& root) {
  const auto [end, at] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  if (root.empty() || end != root.end()) return "";
  std::filesystem::path rest;
  for (auto part = at; part != path.end(); ++part) rest /= *part;
  return rest.string();
}

struct Opened {
  int fd;  // below 0: errno says why
  std::filesystem::path path;
};

Opened open_in(const std::filesystem::path& folder, const std::string& location) {
  const std::string root = folder.empty() ? "." : folder.string();
  const Descriptor directory(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd < 0)
    fail(ErrorKind::kUnreadable, "unreadable", "cannot open folder '" + root + "': " + std::strerror(errno));
  return {open_beneath(directory.fd, location), folder / location};
}

// A location that passes through a link: opens the real file, in a folder that may hold it and without
// following links any more.
Opened open_linked(const DataFolders& folders, const std::filesystem::path& folder,
                   const std::string& location) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(folder / location, error);
  if (error) {
    errno = error.value();
    return {-1, folder / location};
  }
  for (const auto& allowed : {std::filesystem::canonical(folders.given.empty() ? "." : folders.given, error),
                              folders.real, folders.blobs})
    if (const std::string rest = relative_below(real, allowed); !rest.empty()) return open_in(allowed, rest);
  const std::filesystem::path target = std::filesystem::read_symlink(folder / location, error);
  refuse(location, "is or passes through a symbolic link out of the model's folder" +
                       (error ? "" : ", to '" + target.string() + "'"));
}

Opened open_data(const DataFolders& folders, const std::string& location) {
  Opened file{-1, {}};
  for (const auto& folder : {folders.given, folders.real}) {
    file = open_in(folder, location);
    if (file.fd < 0 && errno == ELOOP) file = open_linked(folders, folder, location);
    if (file.fd >= 0 || (errno != ENOENT && errno != ENOTDIR)) return file;
  }
  errno = ENOENT;
  return file;
}

}  // namespace

DataFolders::DataFolders(std::filesystem::path folder) : given(std::move(folder)) {
  std::error_code error;
  real = std::filesystem::canonical(given.empty() ? "." : given, error);
  // A hub's cache: CACHE/blobs/HASH, and CACHE/snapshots/REVISION/... with links to these.
  for (auto at = real; at.has_relative_path(); at = at.parent_path())
    if (at.parent_path().filename() == "snapshots") blobs = at.parent_path().parent_path() / "blobs";
}

DataFolders DataFolders::of_model(const std::filesystem::path& model) {
  DataFolders folders(model.parent_path());
  std::error_code error;
  if (const auto file = std::filesystem::canonical(model, error); !error) folders.real = file.parent_path();
  return folders;
}

std::shared_ptr<const MappedFile> map_beneath(const DataFolders& folders, const std::string& location) {
  if (location.empty()) refuse(location, "has no name");
  if (location.find('\0') != std::string::npos) refuse(location.c_str(), "has a zero byte in its name");
  if (location[0] == '/') refuse(location, "is an absolute path");
  if (has_parent_component(location)) refuse(location, "leads out of the model's folder");

  const std::string root = folders.given.empty() ? "." : folders.given.string(),
                    path = (folders.given / location).string();
  const Opened opened = open_data(folders, location);
  const Descriptor file(opened.fd);
  struct stat status = {};
  if (file.fd < 0 || fstat(file.fd, &status) != 0) {
    if (errno == ELOOP) refuse(location, "is a symbolic link that leads nowhere");
    if (errno == EXDEV) refuse(location, "leads out of the model's folder");
    if (errno == ENOENT || errno == ENOTDIR)
      fail(ErrorKind::kUnreadable, "external-data",
           "external data file '" + location + "' is missing (looked in '" + root + "')",
           "put it at '" + path + "': a model's data are looked for in its own folder alone");
    fail(ErrorKind::kUnreadable, "external-data",
         "external data file '" + location + "' cannot be opened: " + std::strerror(errno),
         "'" + path + "' has to be readable");
  }
  if (!S_ISREG(status.st_mode)) refuse(location, "is not a regular file");
  if (status.st_nlink > 1) refuse(location, "has another name too (a hard link)");
  return map_descriptor(file.fd, static_cast<size_t>(status.st_size), opened.path.string());
}

}  // namespace stridec::onnx
