// std::condition_variable::wait as the C++ library of GCC 11 has it. That of GCC 12 has a second version,
// which differs only for threads that are cancelled (pthread_cancel), and none of ours is.
// older_symbols.cmake says why.
#include <condition_variable>
#include <mutex>

__asm__(
    ".symver trainctl_older_wait, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

extern "C" {

void trainctl_older_wait(std::condition_variable* condition, std::unique_lock<std::mutex>& lock);

// The linker puts this in the place of the newer one (--wrap).
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* condition,
                                                                      std::unique_lock<std::mutex>& lock) {
  trainctl_older_wait(condition, lock);
}

}  // extern "C"
