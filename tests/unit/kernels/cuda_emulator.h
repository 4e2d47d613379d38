// Runs the sources of kernels/cuda on the host, so that their arithmetic, their extents and their barriers
// are tested where no GPU is. Include it before them.
//
// Blocks run one after the other; each thread of a block is a fiber. A warp runs as far as it can, to the
// next barrier of the block, before another one starts, and in it a lane to the next shuffle. Order says
// which block, warp and lane goes first: a kernel whose result depends on it lacks a barrier. Shared memory
// is fresh and poisoned for each block and comes from the heap, so AddressSanitizer guards its ends. What
// CUDA leaves undefined ends the test with a message: a barrier that some threads of the block miss (or reach
// elsewhere), a shuffle that some lanes miss, a misaligned vector access, too large a block or too much
// shared memory.
//
// Not emulated: memory order within a stretch (a race inside a warp between two instructions), timing, and
// CUDA's own arithmetic (fused multiply-add, its expf). One launch at a time.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define TRAINCTL_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRAINCTL_EMULATOR_ASAN 1
#endif
#endif
#if defined(TRAINCTL_EMULATOR_ASAN)
#include <dlfcn.h>
#include <sanitizer/common_interface_defs.h>
#endif
namespace trainctl::cuda_emulator {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

enum class Order { kForward, kBackward, kShuffled };

// Ends the test program: the emulated kernel did what CUDA leaves undefined.
[[noreturn]] inline void Refuse(const std::string& what) {
  std::fprintf(stderr, "cuda_emulator: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

class Emulator {
 public:
  static Emulator& Get() {
    static Emulator emulator;
    return emulator;
  }

  void set_order(Order order) { order_ = order; }
  const std::string& kernel() const { return kernel_; }
  int64_t launches() const { return launches_; }

  // Calls `body` once for each thread of each block.
  void Run(const std::string& kernel, Index grid, unsigned threads, const std::function<void()>& body) {
    kernel_ = kernel;
    ++launches_;
    if (threads == 0 || threads > 1024) Fail("a block of " + std::to_string(threads) + " threads");
    if (grid.x == 0 || grid.y == 0 || grid.y > 65535) {
      Fail("a grid of " + std::to_string(grid.x) + " x " + std::to_string(grid.y) + " blocks");
    }
    grid_ = grid;
    threads_ = threads;
    body_ = &body;
    while (fibers_.size() < threads) AddFiber();
    warp_sequence_ = Sequence((threads + 31) / 32, 2);
    lane_sequence_ = Sequence(32, 3);
    for (uint64_t block : Sequence(uint64_t{grid.x} * grid.y, 1)) {
      block_ = {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x), 0};
      RunBlock();
    }
  }

  Index thread_index() const { return {current_, 0, 0}; }
  Index block_index() const { return block_; }
  Index block_dim() const { return {threads_, 1, 1}; }
  Index grid_dim() const { return {grid_.x, grid_.y, 1}; }

  // ---- what device code calls ----

  // Returns whether any thread of the block came with `value`.
  bool Barrier(bool value, const char* file, int line) {
    Fiber& fiber = *fibers_[current_];
    fiber.value = value ? 1 : 0;
    Wait(State::kAtBarrier, {file, line});
    return any_;
  }

  // Every lane of the warp gives `value`; returns all of them.
  const uint64_t* Exchange(unsigned mask, uint64_t value, const char* file, int line) {
    if (mask != 0xffffffffu) Fail("a shuffle of part of a warp, which is not emulated");
    if (threads_ % 32 != 0) Fail("a shuffle in a block of " + std::to_string(threads_) + " threads");
    fibers_[current_]->value = value;
    Wait(State::kAtShuffle, {file, line});
    return lanes_[current_ / 32];
  }

  void* Shared(size_t bytes, size_t alignment, const char* file, int line) {
    std::pair<std::string, int> place(file, line);
    auto found = shared_.find(place);
    if (found == shared_.end()) {
      shared_bytes_ += bytes;
      if (shared_bytes_ > 48 * 1024) Fail("more than 48 KiB of shared memory");
      std::unique_ptr<char[]> memory(new char[bytes]);
      if (reinterpret_cast<uintptr_t>(memory.get()) % alignment != 0) Fail("misaligned shared memory");
      std::memset(memory.get(), 0xff, bytes);  // NaN
      found = shared_.emplace(std::move(place), std::move(memory)).first;
    }
    return found->second.get();
  }

  [[noreturn]] void Fail(const std::string& what) const {
    Refuse("kernel " + kernel_ + ", block (" + std::to_string(block_.x) + ", " + std::to_string(block_.y) +
           "), thread " + std::to_string(current_) + ": " + what);
  }

 private:
  enum class State { kReady, kAtBarrier, kAtShuffle, kDone };

  struct Place {
    const char* file = "";
    int line = 0;
    bool operator!=(const Place& other) const {
      return line != other.line || std::strcmp(file, other.file) != 0;
    }
    std::string Text() const { return std::string(file) + ":" + std::to_string(line); }
  };

  // Entered once by its context, then by jumps, which unlike swapcontext make no system call.
  struct Fiber {
    ucontext_t context;
    jmp_buf point;
    bool entered = false;
    std::unique_ptr<char[]> stack;
    State state = State::kDone;
    Place place;  // of the barrier or shuffle
    uint64_t value = 0;
    void* fake_stack = nullptr;
  };

  // The C library's own: AddressSanitizer's asks the system for the stack's bounds and clears its marks at
  // each jump, which costs twenty times the test, and is told of the change of stacks anyway.
  using Jump = void (*)(jmp_buf, int);
  static Jump FindJump() {
#if defined(TRAINCTL_EMULATOR_ASAN)
    if (void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD)) {
      if (void* found = dlsym(libc, "_longjmp")) return reinterpret_cast<Jump>(found);
    }
#endif
    return _longjmp;
  }

  static constexpr size_t kStackBytes = 128 * 1024;

  void AddFiber() {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *fibers_.back();
    fiber.stack.reset(new char[kStackBytes]);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Emulator::FiberMain, 0);
  }

