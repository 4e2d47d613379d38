// cross_entropy. One block a row: one pass for maximum and sum together (the sum so far is rescaled when a
// larger logit comes: Milakov & Gimelshein 2018), a second one writes the gradient over the logits. Losses of
// rows go to the workspace; one block adds them in order. activation.cu says why expf is used.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr int kLossThreads = 256;

// ---- kernels ------------------------------------------------------------------------------------

// What to subtract from logits of which `maximum` is the largest: itself, but of a row of -inf alone nothing,
// as -inf - -inf would be NaN.
__device__ inline float ShiftOf(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// Replaces each logit x by cap * tanh(x / cap).
template <int W>
__device__ inline void Cap(float (&logits)[W], float cap) {
  TRAINCTL_UNROLL
  for (int i = 0; i < W; ++i) logits[i] = cap * tanhf(logits[i] / cap);
}

// `cap` is used only if kCapped.
template <typename T, bool kCapped, bool kAligned>
__global__ void __launch_bounds__(kRowThreads)
    CrossEntropyKernel(double* __restrict__ row_loss, T* __restrict__ logits,
                       const int32_t* __restrict__ targets, const uint8_t* __restrict__ mask, float z_loss,
                       float cap, const float* __restrict__ scale_of_gradient, int64_t n, int64_t vocab) {
  const bool want_gradient = scale_of_gradient != nullptr;
  const float scale = want_gradient ? *scale_of_gradient : 0;
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  const int64_t begin = int64_t{threadIdx.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    T* at_row = logits + row * vocab;
    float values[W];
    if (mask[row] == 0) {
      if (threadIdx.x == 0) row_loss[row] = 0;
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) values[i] = 0;
      if (want_gradient) {
        for (int64_t at = begin; at < vocab; at += step)
          StoreFloats<kAligned>(at_row + at, Left<kAligned, T>(vocab, at), values);
      }
      continue;
    }
    float maximum = -INFINITY, sum = 0;
    for (int64_t at = begin; at < vocab; at += step) {
      LoadFloats<kAligned>(at_row + at, Left<kAligned, T>(vocab, at), values);
      if (kCapped) Cap(values, cap);
      float larger = maximum;
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) {
        if (i < Left<kAligned, T>(vocab, at)) larger = fmaxf(larger, values[i]);
      }
      const float shift = ShiftOf(larger);
      sum *= expf(maximum - shift);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) {
        if (i < Left<kAligned, T>(vocab, at))
          sum += expf(values[i] - shift);  // NaN, which the maximum passed over, shows here
      }
      maximum = larger;
    }
    const int32_t target = targets[row];
    float target_logit[1] = {
        ToFloat(at_row[target])};  // read before the barriers of the sums, while it is still a logit
    if (kCapped) Cap(target_logit, cap);
    const float row_maximum = BlockMax(maximum);
    const float row_sum = BlockSum(sum * expf(maximum - ShiftOf(row_maximum)));
    const float lse = row_maximum + logf(row_sum);
    if (threadIdx.x == 0) {
      row_loss[row] = static_cast<double>(lse - target_logit[0]) + static_cast<double>(z_loss * lse * lse);
    }
    if (!want_gradient) continue;
    const float factor = scale * (1.0f + 2.0f * z_loss * lse);
    for (int64_t at = begin; at < vocab; at += step) {
      LoadFloats<kAligned>(at_row + at, Left<kAligned, T>(vocab, at), values);
      if (kCapped) Cap(values, cap);
      TRAINCTL_UNROLL
      for (int i = 0; i < W; ++i) {
        const float slope = kCapped ? 1.0f - (values[i] / cap) * (values[i] / cap) : 1.0f;
        values[i] = expf(values[i] - lse) * factor;
        if (at + i == target) values[i] -= scale;
        if (kCapped) values[i] *= slope;
      }
      StoreFloats<kAligned>(at_row + at, Left<kAligned, T>(vocab, at), values);
    }
  }
}

// One block.
template <typename Unused>
__global__ void __launch_bounds__(kLossThreads)
    AddLossesKernel(double* __restrict__ loss, const double* __restrict__ row_loss, int64_t n) {
  double sum = 0;
  for (int64_t row = threadIdx.x; row < n; row += blockDim.x) sum += row_loss[row];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *loss += sum;
}

// ---- launcher -----------------------------------------------------------------------------------

template <typename T>
void CrossEntropy(double* loss, void* logits_raw, const int32_t* targets, const uint8_t* mask, float z_loss,
                  float cap, const float* scale, int64_t n, int64_t vocab) {
  if (n <= 0 || vocab <= 0) return;
  T* logits = static_cast<T*>(logits_raw);
  const bool aligned = AreAligned(logits) && vocab % kWidth<T> == 0;
  const auto kernel =
      cap == 0 ? (aligned ? CrossEntropyKernel<T, false, true> : CrossEntropyKernel<T, false, false>)
               : (aligned ? CrossEntropyKernel<T, true, true> : CrossEntropyKernel<T, true, false>);
  const Workspace workspace;
  double* row_loss = static_cast<double*>(workspace.data());
  const int64_t fitting = workspace.bytes() / static_cast<int64_t>(sizeof(double));
  for (int64_t first = 0; first < n; first += fitting) {
    const int64_t rows = n - first < fitting ? n - first : fitting;
    Launch("cross_entropy", kernel, RowShape(rows, CeilDiv(vocab, kWidth<T>), kRowThreads), row_loss,
           logits + first * vocab, targets + first, mask + first, z_loss, cap, scale, rows, vocab);
    Launch("cross_entropy", AddLossesKernel<void>, {.threads = kLossThreads}, loss, row_loss, rows);
  }
}

}  // namespace

void FillCrossEntropy(Kernels* table) {
  table->f32.cross_entropy = CrossEntropy<float>;
  table->bf16.cross_entropy = CrossEntropy<BF16>;
}

}  // namespace trainctl::kernels::cuda
