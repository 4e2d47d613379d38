#include "schedule/step_hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "model/families.h"
#include "model/graph.h"
#include "model/presets.h"
#include "tests/unit/schedule/step_testing.h"

namespace trainctl::schedule {
namespace {

struct Built {
  layout::Ledger ledger;
  Step step;
};

Built BuildSmall(int stage, int shards,
                 const std::function<void(model::Architecture&, BuildOptions&)>& change = {}) {
  model::Architecture spec = *model::Preset("toy-1m");
  SetNumLayers(spec, 2);
  BuildOptions options;
  options.micro_batch = 2;
  options.setting.seq_len = 32;
  options.num_micro_batches = 3;
  if (change) change(spec, options);
  layout::Mesh mesh;
  (stage == 0 ? mesh.dp_replicate : mesh.dp_shard) = shards;
  layout::Ledger ledger(model::Inventory(spec), mesh, stage);
  Step step = BuildStep(GraphOf(spec, ledger, options), ledger, options);
  return {std::move(ledger), std::move(step)};
}

std::string HashOf(const Built& built) { return HashStep(built.step, built.ledger); }

TEST(StepHash, TheSameStepHasTheSameHashAndOthersHaveOthers) {
  EXPECT_EQ(HashOf(BuildSmall(3, 2)), HashOf(BuildSmall(3, 2)));
  EXPECT_EQ(HashOf(BuildSmall(3, 2)).size(), 32u);
  std::set<std::string> hashes;
  int num_steps = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int workers : {2, 4}) {
      for (int change = 0; change < 12; ++change) {
        ++num_steps;
        hashes.insert(
            HashOf(BuildSmall(stage, workers, [&](model::Architecture& spec, BuildOptions& options) {
              if (change == 1) options.micro_batch = 1;
              if (change == 2) options.num_micro_batches = 2;
              if (change == 3) options.setting.types.compute = DType::kBF16;
              if (change == 4) options.recompute = layout::Recompute::kFull;
              if (change == 5) options.setting.on_device = true;
              if (change == 6) spec.tie_embeddings = true;
              if (change == 7) options.setting.optimizer = optim::Find("lion");
              if (change == 8) options.setting.optimizer = optim::Find("sgd");
              if (change == 9) options.setting.types.master = DType::kF64;
              if (change == 10) options.setting.types.gradient = DType::kF64;
              if (change == 11) options.setting.types.sum = DType::kF64;
            })));
      }
    }
  }
  EXPECT_EQ(static_cast<int>(hashes.size()), num_steps);
}

// Changes one field after the other, and puts it back.
class FieldChanger {
 public:
  FieldChanger(const Step& step, const layout::Ledger& ledger)
      : graph_(std::make_shared<model::Graph>(*step.graph)), step_(step), ledger_(ledger) {
    step_.graph = graph_;
    before_ = HashStep(step_, ledger_);
  }

  int num_changes() const { return num_changes_; }

  // Structured bindings, so that a new field does not compile until it is changed here.
  void ChangeAll() {
    auto& [kinds, blocks, angles] = *graph_;
    for (auto& [kind, parameters] : blocks) Change(kind, parameters);
    for (auto& [head_dim, theta, scaling] : angles) {
      Change(head_dim, theta);
      auto& [factor, low, high, original, kind, beta_fast, beta_slow, truncate, attention_factor,
             short_factor, long_factor, alpha] = scaling.value();
      Change(factor, low, high, original, kind, beta_fast, beta_slow, truncate, attention_factor,
             short_factor, long_factor, alpha);
      const model::RopeScaling kept = *scaling;
      scaling.reset();
      Expect();
      scaling = kept;
    }
    for (model::Segment& kind : kinds) ChangeKind(kind);
  }

