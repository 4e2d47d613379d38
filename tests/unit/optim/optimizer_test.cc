// The table of optimizers, and twenty updates of each against PyTorch's (tests/goldens/optimizers.json).

#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "kernels/kernels.h"

namespace trainctl::optim {
namespace {

using Floats = std::vector<float>;

TEST(Optimizers, EveryRowIsComplete) {
  std::set<std::string> names;
  for (const Optimizer* optimizer : All()) {
    SCOPED_TRACE(optimizer->name);
    EXPECT_TRUE(names.insert(std::string(optimizer->name)).second);
    EXPECT_EQ(Find(optimizer->name), optimizer);
    EXPECT_FALSE(optimizer->summary.empty());
    EXPECT_GT(optimizer->defaults.lr, 0);
    EXPECT_LE(optimizer->states.size(), kMaxStates);
    for (const StateKind& state : optimizer->states) EXPECT_FALSE(state.meaning.empty());
  }
  EXPECT_EQ(Find("adam"), nullptr);
}

// A checkpoint tells its optimizer by the names of its states.
TEST(Optimizers, NoTwoKeepStatesOfTheSameNames) {
  std::set<std::vector<absl::string_view>> seen;
  for (const Optimizer* optimizer : All()) {
    std::vector<absl::string_view> kept;
    for (const StateKind& state : optimizer->states) kept.push_back(state.name);
    EXPECT_TRUE(seen.insert(kept).second) << optimizer->name;
  }
}

// AdamW reads gradient, parameter and two moments and writes the last three, of 4 bytes each.
TEST(Optimizers, BytesOfAnElement) {
  EXPECT_EQ(kAdamW.StateBytes(), 2 * 4);
  EXPECT_EQ(kAdamW.MovedBytes(DType::kF32), (4 + 3) * 4);
  EXPECT_EQ(kAdamW.MovedBytes(DType::kBF16), (4 + 1) * 4 + 2 * 2);
  for (const char* name : {"lion", "sgd"}) {
    EXPECT_EQ(Find(name)->StateBytes(), 4) << name;
    EXPECT_EQ(Find(name)->MovedBytes(DType::kF32), (3 + 2) * 4) << name;
  }
}

TEST(Optimizers, NamesInCheckpoints) {
  EXPECT_EQ(kAdamW.states[0].TensorPrefix(), "optimizer.exp_avg/");
  EXPECT_EQ(kAdamW.states[1].TensorPrefix(), "optimizer.exp_avg_sq/");
  EXPECT_EQ(Find("sgd")->states[0].TensorPrefix(), "optimizer.momentum_buffer/");
}

TEST(Optimizers, AnUpdateOfAPartLeavesTheRest) {
  for (const Optimizer* optimizer : All()) {
    Floats master(8, 1.0f), a(8, 0.5f), b(8, 0.25f);
    const Floats gradient(8, 2.0f);
    const Parts parts = {master.data(), {a.data(), b.data()}};
    const kernels::UpdateRange range = RangeOf(*optimizer, DType::kF32, parts, gradient.data(), 3, 2);
    const kernels::UpdateOptions options = {
        .lr = 0.5f, .beta1 = 0.5f, .beta2 = 0.5f, .eps = 1, .momentum = 0.5f};
    kernels::Cpu().masters_f32.For(optimizer->rule)(&range, 1, &options);
    for (size_t i = 0; i < 8; ++i) {
      const bool inside = i == 3 || i == 4;
      EXPECT_EQ(master[i] != 1.0f, inside) << optimizer->name << " " << i;
      EXPECT_EQ(a[i] != 0.5f, inside) << optimizer->name << " " << i;
      EXPECT_EQ(b[i] != 0.25f, inside && optimizer->states.size() > 1) << optimizer->name << " " << i;
    }
  }
}

// What a run does with gradients that somebody else computed: the first half of the parameters decays.
class AgainstPyTorch : public ::testing::TestWithParam<const Optimizer*> {
 protected:
  AgainstPyTorch() {
    const std::string path = TRAINCTL_SOURCE_DIR "/tests/goldens/optimizers.json";
    golden_ = *ParseJson(*ReadFile(path), path);
  }

  kernels::UpdateOptions Options(const Json& options, int64_t step) const {
    kernels::UpdateOptions o{.lr = golden_["lr"][static_cast<size_t>(step)]};
    if (options.contains("betas")) {
      o.beta1 = options["betas"][0];
      o.beta2 = options["betas"][1];
    }
    if (options.contains("eps")) o.eps = options["eps"];
    if (options.contains("momentum")) o.momentum = options["momentum"];
    if (GetParam()->prepare != nullptr) GetParam()->prepare(step + 1, o);
    return o;
  }

  Json golden_;
};

TEST_P(AgainstPyTorch, TwentyUpdates) {
  constexpr double kTolerance = 1e-6;
  const Optimizer& optimizer = *GetParam();
  const Json& expected = golden_["optimizers"][std::string(optimizer.name)];
  Floats master = golden_["initial"];
  const auto numel = static_cast<int64_t>(master.size());
  std::vector<Floats> states(kMaxStates, Floats(master.size()));
  Parts parts{master.data()};
  for (size_t k = 0; k < optimizer.states.size(); ++k) parts.states[k] = states[k].data();
  double moved = 0;
  for (size_t step = 0; step < golden_["lr"].size(); ++step) {
    const Floats gradient = golden_["gradients"][step];
    kernels::UpdateOptions options = Options(expected["options"], static_cast<int64_t>(step));
    options.weight_decay = expected["options"]["weight_decay"];
    kernels::UpdateRange ranges[2];
    for (size_t half = 0; half < 2; ++half) {
      ranges[half] = RangeOf(optimizer, DType::kF32, parts, gradient.data(),
                             static_cast<int64_t>(half) * numel / 2, numel / 2);
      ranges[half].decays = half == 0;
    }
    const kernels::MasterKernels& masters = kernels::Cpu().masters_f32;
    double squares = 0;
    const double loss = 0;
    masters.sum_of_squares(&squares, ranges, 2);
    masters.clip_factor(&options.factor, &loss, &squares, golden_["clip_norm"]);
    masters.For(optimizer.rule)(ranges, 2, &options);
    for (size_t i = 0; i < master.size(); ++i) {
      const double wanted = expected["parameters"][step][i];
      EXPECT_NEAR(master[i], wanted, kTolerance) << "step " << step << ", element " << i;
      moved = std::max(moved, std::abs(wanted - golden_["initial"][i].get<double>()));
    }
  }
  EXPECT_GT(moved, 1e-2) << "a run that stands still shows nothing";
  EXPECT_EQ(expected["states"].size(), optimizer.states.size());
  for (size_t k = 0; k < optimizer.states.size(); ++k) {
    const Json& wanted = expected["states"][std::string(optimizer.states[k].name)];  // PyTorch's name
    for (size_t i = 0; i < master.size(); ++i) EXPECT_NEAR(states[k][i], wanted[i].get<double>(), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AgainstPyTorch, ::testing::ValuesIn(All().begin(), All().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace trainctl::optim
