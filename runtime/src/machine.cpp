#include "machine.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

namespace stridec::runtime {
namespace {

// Reads a whole small file and zero-terminates it. Returns false if it does not exist.
bool read_file(const char* path, char* out, size_t room) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t used = 0;
  for (ssize_t n; used + 1 < room && (n = read(fd, out + used, room - 1 - used)) > 0;)
    used += static_cast<size_t>(n);
  close(fd);
  out[used] = 0;
  return used > 0;
}

int32_t rounded_up(long quota, long period) {
  if (quota <= 0 || period <= 0) return 0;
  long n = (quota + period - 1) / period;
  return n > 1 << 20 ? 0 : static_cast<int32_t>(n);
}

int32_t lesser(int32_t a, int32_t b) {
  if (!a || !b) return a ? a : b;
  return a < b ? a : b;
}

// Parses the decimal number at `at`, after spaces, and advances `at`. Returns 0 for "max", "-1" and values
// too large to be a limit. (Code compiled with headers of glibc 2.38 or newer refers to strtol by another
// name; without strtol, artifacts load on older versions.)
long number(const char*& at) {
  while (*at == ' ') ++at;
  long value = 0;
  for (; *at >= '0' && *at <= '9'; ++at)
    if (value <= 1000000000000) value = value * 10 + (*at - '0');
  return value <= 1000000000000 ? value : 0;
}

// cpu.max of v2 contains "<quota> <period>" or "max <period>"; v1 has one file for each.
int32_t quota_in(const char* folder, bool v2) {
  char path[1024], content[128];
  if (v2) {
    Text(path, sizeof path) << folder << "/cpu.max";
    if (!read_file(path, content, sizeof content)) return 0;
    const char* at = content;
    const long quota = number(at);
    return rounded_up(quota, number(at));
  }
  Text(path, sizeof path) << folder << "/cpu.cfs_quota_us";
  if (!read_file(path, content, sizeof content)) return 0;
  const char* at = content;
  const long quota = number(at);
  Text(path, sizeof path) << folder << "/cpu.cfs_period_us";
  if (!read_file(path, content, sizeof content)) return 0;
  at = content;
  return rounded_up(quota, number(at));
}

// Checks the group's folder and all its ancestors up to the mount: each may set a limit.
int32_t quota_along(const char* mount, const char* group, bool v2) {
  char folder[1024];
  Text(folder, sizeof folder) << mount << group;
  size_t shortest = strlen(mount);
  int32_t limit = 0;
  for (;;) {
    limit = lesser(limit, quota_in(folder, v2));
    char* slash = strrchr(folder, '/');
    if (!slash || static_cast<size_t>(slash - folder) < shortest) return limit;
    *slash = 0;
  }
}

bool lists_cpu(const char* controllers) {
  for (const char* at = controllers; at; at = strchr(at, ',')) {
    if (*at == ',') ++at;
    if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == 0)) return true;
  }
  return false;
}

}  // namespace

int32_t cgroup_processors(const char* root) {
  char path[1024], content[4096];
  Text(path, sizeof path) << root << "/proc/self/cgroup";
  if (!read_file(path, content, sizeof content)) return 0;
  int32_t limit = 0;
  // Lines have the form "id:controllers:path"; v2 is id 0 without controllers.
  for (char* line = content; line && *line;) {
    char* next = strchr(line, '\n');
    if (next) *next++ = 0;
    char* controllers = strchr(line, ':');
    char* group = controllers ? strchr(controllers + 1, ':') : nullptr;
    if (group) {
      *group++ = 0;
      ++controllers;
      char mount[1024];
      if (!*controllers) {
        Text(mount, sizeof mount) << root << "/sys/fs/cgroup";
        limit = lesser(limit, quota_along(mount, group, true));
      } else if (lists_cpu(controllers)) {
        // The mount is named after the controllers, or just "cpu".
        Text(mount, sizeof mount) << root << "/sys/fs/cgroup/" << controllers;
        int32_t found = quota_along(mount, group, false);
        if (!found) {
          Text(mount, sizeof mount) << root << "/sys/fs/cgroup/cpu";
          found = quota_along(mount, group, false);
        }
        limit = lesser(limit, found);
      }
    }
    line = next;
  }
  return limit;
}

int32_t usable_processors() {
  // The mask must be at least as large as the kernel's, which depends on the number of possible processors.
  int32_t count = 0;
  for (size_t bytes = sizeof(cpu_set_t); bytes <= (1u << 20) && !count; bytes *= 2) {
    auto* mask = static_cast<cpu_set_t*>(calloc(1, bytes));
    if (!mask) break;
    if (sched_getaffinity(0, bytes, mask) == 0) {
      auto* word = reinterpret_cast<const unsigned long*>(mask);
      // popcount would be a call to libgcc on the oldest targets.
      for (size_t i = 0; i < bytes / sizeof *word; ++i)
        for (unsigned long bits = word[i]; bits; bits &= bits - 1) ++count;
    }
    free(mask);
  }
  if (count < 1) count = 1;
  int32_t quota = cgroup_processors("");
  return quota && quota < count ? quota : count;
}

int32_t wished_threads(int32_t most) {
  const char* text = getenv("STRIDEC_THREADS");
  int32_t count = 0;
  for (; text && *text >= '0' && *text <= '9' && count <= most; ++text) count = 10 * count + (*text - '0');
  return text && !*text && count <= most ? count : 0;
}

int32_t default_threads(int32_t most) {
  if (const int32_t wished = wished_threads(most)) return wished;
  const int32_t usable = usable_processors();
  return usable < most ? usable : most;
}

}  // namespace stridec::runtime
