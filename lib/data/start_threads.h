// Starts as many threads as the system allows.
#pragma once

#include <cstddef>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace trainctl::data {

// Starts up to `count` threads, which run `work(0)`, `work(1)`, and so on. Starts fewer, or none, if the
// system refuses to create more. The caller must join them.
inline std::vector<std::thread> StartThreads(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (size_t i = 0; i < count; ++i) threads.emplace_back(work, i);
  } catch (const std::system_error&) {
    // The threads that were started do the work of the others.
  }
  return threads;
}

}  // namespace trainctl::data
