// Threads, as many as the system gives.
#pragma once

#include <cstddef>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace trainctl::data {

// Starts up to `count` threads that run `work(0)`, `work(1)`, ...; fewer, or none, where the system refuses
// another one. Join them.
inline std::vector<std::thread> StartThreads(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    for (size_t i = 0; i < count; ++i) threads.emplace_back(work, i);
  } catch (const std::system_error&) {
    // Those that run do the work of the others.
  }
  return threads;
}

}  // namespace trainctl::data
