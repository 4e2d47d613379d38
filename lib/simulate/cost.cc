#include "simulate/cost.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/segment.h"
#include "optim/optimizer.h"

namespace trainctl::simulate {
namespace {

using schedule::Instruction;
using schedule::Op;

// An update is bound by memory, so the elements of another optimizer count by what they move beside AdamW's.
double AdamWBytes() { return static_cast<double>(optim::kAdamW.MovedBytes()); }

// What instructions ask for, by the names of the measurements.
class WorkTable {
 public:
  WorkTable(const model::ModelSpec& spec, const layout::Ledger& ledger, const schedule::BuildOptions& options,
            int own_class)
      : spec_(spec), ledger_(ledger), options_(options), own_buckets_(ledger.BucketsOfOwner(own_class)) {
    const model::SegmentOptions segment{options.shape, options.compute_dtype, options.threads,
                                        options.on_device};
    // The first layer stands for all.
    for (int block : {model::EmbeddingBlock(), model::EmbeddingBlock() + 1, model::HeadBlock(spec)}) {
      segments_.push_back(model::BuildSegment(spec, ledger.inventory(), block, segment));
    }
  }

  template <typename Add>  // void(name, work)
  void Visit(const schedule::Program& program, const Instruction& instruction, const Add& add) const {
    if (RunsBlock(instruction.op)) return VisitBlock(instruction, add);
    switch (instruction.op) {
      case Op::kOptimizerStep: {
        Work work;
        work[Resource::kOptimizerElements] =
            static_cast<double>(ledger_.optimizer_numel(instruction.bucket)) *
            static_cast<double>(options_.optimizer->MovedBytes()) / AdamWBytes();
        work[Resource::kOperators] = 1;
        return add("optimizer step", work);
      }
      case Op::kGradNorm: {
        Work work;
        work[Resource::kMovedBytes] = GradientPartBytes();
        add("gradient norm", work);
        return add(kCommunication, Collective(0));
      }
      case Op::kCountLossTokens:
      case Op::kReduceLoss:
        return add(kCommunication, Collective(0));
      default:
        return add(kCommunication,
                   Collective(SentBytes(program, instruction, ledger_, options_.compute_dtype)));
    }
  }

  Work WorkOf(const schedule::Program& program, const Instruction& instruction) const {
    Work sum;
    Visit(program, instruction, [&](const std::string&, const Work& work) { sum += work; });
    return sum;
  }

 private:
  template <typename Add>
  void VisitBlock(const Instruction& instruction, const Add& add) const {
    const int block = instruction.block;
    const model::Segment& segment = block == model::EmbeddingBlock()   ? segments_.front()
                                    : block == model::HeadBlock(spec_) ? segments_.back()
                                                                       : segments_[1];
    bool adds_vectors = true, adds_matrices = true;
    for (const schedule::GradientWrite& write : instruction.gradients) {
      adds_vectors = adds_vectors && write.accumulate;
      adds_matrices = adds_matrices && write.accumulate_weights;
    }
    const Op pass = instruction.op;
    for (const model::Operator& op : segment.operators) {
      const model::OperatorEntry& entry = model::EntryOf(op.kind);
      if (pass == Op::kLossAndGradient && entry.loss_and_gradient_work != nullptr) {
        add(std::string(entry.name), entry.loss_and_gradient_work(segment, op));
        continue;
      }
      if (pass == Op::kForward || pass == Op::kRecompute || pass == Op::kLoss || pass == Op::kLossAndGradient)
        add(std::string(entry.name), entry.forward_work(segment, op));
      const std::string backward = absl::StrCat(entry.name, " backward");
      if (pass == Op::kBackward || pass == Op::kLossAndGradient)
        add(backward, model::BackwardWork(segment, op, adds_vectors));
      if (pass == Op::kBackwardInput && entry.input_gradient_work != nullptr)
        add(backward, entry.input_gradient_work(segment, op, adds_vectors));
      if (pass == Op::kBackwardWeight && entry.weight_gradient_work != nullptr)
        add(backward, entry.weight_gradient_work(segment, op, adds_matrices));
    }
  }

  // Between one worker and itself nothing is exchanged.
  Work Collective(int64_t bytes) const {
    Work work;
    if (ledger_.mesh().world_size() == 1) return work;
    work[Resource::kSentBytes] = static_cast<double>(bytes);
    work[Resource::kCollectives] = 1;
    return work;
  }

  double GradientPartBytes() const {
    double bytes = 0;
    for (int bucket : own_buckets_)
      bytes += static_cast<double>(ledger_.optimizer_numel(bucket)) * sizeof(float);
    return bytes;
  }

