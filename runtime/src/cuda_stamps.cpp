#include "cuda_stamps.h"

#include <stdlib.h>

#include "clock.h"
#include "cuda_driver.h"

namespace stridec::runtime {
namespace {

constexpr CUresult kNoMemory = 2, kNotReady = 600;
constexpr int64_t kPatience = 1000000;

// Asks for at most so many nanoseconds.
bool is_done(void* event, int64_t patience) {
  const int64_t begin = now_ns();
  CUresult status = driver.EventQuery(event);
  while (status == kNotReady && now_ns() - begin < patience) status = driver.EventQuery(event);
  return status != kNotReady;
}

CUresult elapsed(void* from, void* to, int64_t& nanoseconds) {
  float ms = 0;
  const CUresult status = driver.EventElapsedTime(&ms, from, to);
  nanoseconds = static_cast<int64_t>(static_cast<double>(ms) * 1e6);
  return status;
}

}  // namespace

int32_t stamps_record(Stamps& s, int32_t tag, void* stream) {
  if (s.count == s.room) {
    const int32_t room = s.room ? 2 * s.room : 64;
    auto* more = static_cast<Stamp*>(realloc(s.all, static_cast<size_t>(room) * sizeof(Stamp)));
    if (!more) return kNoMemory;
    s.all = more;
    s.room = room;
  }
  Stamp& stamp = s.all[s.count];
  if (s.count == s.made) {
    if (const CUresult status = driver.EventCreate(&stamp.event, 0)) return status;
    ++s.made;
  }
  stamp.owner = {tag, s.function, s.run};
  const CUresult status = driver.EventRecord(stamp.event, stream);
  if (!status) ++s.count;
  return status;
}

int32_t stamps_anchor(Stamps& s, void* stream, bool wait) {
  CUresult status = wait ? driver.StreamSynchronize(stream) : 0;
  bool known = false;
  // The shortest of several attempts knows best when the event was.
  for (int32_t attempt = 0; attempt < 5 && !status; ++attempt) {
    if (!s.spare) status = driver.EventCreate(&s.spare, 0);
    const int64_t before = now_ns();
    if (!status) status = driver.EventRecord(s.spare, stream);
    if (!status && !is_done(s.spare, kPatience)) break;
    const int64_t after = now_ns(), error = (after - before) / 2;
    if (status || (known && error >= s.anchor_error)) continue;
    void* const worse = s.anchor;
    s.anchor = s.spare;
    s.spare = worse;
    s.anchor_time = before + error;
    s.anchor_error = error;
    known = true;
  }
  return status;
}

bool stamps_ready(const Stamps& s, int64_t patience) {
  return !s.count || is_done(s.all[s.count - 1].event, patience);
}

int32_t stamps_read(Stamps& s, void (*tell)(void* user, const Stamped& work), void* user) {
  const int32_t count = s.count;
  s.count = 0;
  CUresult status = count ? driver.EventSynchronize(s.all[count - 1].event) : 0;
  for (int32_t i = 1; i < count && !status; ++i) {
    Stamped work = {s.all[i].owner, 0, 0};
    if (work.owner.tag == kNobody) continue;
    status = elapsed(s.all[i - 1].event, s.all[i].event, work.nanoseconds);
    if (!status && s.anchor) {
      status = elapsed(s.anchor, s.all[i].event, work.end);
      work.end += s.anchor_time;
    }
    if (!status) tell(user, work);
  }
  return status;
}

void stamps_free(Stamps& s) {
  for (int32_t i = 0; i < s.made; ++i) driver.EventDestroy(s.all[i].event);
  if (s.anchor) driver.EventDestroy(s.anchor);
  if (s.spare) driver.EventDestroy(s.spare);
  free(s.all);
  s = {};
}

}  // namespace stridec::runtime
