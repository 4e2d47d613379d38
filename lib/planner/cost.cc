#include "planner/cost.h"

#include <algorithm>
#include <array>
#include <vector>

namespace trainctl::planner {
namespace {

using schedule::Instruction;
using schedule::Op;

constexpr int64_t kFp32Bytes = 4;
// AdamW in fp32 reads gradient, parameter and two moments, and writes the last three.
constexpr int64_t kOptimizerBytesPerElement = 7 * kFp32Bytes;

double ForwardFlops(const model::ModelSpec& spec, int block, const model::MicroBatchShape& shape) {
  const double n = static_cast<double>(shape.tokens());
  const double hidden = static_cast<double>(spec.hidden);
  if (block == model::EmbeddingBlock()) return 0;
  if (block == model::HeadBlock(spec)) return 2 * n * hidden * static_cast<double>(spec.vocab);
  const double q_rows = static_cast<double>(spec.heads * spec.head_dim);
  const double kv_rows = static_cast<double>(spec.kv_heads * spec.head_dim);
  const double weights = hidden * (2 * q_rows + 2 * kv_rows) + 3 * hidden * static_cast<double>(spec.ffn);
  return n * (2 * weights + 2 * q_rows * static_cast<double>(shape.seq_len));
}

class Pricer {
 public:
  Pricer(const model::ModelSpec& spec, const sharding::Ledger& ledger, const schedule::BuildOptions& options,
         const Rates& rates)
      : spec_(spec), ledger_(ledger), options_(options), rates_(rates) {}

  double Seconds(const Instruction& instruction) const {
    switch (instruction.op) {
      case Op::kForward:
      case Op::kLoss:
      case Op::kRecompute:
        return Compute(instruction, 1, 1);
      case Op::kBackward:  // reads the weights, reads and writes their gradient
        return Compute(instruction, 2, 3);
      case Op::kLossAndGradient:
        return Compute(instruction, 3, 4);
      case Op::kOptimizerStep:
        return rates_.instruction_seconds +
               static_cast<double>(ledger_.optimizer_numel(instruction.bucket) * kOptimizerBytesPerElement) /
                   rates_.memory_bytes_per_second;
      default: {
        const int64_t bytes = SentBytes(instruction, ledger_, options_.compute_dtype);
        return bytes == 0
                   ? 0
                   : rates_.collective_seconds + static_cast<double>(bytes) / rates_.link_bytes_per_second;
      }
    }
  }

 private:
  double Compute(const Instruction& instruction, double passes, double weight_passes) const {
    int64_t weight_bytes = 0;
    for (int bucket : ledger_.buckets_of_block(instruction.block)) {
      // The embedding reads rows, not the table.
      if (instruction.block == model::EmbeddingBlock()) continue;
      weight_bytes +=
          ledger_.buckets()[static_cast<size_t>(bucket)].numel * DTypeBytes(options_.compute_dtype);
    }
    return rates_.instruction_seconds +
           passes * ForwardFlops(spec_, instruction.block, options_.shape) / rates_.flops_per_second +
           weight_passes * static_cast<double>(weight_bytes) / rates_.memory_bytes_per_second;
  }

  const model::ModelSpec& spec_;
  const sharding::Ledger& ledger_;
  const schedule::BuildOptions& options_;
  const Rates& rates_;
};

}  // namespace

Rates CpuRates(int64_t threads, DType compute_dtype, bool native_bf16) {
  Rates rates;
  const double bf16 = native_bf16 ? 1.5 : 0.2;
  rates.flops_per_second = 40e9 * static_cast<double>(threads) * (compute_dtype == DType::kBF16 ? bf16 : 1.0);
  rates.memory_bytes_per_second = 8e9;
  rates.link_bytes_per_second = 1.5e9;
  rates.collective_seconds = 1e-4;
  rates.instruction_seconds = 1e-4;
  rates.overlap = false;
  return rates;
}

int64_t SentBytes(const Instruction& instruction, const sharding::Ledger& ledger, DType compute_dtype) {
  if (instruction.bucket < 0) return 0;
  const sharding::Bucket& bucket = ledger.buckets()[static_cast<size_t>(instruction.bucket)];
  const int64_t to_shards = bucket.shard_numel * (ledger.mesh().dp_shard - 1);
  switch (instruction.op) {
    case Op::kGather:
    case Op::kGatherUpdated:
      return to_shards * DTypeBytes(compute_dtype);
    case Op::kReduceGradient: {
      // Summed over the replicas once a step: each sums a part and sends the sum to the others.
      const int64_t replicas = ledger.mesh().dp_replicate;
      const int64_t part = (bucket.shard_numel + replicas - 1) / replicas;
      const int64_t to_replicas = instruction.last ? 2 * part * (replicas - 1) : 0;
      return (to_shards + to_replicas) * kFp32Bytes;
    }
    default:
      return 0;
  }
}

StepCost PriceStep(const schedule::Schedule& schedule, const model::ModelSpec& spec,
                   const sharding::Ledger& ledger, const schedule::BuildOptions& options,
                   int64_t num_micro_batches, const Rates& rates) {
  const Pricer pricer(spec, ledger, options, rates);
  StepCost cost;
  std::vector<double> end(schedule.instructions.size(), 0.0);
  std::array<double, schedule::kNumStreams> stream_end = {};
  // Where each micro-batch began, in seconds of the compute stream and in bytes sent so far.
  double middle_begin = 0, middle_end = 0, middle_compute_begin = 0, middle_compute_end = 0;
  int64_t middle_bytes_begin = 0, middle_bytes_end = 0;
  int micro_batch = 0;
  for (size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& instruction = schedule.instructions[i];
    const size_t stream = rates.overlap ? static_cast<size_t>(instruction.stream) : 0;
    const bool compute = instruction.stream == schedule::StreamId::kCompute;
    if (compute && instruction.micro_batch > micro_batch) {
      micro_batch = instruction.micro_batch;
      const double now = stream_end[stream];
      if (micro_batch == 1) {
        middle_begin = now, middle_compute_begin = cost.compute_seconds, middle_bytes_begin = cost.sent_bytes;
      } else if (micro_batch == 2) {
        middle_end = now, middle_compute_end = cost.compute_seconds, middle_bytes_end = cost.sent_bytes;
      }
    }
    double begin = stream_end[stream];
    for (int wait : instruction.waits) begin = std::max(begin, end[static_cast<size_t>(wait)]);
    const double seconds = pricer.Seconds(instruction);
    end[i] = stream_end[stream] = begin + seconds;
    if (compute) cost.compute_seconds += seconds;
    cost.sent_bytes += SentBytes(instruction, ledger, options.compute_dtype);
  }
  cost.seconds = *std::max_element(stream_end.begin(), stream_end.end());
  const int64_t repeats = num_micro_batches - schedule.num_micro_batches;
  if (repeats > 0) {
    cost.seconds += static_cast<double>(repeats) * (middle_end - middle_begin);
    cost.compute_seconds += static_cast<double>(repeats) * (middle_compute_end - middle_compute_begin);
    cost.sent_bytes += repeats * (middle_bytes_end - middle_bytes_begin);
  }
  return cost;
}

}  // namespace trainctl::planner
