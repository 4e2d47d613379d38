#include "simulate/cost.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "simulate/cost_sum.h"
#include "simulate/work_table.h"

namespace trainctl::simulate {

using schedule::Instruction;
using schedule::Op;

double Rates::Seconds(const Work& work) const {
  double seconds = 0;
  for (size_t i = 0; i < work.units.size(); ++i) seconds += work.units[i] * seconds_per_unit[i];
  return machine == nullptr ? seconds : seconds + DeviceSeconds(*machine, attention, scales, work);
}

bool Rates::operator==(const Rates& other) const {
  if ((machine == nullptr) != (other.machine == nullptr)) return false;
  if (machine != nullptr && machine->stated != other.machine->stated) return false;
  return seconds_per_unit == other.seconds_per_unit && overlap == other.overlap &&
         measured == other.measured && attention == other.attention && scales == other.scales;
}

Rates CpuRates(int64_t threads, DType compute_dtype, bool native_bf16) {
  Rates rates;
  const double cores = static_cast<double>(threads);
  const double of_fp32 = compute_dtype != DType::kBF16 ? 1.0 : native_bf16 ? 1.5 : 0.8;
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
  rates[Resource::kTensorExchanges] = 5e-4;
  rates[Resource::kSteps] = 1e-3;
  rates.overlap = false;
  return rates;
}

int64_t SentBytes(const schedule::Program& program, const Instruction& instruction,
                  const layout::Ledger& ledger, const schedule::Types& types) {
  if (instruction.op == Op::kSend) return program.values[static_cast<size_t>(instruction.reads[0])].bytes;
  if (instruction.bucket < 0) return 0;
  const layout::Bucket& bucket = ledger.buckets()[static_cast<size_t>(instruction.bucket)];
  const int64_t to_shards = bucket.shard_numel * (ledger.mesh().dp_shard - 1);
  const int64_t sum_bytes = DTypeBytes(types.sum);
  // Where all end with the sum, each sums a part and sends the sum to the others.
  const auto all_reduce = [&](int64_t numel, int64_t ranks) {
    return 2 * ((numel + ranks - 1) / ranks) * (ranks - 1) * sum_bytes;
  };
  switch (instruction.op) {
    case Op::kGather:
    case Op::kGatherUpdated:
      return to_shards * DTypeBytes(types.compute);
    case Op::kReduceGradient: {
      // Summed over the replicas once a step.
      const bool is_last = instruction.groups.size() > 1;
      return to_shards * sum_bytes +
             (is_last ? all_reduce(bucket.shard_numel, ledger.mesh().dp_replicate) : 0);
    }
    case Op::kSumCopies: {
      const int64_t num_owners = static_cast<int64_t>(ledger.owners(instruction.bucket).size());
      int64_t bytes = all_reduce(bucket.shard_numel, num_owners);
      for (const int copies : ledger.CopiesOfBucket(instruction.bucket))
        bytes += all_reduce(ledger.NumelOfCopies(instruction.bucket, copies), copies);
      return bytes;
    }
    default:
      return 0;
  }
}

std::map<std::string, Work> WorkOfStep(const schedule::Step& step, const layout::Ledger& ledger,
                                       const schedule::BuildOptions& options) {
  const schedule::Program& program = step.programs[0];
  const WorkTable table(*step.graph, ledger, options, /*own_class=*/0);
  std::map<std::string, Work> by_name;
  for (const Instruction& instruction : program.instructions) {
    table.Visit(program, instruction,
                [&](const Part& part, const Work& work) { by_name[part.Name()] += work; });
  }
  by_name[kOther][Resource::kSteps] = 1;
  return by_name;
}

std::vector<AxisVolume> VolumesOf(const schedule::Step& step, const layout::Ledger& ledger,
                                  const schedule::BuildOptions& options) {
  const layout::Mesh& mesh = ledger.mesh();
  std::vector<AxisVolume> volumes;
  for (int a = layout::kNumAxes - 1; a >= 0; --a) {
    const auto axis = static_cast<layout::Axis>(a);
    if (mesh.degree(axis) > 1) volumes.push_back({axis, mesh.degree(axis), mesh.stride(axis), 0});
  }
  for (size_t c = 0; c < step.programs.size(); ++c) {
    const WorkTable table(*step.graph, ledger, options, static_cast<int>(c));
    std::map<int, double> by_stride;  // no two axes of more than one rank have the same
    for (const Instruction& instruction : step.programs[c].instructions) {
      for (const auto& [exchange, count] : table.WorkOf(step.programs[c], instruction).exchanges)
        by_stride[exchange.stride] += count * model::SentBytes(exchange);
    }
    for (AxisVolume& volume : volumes)
      volume.sent_bytes = std::max(volume.sent_bytes, static_cast<int64_t>(by_stride[volume.stride]));
  }
  return volumes;
}

namespace {

struct InstructionCost {
  double seconds = -1;
  int64_t sent_bytes = 0;
};

// Costs of the instructions of a class. There are few kinds of passes, and many of each.
class CostsOfClass {
 public:
  CostsOfClass(const schedule::Step& step, const layout::Ledger& ledger,
               const schedule::BuildOptions& options, size_t own_class)
      : program_(step.programs[own_class]),
        ledger_(ledger),
        types_(options.setting.types),
        table_(*step.graph, ledger, options, static_cast<int>(own_class)),
        known_(static_cast<size_t>(table_.num_variants())) {}

