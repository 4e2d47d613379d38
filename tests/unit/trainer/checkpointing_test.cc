// What checkpoints hold of each optimizer, and what becomes of one that is loaded by another layout or
// another optimizer.

#include "trainer/checkpointing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "model/architecture.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "optim/optimizer.h"
#include "parallel/sharded_state.h"
#include "schedule/build_step.h"
#include "trainer/finite_weights.h"

namespace trainctl::trainer {
namespace {

using ::testing::HasSubstr;

// A rank's state of a layout, with numbers that say which tensor and element they are of.
struct Rank {
  Rank(const model::Architecture& spec, const optim::Optimizer& optimizer, layout::Mesh mesh, int stage,
       int rank, schedule::Types types = {})
      : ledger(model::Inventory(spec), mesh, stage),
        step(schedule::BuildStep(
            schedule::GraphOf(spec, ledger,
                              {.setting = {.seq_len = 16, .types = types, .optimizer = &optimizer}}),
            ledger, {.setting = {.seq_len = 16, .types = types, .optimizer = &optimizer}})),
        state(device::Device::Cpu(), ledger, step.programs[0], step.types, rank, optimizer) {}

  // f(value, tensor, element): of master and states, 0, 1, 2, and of every parameter.
  template <typename F>
  void ForEach(F f) {
    for (const layout::Bucket& bucket : ledger.buckets()) {
      const optim::Parts& parts = state.parts(bucket.id);
      std::vector<float*> kinds = {static_cast<float*>(parts.master)};
      for (size_t k = 0; k < state.optimizer().states.size(); ++k)
        kinds.push_back(static_cast<float*>(parts.states[k]));
      for (const layout::ParameterRange& range : state.OwnRanges(bucket.id)) {
        for (size_t kind = 0; kind < kinds.size(); ++kind) {
          for (int64_t i = 0; i < range.count; ++i)
            f(kinds[kind][range.offset + i], kind * 100 + static_cast<size_t>(range.parameter),
              range.begin + i);
        }
      }
    }
  }
  void MarkAll() {
    ForEach([](float& value, size_t tensor, int64_t element) { value = Mark(tensor, element); });
  }
  int64_t NumWrong() {
    int64_t wrong = 0;
    ForEach([&](float value, size_t tensor, int64_t element) { wrong += value != Mark(tensor, element); });
    return wrong;
  }
  static float Mark(size_t tensor, int64_t element) {
    return static_cast<float>(tensor) + static_cast<float>(element % 4096) / 8192;
  }