  // A fiber serves one thread after the other and never returns.
  static void FiberMain() {
    Emulator& self = Get();
    self.Arrived(nullptr);
    while (true) {
      (*self.body_)();
      self.Wait(State::kDone, {});
    }
  }

  void Wait(State state, Place place) {
    Fiber& fiber = *fibers_[current_];
    fiber.state = state;
    fiber.place = place;
#if defined(TRAINCTL_EMULATOR_ASAN)
    __sanitizer_start_switch_fiber(&fiber.fake_stack, main_stack_, main_stack_bytes_);
#endif
    if (_setjmp(fiber.point) == 0) jump_(main_point_, 1);
    Arrived(fiber.fake_stack);
  }

  void Arrived([[maybe_unused]] void* fake_stack) {
#if defined(TRAINCTL_EMULATOR_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, &main_stack_, &main_stack_bytes_);
#endif
  }

  void Resume(unsigned thread) {
    current_ = thread;
    Fiber& fiber = *fibers_[thread];
#if defined(TRAINCTL_EMULATOR_ASAN)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, fiber.stack.get(), kStackBytes);
#endif
    if (_setjmp(main_point_) == 0) {
      if (fiber.entered) jump_(fiber.point, 1);
      fiber.entered = true;
      setcontext(&fiber.context);
    }
#if defined(TRAINCTL_EMULATOR_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  void RunBlock() {
    shared_.clear();
    shared_bytes_ = 0;
    for (unsigned i = 0; i < threads_; ++i) fibers_[i]->state = State::kReady;
    do {
      for (uint64_t warp : warp_sequence_) {
        do {
          for (uint64_t lane : lane_sequence_) {
            const uint64_t thread = warp * 32 + lane;
            if (thread < threads_ && fibers_[thread]->state == State::kReady)
              Resume(static_cast<unsigned>(thread));
          }
        } while (ReleaseWarp(static_cast<unsigned>(warp)));
      }
    } while (ReleaseBlock());
  }

  // Lets a warp whose lanes all wait at one shuffle go on; false if none waits.
  bool ReleaseWarp(unsigned warp) {
    const unsigned first = warp * 32, end = std::min(first + 32, threads_);
    const auto waits = [&](unsigned i) { return fibers_[i]->state == State::kAtShuffle; };
    unsigned one = first;
    while (one < end && !waits(one)) ++one;
    if (one == end) return false;
    for (unsigned i = first; i < end; ++i) {
      current_ = i;
      if (!waits(i) || fibers_[i]->place != fibers_[one]->place) {
        Fail("is not at the shuffle of " + fibers_[one]->place.Text());
      }
      lanes_[warp][i - first] = fibers_[i]->value;
    }
    for (unsigned i = first; i < end; ++i) fibers_[i]->state = State::kReady;
    return true;
  }

