#include "cli/last_word.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace stridec::cli {
namespace {

std::atomic<LastWord> owner = LastWord::kNobody;
static_assert(std::atomic<LastWord>::is_always_lock_free);

}  // namespace

LastWord ask_for_last_word(LastWord wanted) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  LastWord before = LastWord::kNobody;
  owner.compare_exchange_strong(before, wanted);
  return before;
}

void await_end() {
  for (;;) pause();
}

void take_last_word() {
  const LastWord before = ask_for_last_word(LastWord::kMain);
  if (before != LastWord::kNobody && before != LastWord::kMain) await_end();
}

}  // namespace stridec::cli