  layout::Ledger ledger;
  schedule::Step step;
  parallel::ShardedState state;
};

class Checkpointing : public ::testing::TestWithParam<const optim::Optimizer*> {
 protected:
  Checkpointing() : spec_(*model::Preset("toy-1m")) {
    std::string pattern = ::testing::TempDir() + "trainctl-checkpoint-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Checkpointing() override { (void)RemoveAll(folder_); }

  // As one rank that has all of it.
  std::string Save(const optim::Optimizer& optimizer) {
    Rank whole(spec_, optimizer, {}, 0, 0);
    whole.MarkAll();
    return Save(whole);
  }
  std::string Save(Rank& whole) {
    const auto communicator =
        *comm::Communicator::Create(device::Device::Cpu(), nullptr, 0, 1, absl::Seconds(1));
    comm::Group world = communicator->MakeHostGroup({0}, "world");
    const auto written = SaveCheckpoint({.root = folder_, .description_json = "{}"}, whole.state,
                                        {.step = 7, .updates = 6, .tokens = 5}, world);
    EXPECT_TRUE(written.ok()) << written.status();
    return folder_ + "/step-00000007";
  }

  const model::Architecture spec_;
  std::string folder_;
};

TEST_P(Checkpointing, AnyLayoutLoadsTheState) {
  const std::string path = Save(*GetParam());
  for (const int stage : {1, 2, 3}) {
    for (int rank = 0; rank < 2; ++rank) {
      Rank half(spec_, *GetParam(), {.dp_shard = 2}, stage, rank);
      const auto counters = LoadCheckpoint(path, half.state, /*weights_only=*/false);
      ASSERT_TRUE(counters.ok()) << counters.status();
      EXPECT_EQ(*counters, (RunCounters{7, 6, 5}));
      EXPECT_EQ(half.NumWrong(), 0) << "stage " << stage << ", rank " << rank;
    }
  }
}

// Two replicas of three shards, which begin and end within rows.
TEST_P(Checkpointing, WhatManyRanksSaveOneRankLoads) {
  const layout::Mesh mesh{.dp_replicate = 2, .dp_shard = 3};
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::unique_ptr<RankSave>> saves;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    Rank& own = *ranks.emplace_back(std::make_unique<Rank>(spec_, *GetParam(), mesh, 2, rank));
    own.MarkAll();
    const SaveOptions options{.root = folder_, .description_json = "{}"};
    const PartsOf parts = [&own](int bucket) -> const optim::Parts& { return own.state.parts(bucket); };
    saves.push_back(std::make_unique<RankSave>(options, device::Device::Cpu(), own.state, parts,
                                               RunCounters{.step = 7, .updates = 6, .tokens = 5}));
  }
  while (saves[0]->phase() != SavePhase::kDone) {
    for (const auto& save : saves) {
      const absl::Status done = save->Do(nullptr);
      ASSERT_TRUE(done.ok()) << done;
      save->Advance();
    }
  }
  Rank whole(spec_, *GetParam(), {}, 0, 0);
  const auto counters = LoadCheckpoint(folder_ + "/step-00000007", whole.state, false);
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_EQ(whole.NumWrong(), 0);
}

// Weights that were trained in bf16 alone start a run with masters in fp32, and the other way round, whatever
// the layout.
TEST_P(Checkpointing, WeightsOfEitherTypeAreLoadedAsTheMastersAre) {
  constexpr schedule::Types kAlone = {.compute = DType::kBF16, .master = DType::kBF16};
  Rank alone(spec_, *GetParam(), {}, 0, 0, kAlone);
  alone.state.Initialize(5);
  Rank in_fp32(spec_, *GetParam(), {}, 0, 0);
  ASSERT_TRUE(LoadCheckpoint(Save(alone), in_fp32.state, /*weights_only=*/true).ok());
  for (const layout::Bucket& bucket : alone.ledger.buckets()) {
    const auto* narrow = static_cast<const uint16_t*>(alone.state.parts(bucket.id).master);
    const auto* wide = static_cast<const float*>(in_fp32.state.parts(bucket.id).master);
    for (int64_t i = 0; i < bucket.numel; ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), uint32_t{narrow[i]} << 16) << bucket.id << ' ' << i;
  }
  in_fp32.state.SetMaster(1, 3, {1.00390625f});  // half-way from 1 to the next bf16: to even
  const std::string path = Save(in_fp32);
  for (int rank = 0; rank < 2; ++rank) {
    Rank half(spec_, *GetParam(), {.dp_shard = 2}, /*stage=*/3, rank, kAlone);
    ASSERT_TRUE(LoadCheckpoint(path, half.state, /*weights_only=*/true).ok());
    for (const layout::Bucket& bucket : half.ledger.buckets()) {
      const int64_t first = half.state.first_element(bucket.id);
      const auto* here = static_cast<const uint16_t*>(half.state.parts(bucket.id).master);
      const auto* whole = static_cast<const uint16_t*>(alone.state.parts(bucket.id).master) + first;
      for (const layout::ParameterRange& range : half.state.OwnRanges(bucket.id)) {
        for (int64_t i = range.offset; i < range.offset + range.count; ++i) {
          const bool is_set = bucket.id == 1 && first + i == 3;
          ASSERT_EQ(here[i], is_set ? 0x3f80 : whole[i]) << bucket.id << ' ' << i;
        }
      }
    }
  }
}

TEST_P(Checkpointing, AnotherOptimizersStateIsRefusedAndItsParametersAreTaken) {
  const std::string path = Save(*GetParam());
  for (const optim::Optimizer* other : optim::All()) {
    if (other == GetParam()) continue;
    Rank rank(spec_, *other, {}, 0, 0);
    const absl::Status status = LoadCheckpoint(path, rank.state, /*weights_only=*/false).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("the state of ", GetParam()->name, "; ", other->name, " keeps ")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("model.weights = \"" + path + "\""));
    ASSERT_TRUE(LoadCheckpoint(path, rank.state, /*weights_only=*/true).ok());
    int64_t wrong = 0;
    rank.ForEach([&](float value, size_t tensor, int64_t element) {
      wrong += value != (tensor < 100 ? Rank::Mark(tensor, element) : 0.0f);
    });
    EXPECT_EQ(wrong, 0);
  }
}

TEST_P(Checkpointing, WeightsThatAreNotFiniteAreNotSavedAndOptimizerStatesMayBe) {
  const auto communicator =
      *comm::Communicator::Create(device::Device::Cpu(), nullptr, 0, 1, absl::Seconds(1));
  comm::Group world = communicator->MakeHostGroup({0}, "world");
  for (const size_t kind : {0, 1}) {
    Rank whole(spec_, *GetParam(), {}, 0, 0);
    whole.MarkAll();
    whole.ForEach([&](float& value, size_t tensor, int64_t element) {
      if (tensor == 100 * kind + 3 && element == 1) value = std::nanf("");
    });
    EXPECT_EQ(AllWeightsAreFinite(whole.state, world).value(), kind == 1);
    const absl::Status saved = SaveCheckpoint({.root = folder_, .description_json = "{}"}, whole.state,
                                              {.step = 7, .updates = 6, .tokens = 5}, world)
                                   .status();
    if (kind == 1) {
      EXPECT_TRUE(saved.ok()) << saved;
      continue;
    }
    EXPECT_EQ(ExitCodeFor(saved), ExitCode::kCheckFailed) << saved;
    EXPECT_THAT(std::string(saved.message()), HasSubstr(whole.ledger.inventory()[3].name));
    EXPECT_FALSE(PathExists(folder_ + "/step-00000007"));
  }
}

using CheckpointOfAdamW = Checkpointing;
TEST_F(CheckpointOfAdamW, WhatIsMissingIsNamed) {
  const std::string path = Save(optim::kAdamW);
  Rank sgd(spec_, *optim::Find("sgd"), {}, 0, 0);
  EXPECT_EQ(LoadCheckpoint(path, sgd.state, false).status().message(),
            path +
                " contains exp_avg, exp_avg_sq, the state of adamw; sgd keeps momentum_buffer; missing: "
                "momentum_buffer. Resume with the optimizer that saved it, or start a new run from only its "
                "parameters: model.weights = \"" +
                path + "\"");
}

INSTANTIATE_TEST_SUITE_P(All, Checkpointing, ::testing::ValuesIn(optim::All().begin(), optim::All().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace trainctl::trainer