 private:
  template <typename... Fields>
  void Change(Fields&... fields) {
    (ChangeOne(fields), ...);
  }
  template <typename Field>
  void ChangeOne(Field& field) {
    const Field kept = field;
    if constexpr (std::is_same_v<Field, std::string>) {
      field += "x";
    } else if constexpr (std::is_same_v<Field, std::vector<int>>) {
      field.push_back(1);
    } else if constexpr (std::is_same_v<Field, std::vector<double>>) {
      field.at(0) += 0.25;
    } else if constexpr (std::is_same_v<Field, bool>) {
      field = !field;
    } else if constexpr (std::is_enum_v<Field>) {
      field = static_cast<Field>(static_cast<int>(field) + 1);
    } else {
      field += 1;
    }
    Expect();
    field = kept;
  }
  void Expect() {
    ++num_changes_;
    EXPECT_NE(HashStep(step_, ledger_), before_) << "change " << num_changes_;
  }

  void ChangeKind(model::Segment& segment) {
    auto& [shape, tensor, dtype, threads, on_device, rows_are_bounded, values, operators, inputs, outputs] =
        segment;
    Change(shape.batch, shape.seq_len, tensor.ranks, tensor.index, tensor.cuts_sequence, dtype, threads,
           on_device, rows_are_bounded, inputs, outputs);
    for (auto& [name, value_dtype, rows, cols] : values) Change(name, value_dtype, rows, cols);
    for (model::Operator& op : operators) ChangeOperator(op);
  }

  void ChangeOperator(model::Operator& op) {
    auto& [kind, attributes, inputs, outputs, weights, biases, saved, weight_saved, in_place_of,
           input_gradient, with_next, with_previous, formed_again, forward_temp, backward_temp, weight_temp] =
        op;
    Change(kind, inputs, outputs, weights, biases, saved, weight_saved, in_place_of, input_gradient,
           formed_again, forward_temp, backward_temp, weight_temp);
    for (model::PassSet* passes : {&with_next, &with_previous}) {
      const model::PassSet kept = *passes;
      passes->Add(model::Pass::kWeightGradient);
      Expect();
      *passes = kept;
    }
    std::visit([this](auto& of_kind) { ChangeAttributes(of_kind); }, attributes);
  }

  template <typename Attributes>
  void ChangeAttributes(Attributes& attributes) {
    using namespace model;  // NOLINT(google-build-using-namespace)
    if constexpr (std::is_same_v<Attributes, RopeAttributes> ||
                  std::is_same_v<Attributes, AttentionAttributes> ||
                  std::is_same_v<Attributes, HeadNormAttributes>) {
      auto& [a, b, c, d, e, f] = attributes;
      Change(a, b, c, d, e, f);
    } else if constexpr (std::is_same_v<Attributes, LinearCrossEntropyAttributes>) {
      auto& [a, b, c, d, e] = attributes;
      Change(a, b, c, d, e);
    } else if constexpr (std::is_same_v<Attributes, EmbeddingAttributes> ||
                         std::is_same_v<Attributes, RmsNormAttributes> ||
                         std::is_same_v<Attributes, PositionsAttributes> ||
                         std::is_same_v<Attributes, LayerNormAttributes>) {
      auto& [a, b, c] = attributes;
      Change(a, b, c);
    } else if constexpr (std::is_same_v<Attributes, LinearAttributes> ||
                         std::is_same_v<Attributes, SwiGluAttributes> ||
                         std::is_same_v<Attributes, ActivationAttributes> ||
                         std::is_same_v<Attributes, ScaleAttributes> ||
                         std::is_same_v<Attributes, TensorExchangeAttributes>) {
      auto& [a, b] = attributes;
      Change(a, b);
    } else {
      auto& [a] = attributes;
      Change(a);
    }
  }

  const std::shared_ptr<model::Graph> graph_;
  Step step_;
  const layout::Ledger& ledger_;
  std::string before_;
  int num_changes_ = 0;
};

