#include "trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace stridec::runtime {
namespace {

constexpr auto kFilePage = static_cast<int64_t>(kTracePage);

// The time at which this process started, in clock ticks since boot; 0: unknown. With the number of the
// process it tells processes apart.
uint64_t process_start() {
  char text[1024];
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = 0;
  const char* at = strrchr(text, ')');  // the end of the name, field 2
  for (int field = 2; at && field < 22; ++field) {
    at = strchr(at, ' ');
    if (at) ++at;
  }
  uint64_t ticks = 0;
  for (; at && *at >= '0' && *at <= '9'; ++at) ticks = 10 * ticks + static_cast<uint64_t>(*at - '0');
  return ticks;
}

// The beginning of the file, by which contexts of one process know that they share it.
void write_beginning(Text& text) {
  text << "[{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":" << static_cast<int64_t>(getpid())
       << ",\"args\":{\"labels\":\"started at tick " << process_start() << " after boot\"}}";
}

bool begins_with(int fd, const char* line, size_t size) {
  char text[256] = {};
  return size < sizeof text && pread(fd, text, size, 0) == static_cast<ssize_t>(size) &&
         strncmp(text, line, size) == 0;
}

// Bytes of the UTF-8 sequence; 0: it is none.
int sequence(const char* text) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(text[i]); };
  const int size = byte(0) < 0x80   ? 1
                   : byte(0) < 0xc2 ? 0
                   : byte(0) < 0xe0 ? 2
                   : byte(0) < 0xf0 ? 3
                   : byte(0) < 0xf5 ? 4
                                    : 0;
  for (int i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (size == 3 && ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) >= 0xa0))) return 0;
  if (size == 4 && ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) >= 0x90))) return 0;
  return size;
}

// A write that does less than it was asked for has no room for the rest.
bool write_at(int fd, const char* text, size_t bytes, int64_t offset) {
  const long done = syscall(SYS_pwrite64, fd, text, bytes, offset);
  if (done >= 0) errno = ENOSPC;
  return done == static_cast<long>(bytes);
}

// While it exists, a write to a pipe whose reader has left does not end the process: it fails with EPIPE.
// Signal sets have the kernel's format, one bit per signal.
class PipeSignalBlocked {
 public:
  PipeSignalBlocked() {
    syscall(SYS_rt_sigpending, &pending_, sizeof pending_);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &kPipe, &before_, sizeof before_);
  }
  ~PipeSignalBlocked() {
    constexpr timespec kNow = {};
    const int error = errno;
    if (!(pending_ & kPipe)) syscall(SYS_rt_sigtimedwait, &kPipe, nullptr, &kNow, sizeof kPipe);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_);
    errno = error;
  }
  PipeSignalBlocked(const PipeSignalBlocked&) = delete;
  PipeSignalBlocked& operator=(const PipeSignalBlocked&) = delete;

 private:
  static constexpr uint64_t kPipe = uint64_t{1} << (SIGPIPE - 1);
  uint64_t pending_ = 0, before_ = 0;
};

bool write_in_order(int fd, const char* text, size_t bytes) {
  const PipeSignalBlocked blocked;
  while (bytes) {
    const ssize_t done = write(fd, text, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = ENOSPC;
    if (done <= 0) return false;
    text += done;
    bytes -= static_cast<size_t>(done);
  }
  return true;
}

bool is_pipe(const char* path) {
  struct stat status = {};
  return syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0 && S_ISFIFO(status.st_mode);
}

// A pipe is opened only for writing: a descriptor that could read would keep writes from failing when the
// reader leaves, and they would wait for ever. Waits a second for the reader, not longer.
int open_pipe(const char* path) {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 1'000'000};
  int fd = -1;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 || errno != ENXIO) break;  // ENXIO: nobody reads it
    syscall(SYS_nanosleep, &kPause, nullptr);
  }
  if (fd >= 0) syscall(SYS_fcntl, fd, F_SETFL, 0);
  return fd;
}

// The bracket and the space after it, which lie in two pages of the file.
struct [[gnu::packed]] Ends {
  volatile uint16_t both;
};

// Moves the bracket from the last byte of a page to the first byte of the next, where a space is. A store
// of two bytes is done wholly or not at all, which a write over two pages is not.
bool move_bracket(int fd, int64_t from) {
  constexpr int64_t kLargestPage = 65536;  // of the machine's memory
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  constexpr uint16_t kMoved = ' ' | ']' << 8;
  const int64_t start = from / kLargestPage * kLargestPage;
  const auto bytes = static_cast<size_t>(from + 2 - start);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, start);
  if (memory == MAP_FAILED) return write_at(fd, " ]", 2, from);  // a file system without shared mappings
  reinterpret_cast<Ends*>(static_cast<char*>(memory) + (from - start))->both = kMoved;
  munmap(memory, bytes);
  return true;
}

