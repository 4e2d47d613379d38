#include "base/life_signs.h"

namespace trainctl {
namespace {

LifeSigns g_own = {};
std::atomic<LifeSigns*> g_signs{&g_own};
thread_local bool t_is_main = false;
thread_local bool t_is_background = false;

}  // namespace

LifeSigns& ProcessLifeSigns() { return *g_signs.load(std::memory_order_relaxed); }

void InstallLifeSigns(LifeSigns* signs) {
  t_is_main = true;
  g_signs = signs;
}

void Beat() {
  if (!t_is_background) ProcessLifeSigns().beats.fetch_add(1, std::memory_order_relaxed);
}

void WorkInBackground() { t_is_background = true; }

WaitingForOthers::WaitingForOthers() {
  if (t_is_main) ++ProcessLifeSigns().main_waits;
}

WaitingForOthers::~WaitingForOthers() {
  if (t_is_main) --ProcessLifeSigns().main_waits;
}

}  // namespace trainctl
