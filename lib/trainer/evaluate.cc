// Held-out loss of a model, in one process.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/batch_source.h"
#include "device/aten.h"
#include "nn/rope_tables.h"
#include "nn/segment_runner.h"
#include "trainer/block_weights.h"

namespace trainctl::trainer {
namespace {

// A sequence on its way through the blocks.
struct Sequence {
  data::Batch batch;
  at::Tensor hidden;
  double loss = 0;  // summed over its loss tokens

  nn::TokenView View() const {
    return {batch.tokens.data(), batch.targets.data(), batch.positions.data(), batch.document.data(),
            batch.loss_mask.data()};
  }
};

struct Sums {
  double loss = 0;
  int64_t loss_tokens = 0;
};

class Evaluator {
 public:
  Evaluator(const InferenceDeps& deps, BlockWeights& weights)
      : recipe_(*deps.recipe),
        weights_(weights),
        rope_(nn::MakeRopeTables(device::Device::Cpu(), model::AnglesOf(weights.spec()),
                                 recipe_.data.seq_len)) {
    const model::MicroBatchShape shape{1, recipe_.data.seq_len};
    graph_ = model::BuildGraph(weights.spec(), weights.inventory(), {shape, DType::kF32, deps.threads});
    for (const model::Segment& kind : graph_->kinds)
      runners_.emplace_back(device::Device::Cpu(), kind, rope_.data(), deps.threads);
  }

  absl::StatusOr<Sums> Run(const data::EvalSet& set) {
    Sums sums;
    const int64_t total = set.num_batches * recipe_.train.batch_sequences;
    for (int64_t first = 0; first < total; first += AtOnce()) {
      std::vector<Sequence> sequences;
      for (int64_t i = first; i < std::min(total, first + AtOnce()); ++i) {
        const int64_t batch = i / recipe_.train.batch_sequences;
        TRAINCTL_ASSIGN_OR_RETURN(data::Batch one,
                                  set.source->Get(batch, {i % recipe_.train.batch_sequences, 1}));
        sequences.push_back({std::move(one), at::Tensor(), 0});
      }
      TRAINCTL_RETURN_IF_ERROR(Advance(sequences));
      for (const Sequence& sequence : sequences) {
        sums.loss += sequence.loss;
        for (const uint8_t counts : sequence.batch.loss_mask) sums.loss_tokens += counts != 0 ? 1 : 0;
      }
    }
    return sums;
  }

 private:
  // So many that what a block made of them is not large, and each block is read once for all of them.
  int64_t AtOnce() const {
    constexpr int64_t kHiddenBytes = int64_t{256} << 20;
    const int64_t bytes = recipe_.data.seq_len * weights_.spec().hidden * int64_t{sizeof(float)};
    return std::max<int64_t>(1, kHiddenBytes / bytes);
  }

  // Through all blocks.
  absl::Status Advance(std::vector<Sequence>& sequences) {
    const int head = graph_->num_blocks() - 1;
    for (int block = 0; block <= head; ++block) {
      TRAINCTL_ASSIGN_OR_RETURN(const nn::BoundParameters* const parameters, weights_.Of(block));
      const nn::SegmentRunner& runner =
          runners_[static_cast<size_t>(graph_->blocks[static_cast<size_t>(block)].kind)];
      for (Sequence& sequence : sequences) {
        if (block == head) {
          runner.Loss(*parameters, sequence.hidden, sequence.View(), &sequence.loss);
        } else {
          sequence.hidden = runner.Forward(*parameters, sequence.hidden, sequence.View(), nullptr);
        }
      }
    }
    return absl::OkStatus();
  }

  const recipe::Recipe& recipe_;
  BlockWeights& weights_;
  const std::vector<nn::RopeTables> rope_;
  std::shared_ptr<const model::Graph> graph_;
  std::vector<nn::SegmentRunner> runners_;  // by kind
};

absl::StatusOr<std::string> Eval(const InferenceDeps& deps) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<data::EvalSet> sets, data::OpenEvalSets(*deps.recipe));
  if (sets.empty())
    return UsageError("the recipe has no evaluation set; add [[data.eval]] with files or holdout");
  TRAINCTL_ASSIGN_OR_RETURN(const std::unique_ptr<BlockWeights> weights, BlockWeights::Open(deps));
  Evaluator evaluator(deps, *weights);
  Json report = {{"schema", "trainctl.eval.v1"}};
  report.update(weights->Describe());
  report.update({{"seq_len", deps.recipe->data.seq_len}, {"sets", Json::array()}});
  for (const data::EvalSet& set : sets) {
    if (set.placement.has_value() && set.placement->longer > 0) {
      std::fprintf(stderr, "note: %s\n", data::FormatPlacement(*set.placement, deps.recipe->data).c_str());
    }
    TRAINCTL_ASSIGN_OR_RETURN(const Sums sums, evaluator.Run(set));
    Json loss, perplexity;  // null if no target counts
    if (sums.loss_tokens > 0) {
      const double mean = sums.loss / static_cast<double>(sums.loss_tokens);
      loss = mean;
      perplexity = std::exp(mean);
    } else {
      std::fprintf(stderr,
                   "warning: evaluation set '%s' has no loss, because none of its targets count toward it: "
                   "the data has no completions, or prompts fill the sequences\n",
                   set.name.c_str());
    }
    report["sets"].push_back({{"name", set.name},
                              {"loss", std::move(loss)},
                              {"perplexity", std::move(perplexity)},
                              {"loss_tokens", sums.loss_tokens}});
  }
  return FormatJson(report) + "\n";
}

}  // namespace

absl::StatusOr<std::string> RunEval(const InferenceDeps& deps) {
  return Guarded(deps, [&] { return Eval(deps); });
}

}  // namespace trainctl::trainer
