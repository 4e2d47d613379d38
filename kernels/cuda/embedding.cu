// embedding and its gradient. Tokens repeat, so the gradient's rows have several contributions: one block
// owns a row (and a range of columns) and adds them in the order of the tokens, as the CPU does. Where to
// look for a token is known beforehand, by chunks of tokens: each chunk has a signature, one bit for each
// hash of a token, and what is not in it is not in the chunk. The only atomics set those bits.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.cuh"

namespace trainctl::kernels::cuda {
namespace {

// ---- kernels ------------------------------------------------------------------------------------

constexpr int kEmbeddingThreads = 256;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kEmbeddingThreads)
    EmbeddingKernel(T* __restrict__ out, const T* __restrict__ table, const int32_t* __restrict__ tokens,
                    int64_t n, int64_t h) {
  constexpr int W = kWidth<T>;
  const int64_t step = int64_t{blockDim.x} * W;
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) {
    const T* from = table + int64_t{tokens[row]} * h;
    T* to = out + row * h;
    for (int64_t at = int64_t{threadIdx.x} * W; at < h; at += step) {
      StoreUnit<kAligned>(to + at, LoadUnit<kAligned>(from + at, Left<kAligned, T>(h, at)),
                          Left<kAligned, T>(h, at));
    }
  }
}

constexpr int kGradientThreads = 128;
constexpr int kGradientWarps = kGradientThreads / kWarp;
constexpr int kRounds = 8;  // tokens that a thread looks at between two barriers
constexpr int kChunk = kRounds * kGradientThreads;
constexpr int kMaskWords = kRounds * kGradientWarps;
constexpr int kSignatureWords = 512;  // 16 bits a token: one absent token in 16 looks as if it were there

// Which word of a signature, and which bit of it.
__device__ inline int SignatureWord(int32_t token) {
  return static_cast<int>(static_cast<uint32_t>(token) * 2654435761u >> 23);
}
__device__ inline uint32_t SignatureBit(int32_t token) {
  return 1u << (static_cast<uint32_t>(token) * 2654435761u >> 18) % kWarp;
}

// One block a chunk.
template <typename Unused>
__global__ void __launch_bounds__(kGradientThreads)
    SignaturesKernel(uint32_t* __restrict__ signatures, const int32_t* __restrict__ tokens, int64_t n) {
  TRAINCTL_SHARED(uint32_t, signature, kSignatureWords);
  for (int word = static_cast<int>(threadIdx.x); word < kSignatureWords; word += kGradientThreads)
    signature[word] = 0;
  __syncthreads();
  const int64_t begin = int64_t{blockIdx.x} * kChunk;
  const int64_t end = begin + kChunk < n ? begin + kChunk : n;
  for (int64_t i = begin + threadIdx.x; i < end; i += kGradientThreads)
    atomicOr(&signature[SignatureWord(tokens[i])], SignatureBit(tokens[i]));
  __syncthreads();
  for (int word = static_cast<int>(threadIdx.x); word < kSignatureWords; word += kGradientThreads)
    signatures[int64_t{blockIdx.x} * kSignatureWords + word] = signature[word];
}