// Two steps that do the same at the same times are not the same step if an operator differs.
TEST(StepHash, EveryFieldOfTheGraphChangesTheHash) {
  model::Architecture spec = *model::Preset("toy-1m");
  SetNumLayers(spec, 2);
  SetAllLinearBiases(spec, true);
  spec.rope.scaling = model::RopeScaling{.short_factor = {1.5}, .long_factor = {1.5}};
  BuildOptions options;
  options.setting.seq_len = 32;
  for (const char* family : {"llama", "qwen3", "gemma", "nemotron", "gemma3_text", "cohere2", "phi",
                             "gpt2"}) {  // together they have all operators
    model::Architecture member = spec;
    member.family = family;
    ApplyFamily(*model::FindFamily(family), member);
    const layout::Ledger ledger(model::Inventory(member), {.tp = 2}, 0);
    FieldChanger changer(BuildStep(GraphOf(member, ledger, options), ledger, options), ledger);
    changer.ChangeAll();
    EXPECT_GT(changer.num_changes(), 400);
  }
  std::set<std::string> hashes;
  for (int change = 0; change < 5; ++change) {
    model::Architecture other = spec;
    if (change == 1) other.norm.eps *= 2;
    if (change == 2) other.rope.theta *= 2;
    if (change == 3) other.rope.scaling->factor *= 2;
    if (change == 4) other.init_std *= 2;
    const layout::Ledger its(model::Inventory(other), {.tp = 2}, 0);
    hashes.insert(HashStep(BuildStep(GraphOf(other, its, options), its, options), its));
  }
  EXPECT_EQ(hashes.size(), 5u);
}