  const model::ModelSpec& spec_;
  const layout::Ledger& ledger_;
  const schedule::BuildOptions& options_;
  const std::vector<int> own_buckets_;
  std::vector<model::Segment> segments_;  // embedding, layer, head
};

}  // namespace

double Rates::Seconds(const Work& work) const {
  double seconds = 0;
  for (size_t i = 0; i < work.units.size(); ++i) seconds += work.units[i] * seconds_per_unit[i];
  return seconds;
}

namespace {

// What one device does and how fast it sends, per second.
struct DeviceSpeed {
  double flops = 0;
  double bandwidth = 0;  // of its memory, bytes
  double sent = 0;       // to its peers, bytes
};

Rates RatesOf(const DeviceSpeed& speed, DType compute_dtype) {
  Rates rates;
  rates[Resource::kMatmulFlops] = 1 / speed.flops;
  rates[Resource::kAttentionFlops] = 2 / speed.flops;  // flash attention: about half of a product's rate
  rates[Resource::kAttentionBackwardFlops] = 2.5 / speed.flops;
  rates[Resource::kLogits] = 3.0 * static_cast<double>(DTypeBytes(compute_dtype)) / speed.bandwidth;
  rates[Resource::kOperandBytes] = 1 / speed.bandwidth;
  rates[Resource::kMovedBytes] = 1 / speed.bandwidth;
  rates[Resource::kOptimizerElements] = AdamWBytes() / speed.bandwidth;
  rates[Resource::kOperators] = 5e-6;
  rates[Resource::kSentBytes] = 1 / speed.sent;
  rates[Resource::kCollectives] = 2e-5;
  rates[Resource::kSteps] = 1e-3;
  return rates;
}

// Of a data sheet's rate, where nobody published a measured one.
constexpr double kShareOfSheet = 0.75;

}  // namespace

Rates DeviceRates(const cluster::Node& node, int64_t num_nodes, DType compute_dtype) {
  const cluster::Device& d = *node.device;
  const bool is_half = compute_dtype == DType::kBF16;
  DeviceSpeed speed;
  speed.flops = is_half && d.measured_half_flops.value > 0
                    ? d.measured_half_flops.value
                    : (is_half ? d.half_flops.value : d.single_flops.value) * kShareOfSheet;
  speed.bandwidth = d.measured_memory_bandwidth.value > 0 ? d.measured_memory_bandwidth.value
                                                          : d.memory_bandwidth.value * kShareOfSheet;
  speed.sent = node.scale_up->bandwidth.value;
  if (num_nodes > 1 || node.gpus == 1) {
    // Every device of a node sends at once: each has its share of the adapters.
    const double share = static_cast<double>(node.nics) / std::max(1, node.gpus);
    speed.sent = std::min(speed.sent, node.scale_out->bandwidth.value * share);
  }
  speed.sent *= kShareOfSheet;
  return RatesOf(speed, compute_dtype);
}

Rates UnknownDeviceRates(DType compute_dtype) {
  const bool is_half = compute_dtype == DType::kBF16;
  return RatesOf({.flops = is_half ? 100e12 : 50e12, .bandwidth = 1e12, .sent = 50e9}, compute_dtype);
}

Rates CpuRates(int64_t threads, DType compute_dtype, bool native_bf16) {
  Rates rates;
  const double cores = static_cast<double>(threads);
  const double of_fp32 = compute_dtype != DType::kBF16 ? 1.0 : native_bf16 ? 1.5 : 0.2;
  const double flops = 40e9 * cores * of_fp32;
  rates[Resource::kMatmulFlops] = 1 / flops;
  rates[Resource::kAttentionFlops] = 1 / flops;
  rates[Resource::kAttentionBackwardFlops] = 1 / flops;
  rates[Resource::kAttentionTiles] = 1e-6 / cores;
  rates[Resource::kLogits] = 1 / (2e8 * cores);
  rates[Resource::kOperandBytes] = 1 / 8e9;
  rates[Resource::kMovedBytes] = 1 / 8e9;
  rates[Resource::kOptimizerElements] = AdamWBytes() / 8e9;
  rates[Resource::kOperators] = 1e-5;
  rates[Resource::kSentBytes] = 1 / 1.5e9;
  rates[Resource::kCollectives] = 1e-4;
  rates[Resource::kSteps] = 1e-3;
  rates.overlap = false;
  return rates;
}

int64_t SentBytes(const schedule::Program& program, const Instruction& instruction,
                  const layout::Ledger& ledger, DType compute_dtype) {
  if (instruction.op == Op::kSend) return program.values[static_cast<size_t>(instruction.reads[0])].bytes;
  if (instruction.bucket < 0) return 0;
  const layout::Bucket& bucket = ledger.buckets()[static_cast<size_t>(instruction.bucket)];
  const int64_t to_shards = bucket.shard_numel * (ledger.mesh().dp_shard - 1);
  constexpr int64_t kFp32Bytes = sizeof(float);
  // Where all end with the sum, each sums a part and sends the sum to the others.
  const auto all_reduce = [&](int64_t ranks) {
    return 2 * ((bucket.shard_numel + ranks - 1) / ranks) * (ranks - 1) * kFp32Bytes;
  };
  switch (instruction.op) {
    case Op::kGather:
    case Op::kGatherUpdated:
      return to_shards * DTypeBytes(compute_dtype);
    case Op::kReduceGradient: {
      // Summed over the replicas once a step.
      const bool is_last = instruction.groups.size() > 1;
      return to_shards * kFp32Bytes + (is_last ? all_reduce(ledger.mesh().dp_replicate) : 0);
    }
    case Op::kSumOwners:
      return all_reduce(static_cast<int64_t>(ledger.owners(instruction.bucket).size()));
    default:
      return 0;
  }
}

std::map<std::string, Work> WorkOfStep(const schedule::Program& program, const model::ModelSpec& spec,
                                       const layout::Ledger& ledger, const schedule::BuildOptions& options) {
  const WorkTable table(spec, ledger, options, /*own_class=*/0);
  std::map<std::string, Work> by_name;
  for (const Instruction& instruction : program.instructions) {
    table.Visit(program, instruction,
                [&](const std::string& name, const Work& work) { by_name[name] += work; });
  }
  by_name[kOther][Resource::kSteps] = 1;
  return by_name;
}

Played PlayAtRates(const schedule::Step& step, const model::ModelSpec& spec, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, const Rates& rates) {
  std::vector<WorkTable> tables;
  for (size_t c = 0; c < step.programs.size(); ++c)
    tables.emplace_back(spec, ledger, options, static_cast<int>(c));
  absl::StatusOr<Played> played =
      Play(step,
           [&](int own_class, const Instruction& instruction) {
             const size_t c = static_cast<size_t>(own_class);
             return rates.Seconds(tables[c].WorkOf(step.programs[c], instruction));
           },
           {.overlap = rates.overlap});
  TRAINCTL_CHECK_MSG(played.ok(), played.status().message());
  return *std::move(played);
}

StepCost PriceStep(const schedule::Step& step, const model::ModelSpec& spec, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, int64_t num_micro_batches, const Rates& rates) {
  StepCost cost;
  const schedule::Program& program = step.programs[0];
  const std::vector<InstructionTime> times =
      std::move(PlayAtRates(step, spec, ledger, options, rates).classes[0].times);
  std::vector<double> stream_end(program.streams.size(), 0);
  // Where each micro-batch began, in seconds of the compute stream and in bytes sent so far.
  double middle_begin = 0, middle_end = 0, middle_compute_begin = 0, middle_compute_end = 0;
  int64_t middle_bytes_begin = 0, middle_bytes_end = 0;
  int micro_batch = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    const size_t stream = rates.overlap ? static_cast<size_t>(instruction.stream) : 0;
    const bool compute = instruction.stream == schedule::kComputeStream;
    if (compute && instruction.micro_batch > micro_batch) {
      micro_batch = instruction.micro_batch;
      const double now = stream_end[stream];
      if (micro_batch == 1) {
        middle_begin = now, middle_compute_begin = cost.compute_seconds, middle_bytes_begin = cost.sent_bytes;
      } else if (micro_batch == 2) {
        middle_end = now, middle_compute_end = cost.compute_seconds, middle_bytes_end = cost.sent_bytes;
      }
    }
    stream_end[stream] = times[i].end_s();
    if (compute) cost.compute_seconds += times[i].seconds;
    cost.sent_bytes += SentBytes(program, instruction, ledger, options.compute_dtype);
  }
  cost.seconds = *std::max_element(stream_end.begin(), stream_end.end()) + rates[Resource::kSteps];
  const int64_t repeats = num_micro_batches - step.num_micro_batches;
  if (repeats > 0) {
    cost.seconds += static_cast<double>(repeats) * (middle_end - middle_begin);
    cost.compute_seconds += static_cast<double>(repeats) * (middle_compute_end - middle_compute_begin);
    cost.sent_bytes += repeats * (middle_bytes_end - middle_bytes_begin);
  }
  return cost;
}

}  // namespace trainctl::simulate