// Puts the bracket back to `end` after a write from there that was not done wholly. Keeps errno.
bool undo_write(int fd, int64_t end) {
  const int error = errno;
  write_at(fd, "]", 1, end);
  syscall(SYS_ftruncate, fd, end + 1);
  errno = error;
  return false;
}

// Moves the bracket, which is at `end`, to the next page of the file.
bool begin_page(int fd, int64_t& end) {
  const int64_t last = end / kFilePage * kFilePage + kFilePage - 1;
  char spaces[kTracePage];
  memset(spaces, ' ', sizeof spaces);
  const auto bytes = static_cast<size_t>(last - end + 1);
  spaces[bytes - 1] = ']';
  if (!write_at(fd, spaces, bytes, end)) return undo_write(fd, end);
  if (!write_at(fd, " ", 1, last + 1) || !move_bracket(fd, last)) return undo_write(fd, last);
  end = last + 1;
  return true;
}

// Of the first event, without the newline after it.
size_t event_bytes(const char* at, const char* stop) {
  return static_cast<size_t>(static_cast<const char*>(memchr(at, '\n', static_cast<size_t>(stop - at))) - at);
}

// Writes those of the events that fit into the page of the bracket.
bool append_to_page(int fd, int64_t& end, const char*& at, const char* stop) {
  char page[kTracePage];
  const auto room = kTracePage - static_cast<size_t>(end) % kTracePage;
  size_t used = 0;
  while (at < stop) {
    const size_t bytes = event_bytes(at, stop);
    if (used + bytes + 3 > room) break;  // ",\n", the event, "]"
    page[used] = ',';
    page[used + 1] = '\n';
    memcpy(page + used + 2, at, bytes);
    used += bytes + 2;
    at += bytes + 1;
  }
  if (!used) return begin_page(fd, end);
  page[used] = ']';
  if (!write_at(fd, page, used + 1, end)) return undo_write(fd, end);
  end += static_cast<int64_t>(used);
  return true;
}

bool append_in_order(int fd, const char* at, const char* stop) {
  while (at < stop) {
    const size_t bytes = event_bytes(at, stop);
    if (!write_in_order(fd, ",\n", 2) || !write_in_order(fd, at, bytes)) return false;
    at += bytes + 1;
  }
  return true;
}

// Makes a file with the array's beginning under a temporary name in the folder of `path`, and gives it the
// name: no reader of `path` sees a file without its bracket. `replace`: a file of this name is replaced;
// otherwise it fails with EEXIST. Returns -1 if the file is not made.
int make_beside(const char* path, const char* beginning, bool replace) {
  char other[4096 + 64];
  Text name(other, sizeof other);
  name << path << ".new-" << static_cast<int64_t>(syscall(SYS_gettid));
  const int fd = open(other, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  bool made = write_at(fd, beginning, strlen(beginning), 0);
  if (made && replace) made = syscall(SYS_renameat, AT_FDCWD, other, AT_FDCWD, path) == 0;
  if (made && !replace) made = syscall(SYS_linkat, AT_FDCWD, other, AT_FDCWD, path, 0) == 0;
  const int error = errno;
  if (!made || !replace) syscall(SYS_unlinkat, AT_FDCWD, other, 0);
  if (!made) close(fd);
  errno = error;
  return made ? fd : -1;
}

void note_failure(TraceFile& file, int error) {
  if (!file.error && error != EPIPE) file.error = error;
}

// The name of an open file, without symbolic links.
bool name_of(int fd, char* name, size_t room) {
  char link[64];
  Text text(link, sizeof link);
  text << "/proc/self/fd/" << fd;
  const ssize_t size = readlink(link, name, room - 1);
  if (size <= 0) return false;
  name[size] = 0;
  return true;
}

// Gives an existing file, which is locked, the array's beginning as its only contents. Returns the
// descriptor to go on with.
int begin_again(int fd, const char* beginning) {
  char name[4096];
  if (lseek(fd, 0, SEEK_END) > 0 && name_of(fd, name, sizeof name)) {
    const int made = make_beside(name, beginning, true);
    if (made >= 0) {
      close(fd);
      return made;
    }
  }
  // It is empty, or its folder takes no other file.
  if (syscall(SYS_ftruncate, fd, 0) == 0 && write_at(fd, beginning, strlen(beginning), 0)) return fd;
  close(fd);
  return -1;
}

// Opens a file that exists.
bool open_existing(TraceFile& file, const char* path, const char* beginning, bool shared) {
  file.in_order = syscall(SYS_ftruncate, file.fd, lseek(file.fd, 0, SEEK_END)) != 0;
  const size_t text = strlen(beginning) - 1;  // the bracket is written at the end
  if (file.in_order) {
    if (write_in_order(file.fd, beginning, text)) return true;
    close(file.fd);
    file.fd = -1;
    return false;
  }
  // Contexts of one process, also of other artifacts, may come at the same time.
  syscall(SYS_flock, file.fd, LOCK_EX);
  const int again = shared ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (again >= 0 && begins_with(again, beginning, text)) {  // one that came earlier has begun the file
    close(file.fd);
    file.fd = again;
    return true;
  }
  if (again >= 0) close(again);
  file.fd = begin_again(file.fd, beginning);
  if (file.fd >= 0) syscall(SYS_flock, file.fd, LOCK_UN);
  return file.fd >= 0;
}

}  // namespace

