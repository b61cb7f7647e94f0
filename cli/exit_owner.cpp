#include "cli/exit_owner.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace stridec::cli {
namespace {

std::atomic<ExitOwner> owner = ExitOwner::kNobody;
static_assert(std::atomic<ExitOwner>::is_always_lock_free);

}  // namespace

ExitOwner claim_exit(ExitOwner wanted) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ExitOwner before = ExitOwner::kNobody;
  owner.compare_exchange_strong(before, wanted);
  return before;
}

void await_end() {
  for (;;) pause();
}

void own_exit() {
  const ExitOwner before = claim_exit(ExitOwner::kMain);
  if (before != ExitOwner::kNobody && before != ExitOwner::kMain) await_end();
}

}  // namespace stridec::cli
