// Times of work on a GPU's stream: events of the driver between launches, which are read when the work is
// done. An anchor, an event whose time on the host's clock is known, takes them to the host's clock.
#pragma once

#include <stdint.h>

namespace stridec::runtime {

// Tags of stamps. Others are the step whose launch ends here.
enum : int32_t {
  kNobody = -1,  // the work before it is not told
  kSame = -2,    // another launch of the step before
  kReplay = -3,  // of a recorded graph
};

// What ends at a stamp, and which run enqueued it.
struct StampOwner {
  int32_t tag;
  int32_t function;
  int64_t run;
};

struct Stamp {
  void* event;
  StampOwner owner;
};

struct Stamps {
  Stamp* all;  // the first `count` are in use, the first `made` have an event
  int32_t count, made, room;
  int32_t function;  // of stamps to come
  int64_t run;
  void* anchor;          // an event; null: times of the host are not known
  int64_t anchor_time;   // nanoseconds of CLOCK_MONOTONIC
  int64_t anchor_error;  // at most so many nanoseconds later or earlier
  void* spare;           // the event of the next attempt
};

// Work that a stamp ends: its nanoseconds, and its end on the host's clock (0: not known).
struct Stamped {
  StampOwner owner;
  int64_t nanoseconds, end;
};

// All of them need the device's context to be current, and return a CUresult.
int32_t stamps_record(Stamps& stamps, int32_t tag, void* stream);
// Relates the stream's clock to the host's. `wait`: waits for the stream first; otherwise a stream that is
// busy keeps its anchor. To be called every second: the clocks drift, and the driver gives times as floats.
int32_t stamps_anchor(Stamps& stamps, void* stream, bool wait);
// Whether stamps_read would not wait, if asked for so many nanoseconds.
bool stamps_ready(const Stamps& stamps, int64_t patience);
// Waits for the recorded stamps, tells the work before each, and discards them.
int32_t stamps_read(Stamps& stamps, void (*tell)(void* user, const Stamped& work), void* user);
void stamps_free(Stamps& stamps);

}  // namespace stridec::runtime
