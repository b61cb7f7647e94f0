// Child processes of the tuner, whose crash is only a result, and the events that they send.
#pragma once

#include <sys/types.h>

#include <functional>

namespace stridec::tune {

// Records on the socket, in the order of events.
struct Event {
  enum class Kind : int32_t {
    // Sent by a child that takes requests (gpu.h). `reason` is the device's name or, if subject is -1, why it
    // cannot take requests.
    kReady,
    // Before a call of the subject. If the process then ends or stays silent, the subject caused it.
    kBegin,
    kSample,  // seconds of one call
    kFailed,
    kWrong,
    kFault,  // why the process is about to end
    kEnd,    // all subjects are done
  };
  Kind kind;
  int32_t subject;
  int32_t round;
  int32_t reserved;
  double seconds;
  char reason[160];
};
Event event_of(Event::Kind kind, size_t subject, const char* reason = "");

struct Child {
  pid_t pid = -1;
  int descriptor = -1;  // the parent's end
};

// Runs `work` in a new process with the child's end of the socket. The process ends when `work` returns.
// Throws Error kOverBudget if no process can be created.
Child start_child(const std::function<void(int descriptor)>& work);
// Returns the status that waitpid() gives.
int end_child(const Child& child, bool kill_it);

// Receives one event. Returns 0 if the other end is closed, -1 if `patience` seconds pass without one.
int next_event(int descriptor, Event& event, double patience);
// For both sides. Returns false if the other end is closed, or accepts nothing for `patience` seconds.
bool send_all(int descriptor, const void* bytes, size_t size, double patience = 60);

}  // namespace stridec::tune