  double SecondsOf(const Instruction& instruction, const Rates& rates) {
    const int variant = table_.VariantOf(instruction);
    if (variant < 0) return rates.Seconds(table_.WorkOf(program_, instruction));
    return OfPass(variant, instruction, rates).seconds;
  }

  int64_t SentBytesOf(const Instruction& instruction, const Rates& rates) {
    const int variant = table_.VariantOf(instruction);
    if (variant < 0) return SentBytes(program_, instruction, ledger_, types_);
    return OfPass(variant, instruction, rates).sent_bytes;
  }

 private:
  const InstructionCost& OfPass(int variant, const Instruction& instruction, const Rates& rates) {
    InstructionCost& cost = known_[static_cast<size_t>(variant)];
    if (cost.seconds < 0) {
      const Work work = table_.WorkOf(program_, instruction);
      cost = {rates.Seconds(work), static_cast<int64_t>(work[Resource::kSentBytes])};
    }
    return cost;
  }

  const schedule::Program& program_;
  const layout::Ledger& ledger_;
  const schedule::Types& types_;
  const WorkTable table_;
  std::vector<InstructionCost> known_;  // indexed by variant
};

std::vector<CostsOfClass> CostsOfClasses(const schedule::Step& step, const layout::Ledger& ledger,
                                         const schedule::BuildOptions& options) {
  std::vector<CostsOfClass> costs;
  for (size_t c = 0; c < step.programs.size(); ++c) costs.emplace_back(step, ledger, options, c);
  return costs;
}

Played PlayAtCosts(const schedule::Step& step, std::vector<CostsOfClass>& costs, const Rates& rates) {
  absl::StatusOr<Played> played =
      Play(step,
           [&](int own_class, const Instruction& instruction) {
             return costs[static_cast<size_t>(own_class)].SecondsOf(instruction, rates);
           },
           {.overlap = rates.overlap});
  TRAINCTL_CHECK_MSG(played.ok(), played.status().message());
  return *std::move(played);
}

}  // namespace

Played PlayAtRates(const schedule::Step& step, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, const Rates& rates) {
  std::vector<CostsOfClass> costs = CostsOfClasses(step, ledger, options);
  return PlayAtCosts(step, costs, rates);
}

StepCost PriceStep(const schedule::Step& step, const layout::Ledger& ledger,
                   const schedule::BuildOptions& options, int64_t num_micro_batches, const Rates& rates) {
  std::vector<CostsOfClass> costs = CostsOfClasses(step, ledger, options);
  const Played played = PlayAtCosts(step, costs, rates);
  StepCost cost;
  for (size_t c = 0; c < step.programs.size(); ++c) {
    const std::vector<Instruction>& instructions = step.programs[c].instructions;
    CostSum sum(rates);
    for (size_t i = 0; i < instructions.size(); ++i) {
      sum.Add(instructions[i].stream, instructions[i].micro_batch, played.classes[c].times[i],
              costs[c].SentBytesOf(instructions[i], rates));
    }
    const StepCost of_class = sum.Total(num_micro_batches - step.num_micro_batches);
    cost.seconds = std::max(cost.seconds, of_class.seconds);
    cost.compute_seconds = std::max(cost.compute_seconds, of_class.compute_seconds);
    cost.sent_bytes = std::max(cost.sent_bytes, of_class.sent_bytes);
  }
  return cost;
}

}  // namespace trainctl::simulate
