// What the emulator must see, shown by kernels with one thing wrong.

// clang-format off: the emulator brings the language of the sources.
#include "cuda_emulator.h"

#include "kernels/cuda/reduce.cuh"
// clang-format on

#include <gtest/gtest.h>

namespace trainctl::cuda_emulator {
namespace {

// Each thread takes what its neighbour wrote. Without a barrier between the two, it may be too early.
template <bool with_barrier>
void TakeFromTheNext(int* out) {
  TRAINCTL_SHARED(int, written, 64);
  written[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
  if (with_barrier) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = written[(threadIdx.x + 1) % blockDim.x];
}

template <typename Kernel>
std::vector<int> Outcome(Order order, Kernel kernel) {
  std::vector<int> out(128);
  Emulator::Get().set_order(order);
  Emulator::Get().Run("test", {2, 1, 1}, 64, [&] { kernel(out.data()); });
  Emulator::Get().set_order(Order::kForward);
  return out;
}

TEST(CudaEmulator, OrdersAgreeWhereBarriersAreAndDifferWhereOneIsMissing) {
  std::vector<int> expected;
  for (int block = 0; block < 2; ++block) {
    for (int i = 0; i < 64; ++i) expected.push_back((i + 1) % 64 + 1);
  }
  for (const Order order : {Order::kForward, Order::kBackward, Order::kShuffled}) {
    EXPECT_EQ(Outcome(order, TakeFromTheNext<true>), expected);
    EXPECT_NE(Outcome(order, TakeFromTheNext<false>), expected);
  }
  EXPECT_NE(Outcome(Order::kForward, TakeFromTheNext<false>),
            Outcome(Order::kBackward, TakeFromTheNext<false>));
}

TEST(CudaEmulator, SharedMemoryIsPoisonedForEachBlock) {
  const std::vector<int> out = Outcome(Order::kForward, [](int* out) {
    TRAINCTL_SHARED(int, values, 64);
    out[blockIdx.x * 64 + threadIdx.x] = values[threadIdx.x];
    values[threadIdx.x] = 7;
  });
  for (const int x : out) EXPECT_EQ(x, -1);
}

TEST(CudaEmulator, LanesExchangeAndBlocksReduce) {
  const std::vector<int> out = Outcome(Order::kShuffled, [](int* out) {
    const int thread = static_cast<int>(threadIdx.x);
    const int crossed = __shfl_xor_sync(0xffffffffu, thread, 3);
    const uint32_t odd = __ballot_sync(0xffffffffu, thread % 2 == 1);
    const float sum = kernels::cuda::BlockSum(static_cast<float>(thread));
    const bool any = __syncthreads_or(thread == 63);
    const bool none = __syncthreads_or(false);
    const bool right = crossed == (thread ^ 3) && odd == 0xaaaaaaaau && sum == 63 * 32 && any && !none;
    out[blockIdx.x * blockDim.x + threadIdx.x] = right ? 1 : 0;
  });
  for (const int x : out) EXPECT_EQ(x, 1);
}

using CudaEmulatorDeathTest = ::testing::Test;

TEST(CudaEmulatorDeathTest, WhatCudaLeavesUndefinedEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [](unsigned threads, const std::function<void()>& body) {
    Emulator::Get().Run("wrong", {1, 1, 1}, threads, body);
  };
  EXPECT_DEATH(run(64,
                   [] {
                     if (threadIdx.x != 5) __syncthreads();
                   }),
               "kernel wrong, block \\(0, 0\\), thread 5: is not at the barrier");
  EXPECT_DEATH(run(32,
                   [] {
                     if (threadIdx.x < 31) (void)__ballot_sync(0xffffffffu, true);
                   }),
               "thread 31: is not at the shuffle");
  EXPECT_DEATH(run(32, [] { (void)__ballot_sync(1u, true); }), "part of a warp");
  EXPECT_DEATH(run(2048, [] {}), "a block of 2048 threads");
  EXPECT_DEATH(run(32,
                   [] {
                     TRAINCTL_SHARED(char, much, 50000);
                     much[0] = 0;
                   }),
               "48 KiB");
  alignas(16) char bytes[32];
  EXPECT_DEATH(run(32, [&] { (void)kernels::cuda::Load128(bytes + 4); }), "no multiple of 16");
}

}  // namespace
}  // namespace trainctl::cuda_emulator
