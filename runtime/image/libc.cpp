// Stubs for functions of libc and libm that the codecs refer to but decoding does not need: files, messages,
// threads (the decoders use none), environment. They are local to the object that is linked into artifacts.
// The object therefore needs only memory and string functions from libc, however the distribution built the
// codecs.
#include <stddef.h>
#include <stdint.h>

namespace stridec::image {
[[noreturn]] void give_up();
}

extern "C" {

[[noreturn]] void abort();
void* memcpy(void*, const void*, size_t);
void* memmove(void*, const void*, size_t);
void* memset(void*, int, size_t);
size_t strlen(const char*);

void* stderr = nullptr;
void* stdout = nullptr;

#define STRIDEC_NOTHING(name) \
  long name() { return 0; }
STRIDEC_NOTHING(__fprintf_chk)
STRIDEC_NOTHING(fprintf)
STRIDEC_NOTHING(printf)
STRIDEC_NOTHING(__printf_chk)
STRIDEC_NOTHING(__isoc99_sscanf)
STRIDEC_NOTHING(__isoc23_sscanf)
STRIDEC_NOTHING(sscanf)
STRIDEC_NOTHING(strtol)
STRIDEC_NOTHING(__isoc23_strtol)
STRIDEC_NOTHING(atoi)
STRIDEC_NOTHING(getenv)
STRIDEC_NOTHING(fopen)
STRIDEC_NOTHING(fopen64)
STRIDEC_NOTHING(fclose)
STRIDEC_NOTHING(fread)
STRIDEC_NOTHING(fwrite)
STRIDEC_NOTHING(fputc)
STRIDEC_NOTHING(fseeko)
STRIDEC_NOTHING(fseeko64)
STRIDEC_NOTHING(ftello)
STRIDEC_NOTHING(ftello64)
STRIDEC_NOTHING(fflush)
STRIDEC_NOTHING(ferror)
STRIDEC_NOTHING(pthread_attr_init)
STRIDEC_NOTHING(pthread_attr_setdetachstate)
STRIDEC_NOTHING(pthread_attr_destroy)
STRIDEC_NOTHING(pthread_cond_destroy)
STRIDEC_NOTHING(pthread_cond_init)
STRIDEC_NOTHING(pthread_cond_signal)
STRIDEC_NOTHING(pthread_cond_wait)
STRIDEC_NOTHING(pthread_join)
STRIDEC_NOTHING(pthread_mutex_destroy)
STRIDEC_NOTHING(pthread_mutex_init)
STRIDEC_NOTHING(pthread_mutex_lock)
STRIDEC_NOTHING(pthread_mutex_unlock)
#undef STRIDEC_NOTHING
long pthread_create() { return 11; }  // EAGAIN
long sysconf(int) { return -1; }

// Message texts, which nothing reads.
long __sprintf_chk(char* to, ...) { return *to = 0; }
long sprintf(char* to, ...) { return *to = 0; }
long __snprintf_chk(char* to, size_t size, ...) { return size ? *to = 0 : 0; }
long snprintf(char* to, size_t size, ...) { return size ? *to = 0 : 0; }
long __vsnprintf_chk(char* to, size_t size, ...) { return size ? *to = 0 : 0; }
long vsnprintf(char* to, size_t size, ...) { return size ? *to = 0 : 0; }

[[noreturn]] void exit(int) { stridec::image::give_up(); }
[[noreturn]] void __assert_fail() { stridec::image::give_up(); }
[[noreturn]] void __stack_chk_fail() { abort(); }

void* __memcpy_chk(void* to, const void* from, size_t count, size_t room) {
  if (count > room) abort();
  return memcpy(to, from, count);
}
void* __memmove_chk(void* to, const void* from, size_t count, size_t room) {
  if (count > room) abort();
  return memmove(to, from, count);
}
void* __memset_chk(void* to, int value, size_t count, size_t room) {
  if (count > room) abort();
  return memset(to, value, count);
}
char* strcpy(char* to, const char* from) {
  memcpy(to, from, strlen(from) + 1);
  return to;
}
char* strncpy(char* to, const char* from, size_t count) {
  size_t i = 0;
  for (; i < count && from[i]; ++i) to[i] = from[i];
  for (; i < count; ++i) to[i] = 0;
  return to;
}

int __popcountdi2(long bits) {
  int count = 0;
  for (auto left = static_cast<uint64_t>(bits); left; left &= left - 1) ++count;
  return count;
}

long lrintf(float x) {
  long out;
  __asm__("cvtss2si %1, %0" : "=r"(out) : "x"(x));
  return out;
}
double sqrt(double x) {
  __asm__("sqrtsd %0, %0" : "+x"(x));
  return x;
}
// Decoding raises 2 to integer powers (OpenJPEG's step sizes). No other arguments occur.
double pow(double base, double exponent) {
  const bool inverse = exponent < 0;
  double out = 1, factor = base;
  for (auto n = static_cast<uint64_t>(inverse ? -exponent : exponent); n; n >>= 1, factor *= factor)
    if (n & 1) out *= factor;
  return inverse ? 1 / out : out;
}

}  // extern "C"