// Block (i, c): if tokens[i] did not occur before i, adds dout of all its occurrences to the columns that
// belong to c, one unit a thread, in registers.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kGradientThreads)
    EmbeddingBackwardKernel(float* __restrict__ gradient, const T* __restrict__ dout,
                            const int32_t* __restrict__ tokens, const uint32_t* __restrict__ signatures,
                            int64_t n, int64_t h) {
  constexpr int W = kWidth<T>;
  TRAINCTL_SHARED(uint32_t, matches, kMaskWords);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first = blockIdx.x;
  const int32_t token = tokens[first];
  signatures += SignatureWord(token);
  const uint32_t bit = SignatureBit(token);
  for (int64_t base = 0; base <= first; base += kChunk) {
    if ((signatures[base / kChunk * kSignatureWords] & bit) == 0) continue;
    bool occurred = false;
    const int64_t end = base + kChunk < first ? base + kChunk : first;
    for (int64_t i = base + thread; i < end; i += kGradientThreads) occurred |= tokens[i] == token;
    if (__syncthreads_or(occurred)) return;
  }

  const int64_t at = (int64_t{blockIdx.y} * kGradientThreads + thread) * W;
  float* row = gradient + int64_t{token} * h + at;
  float sum[W] = {};
  if (at < h) LoadFloats<kAligned>(row, Left<kAligned, T>(h, at), sum);
  for (int64_t base = first / kChunk * kChunk; base < n; base += kChunk) {
    if ((signatures[base / kChunk * kSignatureWords] & bit) == 0) continue;
    TRAINCTL_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      const int64_t i = base + round * kGradientThreads + thread;
      const uint32_t mask = __ballot_sync(kAllLanes, i >= first && i < n && tokens[i] == token);
      if (thread % kWarp == 0) matches[round * kGradientWarps + thread / kWarp] = mask;
    }
    __syncthreads();
    for (int word = 0; word < kMaskWords; ++word) {  // bit b of word w is token base + 32 w + b
      for (uint32_t left = matches[word]; left != 0; left &= left - 1) {
        const int64_t i = base + word * kWarp + __ffs(static_cast<int>(left)) - 1;
        if (at < h) {
          float values[W];
          LoadFloats<kAligned>(dout + i * h + at, Left<kAligned, T>(h, at), values);
          TRAINCTL_UNROLL
          for (int k = 0; k < W; ++k) sum[k] += values[k];
        }
      }
    }
    __syncthreads();
  }
  if (at < h) StoreFloats<kAligned>(row, Left<kAligned, T>(h, at), sum);
}

// ---- launchers ----------------------------------------------------------------------------------

template <typename T>
void Embedding(void* out, const void* table, const int32_t* tokens, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  const bool aligned = AreAligned(out, table) && h % kWidth<T> == 0;
  Launch("embedding", aligned ? EmbeddingKernel<T, true> : EmbeddingKernel<T, false>,
         RowShape(n, CeilDiv(h, kWidth<T>), kEmbeddingThreads), static_cast<T*>(out),
         static_cast<const T*>(table), tokens, n, h);
}

template <typename T>
void EmbeddingBackward(void* gradient, const void* dout, const int32_t* tokens, int64_t n, int64_t h) {
  if (n <= 0 || h <= 0) return;
  const Workspace workspace;
  auto* const signatures = static_cast<uint32_t*>(workspace.data());
  // More tokens than have their signatures in the workspace follow one another: the order stays.
  const int64_t fitting =
      workspace.bytes() / static_cast<int64_t>(kSignatureWords * sizeof(uint32_t)) * kChunk;
  for (int64_t first = 0; first < n; first += fitting) {
    const int64_t piece = n - first < fitting ? n - first : fitting;
    const T* const from = static_cast<const T*>(dout) + first * h;
    const bool aligned = AreAligned(gradient, from) && h % kWidth<T> == 0;
    Launch("embedding_backward", SignaturesKernel<void>,
           {.blocks_x = CeilDiv(piece, kChunk), .threads = kGradientThreads}, signatures, tokens + first,
           piece);
    Launch("embedding_backward",
           aligned ? EmbeddingBackwardKernel<T, true> : EmbeddingBackwardKernel<T, false>,
           {.blocks_x = piece,
            .blocks_y = CeilDiv(h, kGradientThreads * kWidth<T>),
            .threads = kGradientThreads},
           static_cast<float*>(gradient), from, tokens + first, signatures, piece, h);
  }
}

template <typename T>
void FillEmbeddingOf(TypedKernels* table) {
  table->embedding = Embedding<T>;
  table->embedding_backward = EmbeddingBackward<T>;
}

}  // namespace

void FillEmbedding(Kernels* table) {
  FillEmbeddingOf<float>(&table->f32);
  FillEmbeddingOf<BF16>(&table->bf16);
}

}  // namespace trainctl::kernels::cuda
