#include "compiler/tune/child.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "compiler/base/diagnostic.h"
#include "compiler/base/text.h"

namespace stridec::tune {
namespace {

// Makes the child neither remove the parent's files nor report a crash as one of stridec.
void become_worker() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS})
    signal(number, SIG_DFL);
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

}  // namespace

Event event_of(Event::Kind kind, size_t subject, const char* reason) {
  Event event{kind, static_cast<int32_t>(subject), 0, 0, 0, {}};
  std::strncpy(event.reason, reason, sizeof event.reason - 1);
  return event;
}

Child start_child(const std::function<void(int descriptor)>& work) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(ErrorKind::kOverBudget, "no-process", cat("socketpair: ", std::strerror(errno)));
  const pid_t pid = fork();
  if (pid < 0) fail(ErrorKind::kOverBudget, "no-process", cat("fork: ", std::strerror(errno)));
  if (pid > 0) {
    close(ends[1]);
    return {pid, ends[0]};
  }
  close(ends[0]);
  become_worker();
  try {
    work(ends[1]);
  } catch (const std::exception&) {
    _exit(1);
  }
  _exit(0);
}

int end_child(const Child& child, bool kill_it) {
  if (kill_it) kill(child.pid, SIGKILL);
  close(child.descriptor);
  int status = 0;
  while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int next_event(int descriptor, Event& event, double patience) {
  size_t have = 0;
  while (have < sizeof event) {
    pollfd wait = {descriptor, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(patience * 1000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return -1;
    const ssize_t n = read(descriptor, reinterpret_cast<char*>(&event) + have, sizeof event - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    have += static_cast<size_t>(n);
  }
  return 1;
}

bool send_all(int descriptor, const void* bytes, size_t size, double patience) {
  const char* at = static_cast<const char*>(bytes);
  while (size) {
    pollfd wait = {descriptor, POLLOUT, 0};
    const int ready = poll(&wait, 1, static_cast<int>(patience * 1000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t n = send(descriptor, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return false;
    at += n, size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace stridec::tune