  // The same for a block whose threads all wait at one barrier; false when every thread has ended.
  bool ReleaseBlock() {
    const Fiber* one = nullptr;
    for (unsigned i = 0; i < threads_; ++i) {
      if (fibers_[i]->state == State::kAtBarrier) one = fibers_[i].get();
    }
    if (one == nullptr) return false;
    any_ = false;
    for (unsigned i = 0; i < threads_; ++i) {
      current_ = i;
      if (fibers_[i]->state != State::kAtBarrier || fibers_[i]->place != one->place) {
        Fail("is not at the barrier of " + one->place.Text());
      }
      any_ = any_ || fibers_[i]->value != 0;
    }
    for (unsigned i = 0; i < threads_; ++i) fibers_[i]->state = State::kReady;
    return true;
  }

  std::vector<uint64_t> Sequence(uint64_t count, uint64_t salt) const {
    std::vector<uint64_t> sequence(count);
    for (uint64_t i = 0; i < count; ++i) sequence[i] = order_ == Order::kBackward ? count - 1 - i : i;
    if (order_ == Order::kShuffled) {
      uint64_t state = 0x9e3779b97f4a7c15u * (salt + 1);
      for (uint64_t i = count; i > 1; --i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::swap(sequence[i - 1], sequence[(state >> 33) % i]);
      }
    }
    return sequence;
  }

  Order order_ = Order::kForward;
  std::string kernel_;
  int64_t launches_ = 0;
  Index grid_, block_;
  unsigned threads_ = 0;
  unsigned current_ = 0;
  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<uint64_t> warp_sequence_, lane_sequence_;
  std::map<std::pair<std::string, int>, std::unique_ptr<char[]>> shared_;
  size_t shared_bytes_ = 0;
  bool any_ = false;
  uint64_t lanes_[32][32];
  jmp_buf main_point_;
  const Jump jump_ = FindJump();
  [[maybe_unused]] const void* main_stack_ = nullptr;
  [[maybe_unused]] size_t main_stack_bytes_ = 0;
};

template <typename T>
T* SharedArray(size_t count, const char* file, int line) {
  return static_cast<T*>(Emulator::Get().Shared(count * sizeof(T), alignof(T), file, line));
}

inline void RequireAligned(const void* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) {
    Emulator::Get().Fail("a vector access at an address that is no multiple of " + std::to_string(bytes));
  }
}

template <typename V>
V ShuffleXor(unsigned mask, V value, int lane_mask, const char* file = __builtin_FILE(),
             int line = __builtin_LINE()) {
  static_assert(sizeof(V) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  Emulator& emulator = Emulator::Get();
  const uint64_t* lanes = emulator.Exchange(mask, bits, file, line);
  std::memcpy(&value, &lanes[emulator.thread_index().x % 32 ^ static_cast<unsigned>(lane_mask)],
              sizeof(value));
  return value;
}

inline uint32_t Ballot(unsigned mask, bool value, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  const uint64_t* lanes = Emulator::Get().Exchange(mask, value ? 1 : 0, file, line);
  uint32_t bits = 0;
  for (unsigned i = 0; i < 32; ++i) bits |= lanes[i] != 0 ? 1u << i : 0u;
  return bits;
}

}  // namespace trainctl::cuda_emulator

// ---- CUDA's names -------------------------------------------------------------------------------

#define TRAINCTL_CUDA_EMULATOR 1
#define __global__
#define __device__
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::trainctl::cuda_emulator::Emulator::Get().thread_index())
#define blockIdx (::trainctl::cuda_emulator::Emulator::Get().block_index())
#define blockDim (::trainctl::cuda_emulator::Emulator::Get().block_dim())
#define gridDim (::trainctl::cuda_emulator::Emulator::Get().grid_dim())
#define __syncthreads() ((void)::trainctl::cuda_emulator::Emulator::Get().Barrier(false, __FILE__, __LINE__))
#define __syncthreads_or(value) \
  (::trainctl::cuda_emulator::Emulator::Get().Barrier(value, __FILE__, __LINE__))
#define __shfl_xor_sync ::trainctl::cuda_emulator::ShuffleXor
#define __ballot_sync ::trainctl::cuda_emulator::Ballot
#define __ffs(value) (__builtin_ffs(value))
// Fibers do not interrupt one another.
inline uint32_t atomicOr(uint32_t* at, uint32_t bits) { return std::exchange(*at, *at | bits); }

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
