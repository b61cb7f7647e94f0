/* The functions that the program, LLVM's archives, libstdc++.a and libgcc_eh.a take from a newer glibc and
   that glibc 2.28 lacks. All are hidden, so that no library that is loaded later binds to them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define OLD __attribute__((visibility("hidden"), used))

/* 2.34: crt1.o passes no function that runs the constructors; libc runs them itself. An older libc leaves
   them to the program. A newer libc calls the function that it is given instead, so they run once with
   either. */
typedef int Main(int, char**, char**);
typedef void Init(int, char**, char**);
extern int old_start_main(Main*, int, char**, Init*, void (*)(void), void (*)(void), void*);
__asm__(".symver old_start_main, __libc_start_main@GLIBC_2.2.5");
extern Init* __init_array_start[] __attribute__((visibility("hidden")));
extern Init* __init_array_end[] __attribute__((visibility("hidden")));

static void run_constructors(int argc, char** argv, char** environment) {
  const size_t count = (size_t)(__init_array_end - __init_array_start);
  for (size_t i = 0; i < count; ++i) __init_array_start[i](argc, argv, environment);
}

OLD int __libc_start_main(Main* main, int argc, char** argv, Init* init, void (*fini)(void),
                          void (*loader_fini)(void), void* stack_end) {
  (void)init;
  return old_start_main(main, argc, argv, run_constructors, fini, loader_fini, stack_end);
}

/* 2.35: libgcc_eh.a asks which loaded object has an address and where the object's unwind table is. Without
   an answer the first exception aborts. */
struct found_object {
  unsigned long long flags;
  void *map_start, *map_end, *link_map, *eh_frame;
  unsigned long long reserved[7];
};
struct search {
  uintptr_t address;
  struct found_object* result;
};

static int look_in(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  const struct search* search = data;
  uintptr_t table = 0, first = UINTPTR_MAX, last = 0;
  int found = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = info->dlpi_phdr + i;
    const uintptr_t start = info->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
    if (header->p_type == PT_GNU_EH_FRAME) table = start;
    if (header->p_type != PT_LOAD) continue;
    if (start < first) first = start;
    if (end > last) last = end;
    found |= search->address >= start && search->address < end;
  }
  if (!found) return 0;
  *search->result = (struct found_object){0, (void*)first, (void*)last, 0, (void*)table, {0}};
  return table ? 1 : 2;
}

/* The name in assembly, since dlfcn.h declares the function in some versions only. */
OLD int find_object(void*, struct found_object*) __asm__("_dl_find_object");
int find_object(void* address, struct found_object* result) {
  struct search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(look_in, &search) == 1 ? 0 : -1;
}

/* 2.32: libstdc++ counts references without atomics while this is set. */
OLD char __libc_single_threaded = 0;

/* 2.33: until then each program had these itself, as calls of libc's versioned functions. */
struct stat;
int __xstat(int, const char*, struct stat*);
int __fxstat(int, int, struct stat*);
int __lxstat(int, const char*, struct stat*);
int __fxstatat(int, int, const char*, struct stat*, int);
int __xmknod(int, const char*, mode_t, dev_t*);
OLD int stat(const char* path, struct stat* result) { return __xstat(1, path, result); }
OLD int fstat(int file, struct stat* result) { return __fxstat(1, file, result); }
OLD int lstat(const char* path, struct stat* result) { return __lxstat(1, path, result); }
OLD int stat64(const char* path, struct stat* result) { return __xstat(1, path, result); }
OLD int fstat64(int file, struct stat* result) { return __fxstat(1, file, result); }
OLD int lstat64(const char* path, struct stat* result) { return __lxstat(1, path, result); }
OLD int fstatat(int folder, const char* path, struct stat* result, int flags) {
  return __fxstatat(1, folder, path, result, flags);
}
OLD int fstatat64(int folder, const char* path, struct stat* result, int flags) {
  return __fxstatat(1, folder, path, result, flags);
}
OLD int mknod(const char* path, mode_t mode, dev_t device) { return __xmknod(0, path, mode, &device); }

/* 2.33: mallinfo with wide counts. */
struct old_mallinfo {
  int count[10];
};
struct new_mallinfo {
  size_t count[10];
};
struct old_mallinfo mallinfo(void);
OLD struct new_mallinfo mallinfo2(void) {
  const struct old_mallinfo from = mallinfo();
  struct new_mallinfo to;
  for (int i = 0; i < 10; ++i) to.count[i] = (unsigned)from.count[i];
  return to;
}

/* 2.38: the names that headers since then give strtol and its like. */
long old_strtol(const char*, char**, int) __asm__("strtol");
long long old_strtoll(const char*, char**, int) __asm__("strtoll");
unsigned long old_strtoul(const char*, char**, int) __asm__("strtoul");
unsigned long long old_strtoull(const char*, char**, int) __asm__("strtoull");
OLD long __isoc23_strtol(const char* text, char** end, int base) { return old_strtol(text, end, base); }
OLD long long __isoc23_strtoll(const char* text, char** end, int base) {
  return old_strtoll(text, end, base);
}
OLD unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return old_strtoul(text, end, base);
}
OLD unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return old_strtoull(text, end, base);
}

/* 2.36. */
OLD uint32_t arc4random(void) {
  uint32_t value;
  if (getrandom(&value, sizeof value, 0) == sizeof value) return value;
  const int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (file < 0 || read(file, &value, sizeof value) != sizeof value) abort();
  close(file);
  return value;
}

/* 2.30: std::condition_variable waits by the steady clock. This waits by the wall clock, at most a second
   at a time, so that setting the clock does little harm; callers allow early wake-ups. */
OLD int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                               const struct timespec* until) {
  const int64_t second = 1000000000;
  struct timespec now, end;
  clock_gettime(clock, &now);
  const int64_t seconds = (int64_t)until->tv_sec - now.tv_sec;
  int64_t left = seconds > 1 ? second : -1; /* without overflow for times that are far away */
  if (seconds >= -1 && seconds <= 1) left = seconds * second + until->tv_nsec - now.tv_nsec;
  if (left <= 0) return ETIMEDOUT;
  const int64_t step = left < second ? left : second;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += (end.tv_nsec + step) / second;
  end.tv_nsec = (end.tv_nsec + step) % second;
  const int error = pthread_cond_timedwait(condition, mutex, &end);
  if (error != ETIMEDOUT) return error;
  clock_gettime(clock, &now);
  const int passed =
      now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
  return passed ? ETIMEDOUT : 0;
}