// Every field of what a step is made of, one at a time, in the programs of both classes.
TEST(StepHash, EveryFieldOfAStepChangesTheHash) {
  const BuiltCase built = Build({.stage = 3,
                                 .mesh = {.pp = 2, .dp_shard = 2},
                                 .tied = true,
                                 .num_micro_batches = 3,
                                 .recompute = layout::Recompute::kFull,
                                 .layers = 4,
                                 .pipeline = PipelineKind::kZbH1});
  const std::string before = HashStep(built.step, built.ledger);
  const auto changes = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = built.step;
    change(step);
    EXPECT_NE(HashStep(step, built.ledger), before) << what;
  };
  changes("the optimizer", [](Step& s) { s.optimizer = "lion"; });
  changes("zero_stage", [](Step& s) { --s.zero_stage; });
  changes("has_head", [](Step& s) { s.has_head = false; });
  changes("trains", [](Step& s) { s.trains = false; });
  changes("has_update", [](Step& s) { s.has_update = false; });
  changes("num_micro_batches", [](Step& s) { ++s.num_micro_batches; });
  changes("a stage", [](Step& s) { ++s.stage_begin[1]; });
  changes("where a stage lies",
          [](Step& s) { std::swap(s.placement.stage_ranks[0], s.placement.stage_ranks[1]); });
  changes("a group's axis", [](Step& s) { s.groups[0].axis = layout::Axis::kTp; });
  changes("a group's stream", [](Step& s) { ++s.groups[0].stream; });
  changes("a group's classes", [](Step& s) { s.groups.back().classes.pop_back(); });
  changes("a class left out", [](Step& s) { s.programs.pop_back(); });
  for (size_t c = 0; c < built.step.programs.size(); ++c) {
    const Program& program = built.step.programs[c];
    const auto in = [&](const char* what, const std::function<void(Program&)>& change) {
      changes(what, [&](Step& s) { change(s.programs[c]); });
    };
    in("num_micro_batches", [](Program& p) { ++p.num_micro_batches; });
    in("a stream's name", [](Program& p) { p.streams[0].name += "x"; });
    in("a stream's peer", [](Program& p) { ++p.streams.back().peer; });
    in("a stream's direction", [](Program& p) { p.streams.back().sends = !p.streams.back().sends; });
    in("a parameter slot", [](Program& p) { ++p.parameter_slots[0].numel; });
    in("a gradient slot", [](Program& p) { ++p.gradient_slots[0].value; });
    in("the receive buffer", [](Program& p) { ++p.receive_buffer_bytes; });
    in("the order of instructions", [](Program& p) { std::swap(p.instructions[1], p.instructions[2]); });
    for (size_t v = 0; v < program.values.size(); ++v) {
      in("a value's bytes", [&](Program& p) { ++p.values[v].bytes; });
      in("a value's block", [&](Program& p) { ++p.values[v].block; });
      in("a value's micro-batch", [&](Program& p) { ++p.values[v].micro_batch; });
      in("persistent", [&](Program& p) { p.values[v].persistent = !p.values[v].persistent; });
      in("a value's kind", [&](Program& p) {
        p.values[v].kind = p.values[v].kind == ValueKind::kSaved ? ValueKind::kQueued : ValueKind::kSaved;
      });
      in("a value's category", [&](Program& p) {
        p.values[v].category =
            p.values[v].category == Category::kOptimizer ? Category::kGradients : Category::kOptimizer;
      });
    }
    for (size_t at = 0; at < program.instructions.size(); at += 7) {
      const auto of = [at](Program& p) -> Instruction& { return p.instructions[at]; };
      in("op", [&](Program& p) { of(p).op = of(p).op == Op::kLoss ? Op::kForward : Op::kLoss; });
      in("stream", [&](Program& p) { ++of(p).stream; });
      in("block", [&](Program& p) { ++of(p).block; });
      in("bucket", [&](Program& p) { ++of(p).bucket; });
      in("micro_batch", [&](Program& p) { ++of(p).micro_batch; });
      in("slot", [&](Program& p) { ++of(p).slot; });
      in("peer", [&](Program& p) { ++of(p).peer; });
      in("keep", [&](Program& p) { of(p).keep = !of(p).keep; });
      in("first", [&](Program& p) { of(p).first = !of(p).first; });
      in("joined", [&](Program& p) { of(p).joined = !of(p).joined; });
      in("peak_extra_bytes", [&](Program& p) { ++of(p).peak_extra_bytes; });
      using List = Ids Instruction::*;
      for (const List list : {&Instruction::waits, &Instruction::parameter_slots, &Instruction::groups,
                              &Instruction::reads, &Instruction::writes, &Instruction::frees}) {
        in("a list", [&](Program& p) { (of(p).*list).push_back(0); });
      }
      in("a gradient", [&](Program& p) { of(p).gradients.push_back({}); });
      in("an instruction left out",
         [&](Program& p) { p.instructions.erase(p.instructions.begin() + static_cast<std::ptrdiff_t>(at)); });
      if (program.instructions[at].gradients.empty()) continue;
      in("a gradient's slot", [&](Program& p) { ++of(p).gradients[0].slot; });
      in("accumulate", [&](Program& p) { of(p).gradients[0].accumulate ^= true; });
      in("accumulate_weights", [&](Program& p) { of(p).gradients[0].accumulate_weights ^= true; });
    }
  }
}

// Numbers that move from one list to the next are another step.
TEST(StepHash, ListsDoNotRunIntoEachOther) {
  const Built built = BuildSmall(0, 1);
  Step a = built.step, b = built.step;
  a.programs[0].instructions[0].reads = {1, 2};
  a.programs[0].instructions[0].writes = {};
  b.programs[0].instructions[0].reads = {1};
  b.programs[0].instructions[0].writes = {2};
  EXPECT_NE(HashStep(a, built.ledger), HashStep(b, built.ledger));
}

TEST(StepHash, WhatIsHashedAsItRunsIsTheHashOfTheWholeForEveryClass) {
  const BuiltCase built = Build({.stage = 2,
                                 .mesh = {.pp = 3, .dp_shard = 2},
                                 .num_micro_batches = 4,
                                 .layers = 4,
                                 .pipeline = PipelineKind::k1F1B});
  for (size_t c = 0; c < built.step.programs.size(); ++c) {
    StepHasher hasher(built.step, built.ledger, static_cast<int>(c));
    for (const Instruction& instruction : built.step.programs[c].instructions) hasher.Add(instruction);
    EXPECT_EQ(hasher.Finish(), HashStep(built.step, built.ledger));
  }
}

}  // namespace
}  // namespace trainctl::schedule
