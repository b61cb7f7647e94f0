#include "trace_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace stridec::runtime {
namespace {

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

// The first line, by which contexts of one process know that they share the file.
void write_first_line(Text& line) {
  line << "[{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":" << static_cast<int64_t>(getpid())
       << ",\"args\":{\"labels\":\"started at tick " << process_start() << " after boot\"}}";
}

bool begins_with(int fd, const char* line) {
  char text[256] = {};
  const size_t size = strlen(line);
  return size < sizeof text && read(fd, text, size) == static_cast<ssize_t>(size) &&
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

void write_page(TraceFile& file) {
  const ssize_t done = write(file.fd, file.page, file.used);
  if (done != static_cast<ssize_t>(file.used)) trace_file_close(file);
  file.used = 0;
  file.room = kTracePage;
}

}  // namespace

bool trace_file_open(TraceFile& file, const char* path, bool shared) {
  char line[256];
  Text text(line, sizeof line);
  write_first_line(text);
  file = {};
  file.mine = !shared;
  file.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file.fd < 0) return false;
  // Contexts of one process, also of other artifacts, may come at the same time.
  if (shared) syscall(SYS_flock, file.fd, LOCK_EX);
  if (shared && begins_with(file.fd, line)) {
    file.first = false;
  } else {
    syscall(SYS_ftruncate, file.fd, 0);  // fails for what is not a regular file
    trace_file_add(file, line);
    file.first = false;
    trace_file_flush(file);
  }
  if (shared && file.fd >= 0) syscall(SYS_flock, file.fd, LOCK_UN);
  return file.fd >= 0;
}

void trace_file_add(TraceFile& file, const char* line) {
  if (file.fd < 0) return;
  const size_t size = strlen(line) + 2;  // ",\n" before the line
  if (!file.used) {
    const off_t end = lseek(file.fd, 0, SEEK_END);
    file.room = kTracePage - static_cast<size_t>(end > 0 ? end : 0) % kTracePage;
  }
  if (file.used + size > file.room) {
    memset(file.page + file.used, ' ', file.room - file.used);
    file.used = file.room;
    write_page(file);
    if (file.fd < 0) return;
  }
  if (!file.first) {
    file.page[file.used++] = ',';
    file.page[file.used++] = '\n';
  }
  memcpy(file.page + file.used, line, size - 2);
  file.used += size - 2;
}

void trace_file_flush(TraceFile& file) {
  if (file.fd >= 0 && file.used) write_page(file);
}

void trace_file_close(TraceFile& file) {
  if (file.fd < 0) return;
  const int fd = file.fd;
  if (file.mine && file.used == 0) {
    // Ends the array. A failure leaves the file without it, as a killed process would.
    if (write(fd, "\n]\n", 3) < 0) file.used = 0;
  }
  file.fd = -1;
  close(fd);
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
