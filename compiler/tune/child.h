// A process of the tuner's own, whose end is a result and nothing more, and how it answers.
#pragma once

#include <sys/types.h>

#include <functional>

namespace stridec::tune {

// Records on the socket, in the order of events.
struct Event {
  enum class Kind : int32_t {
    kReady,  // of a child that takes requests (gpu.h): reason is a name, or with subject -1 why there is nothing to ask
    kBegin,   // of a call of the subject: a process that ends or stays silent after it did so because of it
    kSample,  // seconds of one call
    kFailed,
    kWrong,
    kFault,  // why the process ends now
    kEnd,    // of all
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

// `work` runs in a new process, which ends when it returns, and is given its end of the socket. Throws Error
// kOverBudget where there is no process to be had.
Child start_child(const std::function<void(int descriptor)>& work);
// The status that waitpid() gives.
int end_child(const Child& child, bool kill_it);

// One event; 0: the other end is closed, -1: silence for too long.
int next_event(int descriptor, Event& event, double patience);
// Either side. False: the other end is closed, or takes nothing for so many seconds.
bool send_all(int descriptor, const void* bytes, size_t size, double patience = 60);

}  // namespace stridec::tune