bool trace_file_open(TraceFile& file, const char* path, bool shared) {
  char beginning[256];
  Text text(beginning, sizeof beginning);
  write_beginning(text);
  text << ']';
  for (int attempt = 0; attempt < 10; ++attempt) {
    file = {.process = getpid()};
    file.fd = is_pipe(path) ? open_pipe(path) : open(path, O_RDWR | O_CLOEXEC);
    if (file.fd >= 0) return open_existing(file, path, beginning, shared);
    if (errno != ENOENT) break;
    file.fd = make_beside(path, beginning, false);
    if (file.fd < 0 && errno == EPERM) file.fd = make_beside(path, beginning, true);  // it has no hard links
    if (file.fd >= 0 || errno != EEXIST) break;  // EEXIST: another context was faster
  }
  return file.fd >= 0;
}

void trace_file_append(TraceFile& file, const char* events, size_t bytes) {
  if (file.fd < 0 || file.process != getpid()) return;
  const char* const stop = events + bytes;
  bool written = true;
  if (file.in_order) {
    written = append_in_order(file.fd, events, stop);
    if (!written) note_failure(file, errno);
  } else {
    syscall(SYS_flock, file.fd, LOCK_EX);
    int64_t end = lseek(file.fd, 0, SEEK_END) - 1;
    written = end >= 0;
    while (written && events < stop) written = append_to_page(file.fd, end, events, stop);
    if (!written) note_failure(file, errno);
    syscall(SYS_flock, file.fd, LOCK_UN);
  }
  if (!written) trace_file_close(file);
}

void trace_file_close(TraceFile& file) {
  if (file.fd < 0) return;
  const int fd = file.fd;
  file.fd = -1;
  if (file.in_order && file.process == getpid() && !write_in_order(fd, "\n]\n", 3)) note_failure(file, errno);
  close(fd);
}

bool trace_file_test(const char* path) {
  // A pipe is not opened: its reader would see the end when it is closed again.
  if (is_pipe(path)) return syscall(SYS_faccessat, AT_FDCWD, path, W_OK) == 0;
  const int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) close(fd);
  if (fd >= 0) return true;
  TraceFile file;
  const bool made = errno == ENOENT && trace_file_open(file, path, true);
  trace_file_close(file);
  return made;
}

bool trace_path(const char* model, Text& path) {
  const char* at = secure_getenv("STRIDEC_PROFILE");
  if (!at || !*at) return false;
  for (; *at; ++at) {
    const bool known = *at == '%' && (at[1] == 'p' || at[1] == 'm' || at[1] == '%');
    if (!known)
      path << *at;
    else if (*++at == 'p')
      path << static_cast<int64_t>(getpid());
    else if (*at == '%')
      path << '%';
    else
      for (const char* c = model; *c; ++c) path << (*c == '/' ? '_' : *c);
  }
  return true;
}

void write_escaped(Text& line, const char* text, size_t limit) {
  size_t used = 0;
  while (*text) {
    if (used >= limit) {
      line << "...";
      return;
    }
    const int size = sequence(text);
    const auto c = static_cast<unsigned char>(*text);
    if (c < 0x20 || c == 0x7f)
      line << "\\u00" << static_cast<char>('0' + c / 16) << "0123456789abcdef"[c % 16];
    else if (c == '"' || c == '\\')
      line << '\\' << static_cast<char>(c);
    else if (!size)
      line << '?';
    else
      for (int i = 0; i < size; ++i) line << text[i];
    text += size ? size : 1;
    used += static_cast<size_t>(size ? size : 1);
  }
}

void write_escaped(Text& line, JsonString text, size_t limit) {
  for (size_t at = 0; at < text.size;) {
    const char c = text.data[at];
    // An escape, or a sequence of UTF-8, stays whole. The manifest has no other bytes.
    size_t size = c == '\\' ? (at + 1 < text.size && text.data[at + 1] == 'u' ? 6 : 2) : 1;
    while (c != '\\' && at + size < text.size && (text.data[at + size] & 0xc0) == 0x80) ++size;
    if (at + size > limit || at + size > text.size) {
      line << "...";
      return;
    }
    for (size_t i = 0; i < size; ++i) line << text.data[at + i];
    at += size;
  }
}

}  // namespace stridec::runtime
