// The trainer against transformers and PyTorch: logits, loss, every gradient and twenty AdamW steps
// of tiny models, in fp32. The expected numbers lie in tests/goldens, with the script that made them.

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors.h"
#include "comm/communicator.h"
#include "device/aten.h"
#include "model/architecture.h"
#include "model/config_json.h"
#include "model/folder_form.h"
#include "model/parameter_groups.h"
#include "model/parameters.h"
#include "parallel/executor.h"
#include "recipe/recipe.h"
#include "trainer/checkpointing.h"
#include "trainer/context_reader.h"

namespace trainctl {
namespace {

constexpr double kLogitTolerance = 5e-5;
constexpr double kGradientTolerance = 1e-4;  // of the parameter's gradient norm
constexpr double kGradientFloor = 1e-3;      // of the norm of all gradients, for those that vanish
constexpr double kLossTolerance = 1e-5;
constexpr double kNormTolerance = 1e-4;

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  TRAINCTL_CHECK_MSG(result.ok(), result.status().message());
  return *std::move(result);
}
void OrDie(const absl::Status& status) { TRAINCTL_CHECK_MSG(status.ok(), status.message()); }

// One safetensors file in memory.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path) : bytes_(OrDie(ReadFile(path))) {
    const auto* data = reinterpret_cast<const std::byte*>(bytes_.data());
    const auto file_bytes = static_cast<int64_t>(bytes_.size());
    const int64_t length = OrDie(checkpoint::ParseSafetensorsLength({data, 8}, file_bytes, path));
    header_ = OrDie(checkpoint::ParseSafetensorsHeader(
        absl::string_view(bytes_).substr(8, static_cast<size_t>(length)), file_bytes, path));
  }

  const std::vector<int64_t>& Shape(const std::string& name) const { return Find(name).shape; }

  template <typename T>
  std::vector<T> Get(const std::string& name, DType dtype) const {
    const checkpoint::TensorInfo& info = Find(name);
    TRAINCTL_CHECK_MSG(info.dtype == dtype, name, " is ", DTypeName(info.dtype));
    std::vector<T> values(static_cast<size_t>(info.num_bytes) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + header_.data_offset + info.offset_bytes,
                static_cast<size_t>(info.num_bytes));
    return values;
  }

  int64_t CountPrefix(absl::string_view prefix) const {
    return std::count_if(header_.tensors.begin(), header_.tensors.end(), [&](const auto& tensor) {
      return absl::string_view(tensor.name).substr(0, prefix.size()) == prefix;
    });
  }

 private:
  const checkpoint::TensorInfo& Find(const std::string& name) const {
    for (const checkpoint::TensorInfo& info : header_.tensors) {
      if (info.name == name) return info;
    }
    TRAINCTL_CHECK_MSG(false, "no tensor is named ", name);
    std::abort();
  }

  std::string bytes_;
  checkpoint::SafetensorsHeader header_;
};

struct Golden {
  explicit Golden(const std::string& variant)
      : folder(absl::StrCat(TRAINCTL_SOURCE_DIR, "/tests/goldens/", variant)),
        spec(OrDie(
            model::FromHuggingFaceConfig(OrDie(ReadFile(folder + "/config.json")), folder + "/config.json"))),
        file(folder + "/golden.safetensors"),
        tokens(file.Get<int32_t>("tokens", DType::kI32)),
        targets(file.Get<int32_t>("targets", DType::kI32)),
        positions(file.Get<int32_t>("positions", DType::kI32)),
        document(file.Get<int32_t>("document", DType::kI32)),
        mask(file.Get<uint8_t>("mask", DType::kU8)),
        steps(file.Shape("tokens")[0]),
        batch(file.Shape("tokens")[1]),
        seq_len(file.Shape("tokens")[2]) {}

  nn::TokenView View(int64_t step, int64_t first_sequence) const {
    const auto i = static_cast<size_t>((step * batch + first_sequence) * seq_len);
    return {&tokens[i], &targets[i], &positions[i], &document[i], &mask[i]};
  }

  std::string folder;
  model::Architecture spec;
  TensorFile file;
  std::vector<int32_t> tokens, targets, positions, document;  // [steps, batch, seq_len]
  std::vector<uint8_t> mask;
  int64_t steps, batch, seq_len;
};

// Our trainer in one process, with the golden weights.
class Trainer {
 public:
  Trainer(const Golden& golden, int num_micro_batches, layout::Recompute recompute)
      : golden_(golden),
        ledger_(model::Inventory(golden.spec), layout::Mesh{}, /*zero_stage=*/0),
        options_{.micro_batch = golden.batch / num_micro_batches,
                 .num_micro_batches = num_micro_batches,
                 .recompute = recompute,
                 .setting = {.seq_len = golden.seq_len}},
        step_(schedule::BuildStep(schedule::GraphOf(golden.spec, ledger_, options_), ledger_, options_)),
        communicator_(
            OrDie(comm::Communicator::Create(device::Device::Cpu(), nullptr, 0, 1, absl::Seconds(1)))),
        groups_(OrDie(parallel::Groups::Make(*communicator_, ledger_.mesh(), step_))),
        state_(device::Device::Cpu(), ledger_, step_.programs[0], options_.setting.types, 0,
               *options_.setting.optimizer) {
    OrDie(trainer::LoadModelFolder(golden.folder, state_));
    OrDie(state_.MaterializeParameters(groups_.Of(layout::Axis::kDpShard, schedule::kGatherStream)));
    executor_ = std::make_unique<parallel::Executor>(golden.spec, state_, groups_, options_);
  }

  const layout::Ledger& ledger() const { return ledger_; }

  parallel::StepResult Step(int64_t step, const parallel::UpdateOptions& update) {
    std::vector<nn::TokenView> views;
    for (int m = 0; m < options_.num_micro_batches; ++m)
      views.push_back(golden_.View(step, m * options_.micro_batch));
    return OrDie(executor_->RunStep(step_, views, update));
  }

  std::vector<float> Gradient(int parameter) const {
    const model::Parameter& p = ledger_.inventory()[static_cast<size_t>(parameter)];
    const float* gradient = static_cast<float*>(state_.full_gradient(ledger_.bucket_of(parameter))) +
                            ledger_.offset_of(parameter);
    return {gradient, gradient + p.numel};
  }

  nn::BoundParameters Bound(int block) const { return Bound(*step_.graph, block); }

  nn::BoundParameters Bound(const model::Graph& graph, int block) const {
    nn::BoundParameters bound;
    for (const int parameter : graph.blocks[static_cast<size_t>(block)].parameters) {
      bound.push_back({static_cast<float*>(state_.parameters(ledger_.bucket_of(parameter))) +
                       ledger_.offset_of(parameter)});
    }
    return bound;
  }

  // Through the blocks one by one, without a step. [rows, vocab]
  at::Tensor Logits(const std::vector<int64_t>& rows) const { return LogitsOf(golden_.spec, rows); }

  // The logits of another model with the same weights.
  at::Tensor LogitsOf(const model::Architecture& spec, const std::vector<int64_t>& rows) const {
    const std::vector<nn::RopeTables> rope =
        nn::MakeRopeTables(device::Device::Cpu(), model::AnglesOf(spec), golden_.seq_len);
    const nn::TokenView view = golden_.View(0, 0);
    const auto graph =
        model::BuildGraph(spec, ledger_.inventory(), {.shape = {golden_.batch, golden_.seq_len}});
    at::Tensor hidden;
    for (int block = 0;; ++block) {
      const nn::SegmentRunner runner(device::Device::Cpu(), graph->segment(block), rope.data(),
                                     /*threads=*/1);
      if (block + 1 == graph->num_blocks()) return runner.Logits(Bound(*graph, block), hidden, rows);
      hidden = runner.Forward(Bound(*graph, block), hidden, view, nullptr);
    }
  }

 private:
  const Golden& golden_;
  layout::Ledger ledger_;
  schedule::BuildOptions options_;
  schedule::Step step_;
  std::unique_ptr<comm::Communicator> communicator_;
  parallel::Groups groups_;
  parallel::ShardedState state_;
  std::unique_ptr<parallel::Executor> executor_;
};

double Norm(const std::vector<float>& values) {
  double squares = 0;
  for (float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// The trainer outlives the result.
trainer::ContextReader::ParametersOf WholeModel(const Trainer& trainer) {
  const auto bound = std::make_shared<nn::BoundParameters>();
  return [&trainer, bound](int block) -> absl::StatusOr<const nn::BoundParameters*> {
    *bound = trainer.Bound(block);
    return bound.get();
  };
}

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
  Golden golden_{GetParam()};
};

TEST_P(GoldenTest, LogitsAreThoseOfTransformers) {
  const std::vector<int32_t> stored_rows = golden_.file.Get<int32_t>("logit_rows", DType::kI32);
  const std::vector<float> expected = golden_.file.Get<float>("logits", DType::kF32);
  const Trainer trainer(golden_, 1, layout::Recompute::kNone);
  const at::Tensor logits =
      trainer.Logits(std::vector<int64_t>(stored_rows.begin(), stored_rows.end())).contiguous();
  ASSERT_EQ(logits.numel(), static_cast<int64_t>(expected.size()));
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(logits.data_ptr<float>()[i]) - expected[i]));
  RecordProperty("worst", absl::StrCat(worst));
  EXPECT_LE(worst, kLogitTolerance);
}

struct Switch {
  const char* name;
  void (*take_away)(model::Architecture& spec);  // does nothing if the model does not have it
};

constexpr Switch kSwitches[] = {
    {"window", [](model::Architecture& s) { SetWindow(s, 0); }},
    {"scale", [](model::Architecture& s) { SetEach(s, &model::Attention::scale, 0); }},
    {"softcap", [](model::Architecture& s) { SetEach(s, &model::Attention::softcap, 0); }},
    {"rope", [](model::Architecture& s) { SetEach(s, &model::Attention::rope, false); }},
    {"layers without rope",
     [](model::Architecture& s) { SetEach(s, &model::Attention::rope, s.learned_positions == 0); }},
    {"window_rope_theta", [](model::Architecture& s) { s.window_rope_theta = 0; }},
    {"rope scaling", [](model::Architecture& s) { s.rope.scaling.reset(); }},
    {"rope pairs", [](model::Architecture& s) { s.rope.pairs = kernels::RopePairs::kHalves; }},
    {"attention factor",
     [](model::Architecture& s) {
       if (s.rope.scaling && model::AttentionFactorOf(*s.rope.scaling) != 1)
         s.rope.scaling->attention_factor = 1;
     }},
    {"rope share",
     [](model::Architecture& s) {
       s.rope.share = 1;
       if (!s.rope.scaling || s.rope.scaling->kind != model::RopeScalingKind::kLongRope) return;
       const auto num_pairs = static_cast<size_t>(model::RotatedDim(s) / 2);
       for (std::vector<double>* divisors : {&s.rope.scaling->short_factor, &s.rope.scaling->long_factor})
         divisors->resize(num_pairs, 1);
     }},
    {"qk norm", [](model::Architecture& s) { SetEach(s, &model::Attention::qk_norm, model::QkNorm::kNone); }},
    {"qk norm after rope",
     [](model::Architecture& s) {
       if (model::AttentionOf(s).qk_norm == model::QkNorm::kHeadAfterRope)
         SetEach(s, &model::Attention::qk_norm, model::QkNorm::kHead);
     }},
    {"qkv bias", [](model::Architecture& s) { SetEach(s, &model::Attention::qkv_bias, false); }},
    {"output bias", [](model::Architecture& s) { SetEach(s, &model::Attention::out_bias, false); }},
    {"mlp bias", [](model::Architecture& s) { SetEach(s, &model::Mlp::bias, false); }},
    {"head bias", [](model::Architecture& s) { s.head_bias = false; }},
    {"activation",
     [](model::Architecture& s) { SetEach(s, &model::Mlp::activation, kernels::Activation::kSiLU); }},
    {"gain", [](model::Architecture& s) { s.norm.gain = kernels::Gain::kWeight; }},
    {"norm bias", [](model::Architecture& s) { s.norm.bias = false; }},
    {"norms after",
     [](model::Architecture& s) {
       if (model::NormPlacesOf(s) == model::NormPlaces::kBeforeAndAfter)
         SetEach(s, &model::Layer::norms, model::NormPlaces::kBefore);
     }},
    {"positions", [](model::Architecture& s) { s.learned_positions = 0; }},
    {"scales_embedding", [](model::Architecture& s) { s.scales_embedding = false; }},
    {"embedding_multiplier", [](model::Architecture& s) { s.embedding_multiplier = 1; }},
    {"residual_multiplier", [](model::Architecture& s) { s.residual_multiplier = 1; }},
    {"logit_multiplier", [](model::Architecture& s) { s.logit_multiplier = 1; }},
    {"logit_softcap", [](model::Architecture& s) { s.logit_softcap = 0; }},
};

// A field that is read but not honored would make no difference.
TEST_P(GoldenTest, EverySwitchOfTheFamilyChangesTheLogits) {
  const std::vector<int32_t> stored_rows = golden_.file.Get<int32_t>("logit_rows", DType::kI32);
  const std::vector<int64_t> rows(stored_rows.begin(), stored_rows.end());
  const Trainer trainer(golden_, 1, layout::Recompute::kNone);
  const at::Tensor logits = trainer.Logits(rows);
  for (const Switch& one : kSwitches) {
    model::Architecture without = golden_.spec;
    one.take_away(without);
    if (without == golden_.spec) continue;
    if (without.norm.bias != golden_.spec.norm.bias && golden_.spec.norm.kind == model::NormKind::kRms)
      continue;
    const double change = (trainer.LogitsOf(without, rows) - logits).abs().max().item<double>();
    EXPECT_GE(change, 10 * kLogitTolerance) << one.name;
  }
}

// Token by token and in chunks, document by document: keys and values that are kept give the logits that
// transformers computes of whole sequences.
TEST_P(GoldenTest, LogitsOfAGrowingTextAreThoseOfTransformers) {
  const std::vector<int32_t> stored_rows = golden_.file.Get<int32_t>("logit_rows", DType::kI32);
  const std::vector<float> expected = golden_.file.Get<float>("logits", DType::kF32);
  const Trainer trainer(golden_, 1, layout::Recompute::kNone);
  double worst = 0;
  for (const int64_t chunk : {1, 3}) {
    for (size_t i = 0; i < stored_rows.size(); ++i) {
      const auto end = static_cast<size_t>(stored_rows[i]) + 1;
      size_t begin = end - 1;
      while (golden_.positions[begin] > 0) --begin;
      // transformers turns all tokens by the angles of the whole sequence, but a shorter text by others.
      if (const auto& scaling = golden_.spec.rope.scaling;
          scaling && UsesLongFactor(*scaling, golden_.seq_len) &&
          !UsesLongFactor(*scaling, static_cast<int64_t>(end - begin))) {
        continue;
      }
      trainer::ContextReader reader(golden_.spec, WholeModel(trainer), golden_.seq_len, /*threads=*/1);
      at::Tensor logits;
      for (size_t read = begin; read < end;) {
        read = std::min(end, read + static_cast<size_t>(chunk));
        logits = *reader.Read({&golden_.tokens[begin], read - begin});
      }
      const int64_t vocab = golden_.spec.vocab;
      for (int64_t v = 0; v < vocab; ++v) {
        worst = std::max(worst, std::abs(static_cast<double>(logits.data_ptr<float>()[v]) -
                                         expected[i * static_cast<size_t>(vocab) + static_cast<size_t>(v)]));
      }
    }
  }
  RecordProperty("worst", absl::StrCat(worst));
  EXPECT_LE(worst, kLogitTolerance);
}

// By the rule as it is said: a full window of 8 loses its older half.
TEST_P(GoldenTest, ATextBeyondTheWindowGoesOnFromItsNewerHalf) {
  const Trainer trainer(golden_, 1, layout::Recompute::kNone);
  const absl::Span<const int32_t> text(golden_.tokens.data(), 30);
  trainer::ContextReader reader(golden_.spec, WholeModel(trainer), /*window=*/8, /*threads=*/1);
  size_t begin = 0;
  for (size_t end = 1; end <= text.size(); ++end) {
    if (end - begin > 8) begin = end - 4;
    const at::Tensor logits = *reader.Read(text.first(end));
    trainer::ContextReader anew(golden_.spec, WholeModel(trainer), /*window=*/8, /*threads=*/1);
    const at::Tensor whole = *anew.Read(text.subspan(begin, end - begin));
    EXPECT_LE(logits.sub(whole).abs().max().item<double>(), kLogitTolerance) << end;
  }
}

// A parameter's part of the gradient of the tensor that contains it.
std::vector<float> GradientIn(const TensorFile& file, const model::Parameter& parameter) {
  const model::FolderPlace place = model::PlaceInFolder(parameter);
  const std::vector<float> whole = file.Get<float>("gradient/" + place.tensor, DType::kF32);
  const int64_t rows = parameter.shape[0], cols = parameter.numel / rows;
  const int64_t all_rows = static_cast<int64_t>(whole.size()) / cols;
  std::vector<float> part;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = place.first + r / place.block * place.period + r % place.block;
    for (int64_t c = 0; c < cols; ++c)
      part.push_back(whole[static_cast<size_t>(place.transposed ? c * all_rows + row : row * cols + c)]);
  }
  return part;
}

TEST_P(GoldenTest, LossAndEveryGradientAreThoseOfPyTorch) {
  Trainer trainer(golden_, 1, layout::Recompute::kNone);
  parallel::UpdateOptions update;
  update.apply = false;
  const parallel::StepResult result = trainer.Step(0, update);
  EXPECT_NEAR(result.loss, golden_.file.Get<double>("loss", DType::kF64)[0], kLossTolerance);
  EXPECT_EQ(result.loss_tokens,
            std::count(golden_.mask.begin(), golden_.mask.begin() + golden_.batch * golden_.seq_len, 1));

  const std::vector<model::Parameter>& inventory = trainer.ledger().inventory();
  // Not a gradient more than we know of: a bias that we left out would be one.
  std::set<std::string> tensors;
  for (const model::Parameter& parameter : inventory) tensors.insert(model::PlaceInFolder(parameter).tensor);
  ASSERT_EQ(golden_.file.CountPrefix("gradient/"), static_cast<int64_t>(tensors.size()));
  std::vector<std::vector<float>> expected;
  double squares = 0;
  for (const model::Parameter& parameter : inventory) {
    expected.push_back(GradientIn(golden_.file, parameter));
    squares += std::pow(Norm(expected.back()), 2);
  }
  EXPECT_NEAR(result.grad_norm, std::sqrt(squares), kNormTolerance * std::sqrt(squares));
  double worst = 0;
  for (size_t i = 0; i < inventory.size(); ++i) {
    std::vector<float> difference = trainer.Gradient(static_cast<int>(i));
    ASSERT_EQ(difference.size(), expected[i].size()) << inventory[i].name;
    for (size_t k = 0; k < difference.size(); ++k) difference[k] -= expected[i][k];
    const double error = Norm(difference) / std::max(Norm(expected[i]), kGradientFloor * std::sqrt(squares));
    EXPECT_LE(error, kGradientTolerance) << inventory[i].name;
    worst = std::max(worst, error);
  }
  RecordProperty("worst", absl::StrCat(worst));
}

// AdamW as the script sets it. The parameters without decay are those of our default recipe.
parallel::UpdateOptions Update(const layout::Ledger& ledger, int64_t step) {
  parallel::UpdateOptions update;
  update.lr = 1e-3f;
  update.beta1 = 0.9f;
  update.beta2 = 0.95f;
  update.eps = 1e-8f;
  update.weight_decay = 0.1f;
  update.clip_norm = 1.0;
  update.update_number = step + 1;
  for (const model::Parameter& parameter : ledger.inventory()) {
    const std::vector<std::string> spared = recipe::OptimizerConfig().no_decay;
    update.decay.push_back(std::none_of(spared.begin(), spared.end(), [&](const std::string& selector) {
      return model::IsSelected(selector, parameter);
    }));
  }
  return update;
}

double WorstLossOfTraining(const Golden& golden, int num_micro_batches, layout::Recompute recompute) {
  Trainer trainer(golden, num_micro_batches, recompute);
  const std::vector<double> losses = golden.file.Get<double>("losses", DType::kF64);
  const std::vector<double> norms = golden.file.Get<double>("grad_norms", DType::kF64);
  EXPECT_EQ(golden.steps, 20);
  EXPECT_EQ(losses.size(), 20u);
  double worst = 0;
  for (int64_t step = 0; step < golden.steps; ++step) {
    const auto i = static_cast<size_t>(step);
    const parallel::StepResult result = trainer.Step(step, Update(trainer.ledger(), step));
    EXPECT_TRUE(result.finite);
    EXPECT_NEAR(result.grad_norm, norms[i], kNormTolerance * norms[i]) << "step " << step;
    worst = std::max(worst, std::abs(result.loss - losses[i]));
  }
  return worst;
}

TEST_P(GoldenTest, TwentyStepsOfAdamWAreThoseOfPyTorch) {
  const double worst = WorstLossOfTraining(golden_, 1, layout::Recompute::kNone);
  RecordProperty("worst", absl::StrCat(worst));
  EXPECT_LE(worst, kLossTolerance);
}

TEST_P(GoldenTest, AccumulationAndRecomputeChangeNothing) {
  const double worst =
      WorstLossOfTraining(golden_, static_cast<int>(golden_.batch), layout::Recompute::kFull);
  RecordProperty("worst", absl::StrCat(worst));
  EXPECT_LE(worst, kLossTolerance);
}

TEST(LoadModelFolderTest, WeightsThatTheModelHasNoPlaceForAreAnError) {
  const Golden golden("biased");
  const auto load = [&](const model::Architecture& spec) {
    const layout::Ledger ledger(model::Inventory(spec), layout::Mesh{}, 0);
    const schedule::BuildOptions options{.micro_batch = golden.batch, .setting = {.seq_len = golden.seq_len}};
    parallel::ShardedState state(
        device::Device::Cpu(), ledger,
        schedule::BuildStep(schedule::GraphOf(spec, ledger, options), ledger, options).programs[0],
        options.setting.types, 0, optim::kAdamW);
    return trainer::LoadModelFolder(golden.folder, state);
  };
  EXPECT_TRUE(load(golden.spec).ok());
  model::Architecture unbiased = golden.spec;
  SetEach(unbiased, &model::Mlp::bias, false);
  const absl::Status status = load(unbiased);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("mlp.down_proj.bias"));
  // A tied model has no place for a separate head.
  model::Architecture tied = golden.spec;
  tied.tie_embeddings = true;
  EXPECT_THAT(std::string(load(tied).message()), testing::HasSubstr("lm_head.weight differs from"));
}

// IEEE 754 half precision, by its definition, of a finite value.
double ValueOfHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(LoadModelFolderTest, F16WeightsHaveTheirValuesAsFloats) {
  // The embedding has an element for each of the 65,536 halves. Non-finite halves would be rejected, so they
  // are written as finite ones without the highest bit of the exponent.
  const auto half = [](int64_t i) {
    const auto bits = static_cast<uint16_t>(i);
    return (bits >> 10 & 31) == 31 ? static_cast<uint16_t>(bits & ~(1 << 14)) : bits;
  };
  const model::Architecture spec = model::LlamaOf(
      {.layers = 1, .hidden = 32, .ffn = 8, .heads = 1, .kv_heads = 1, .head_dim = 32, .vocab = 2048});
  const std::string folder = absl::StrCat(testing::TempDir(), "trainctl_f16_", ::getpid());
  std::vector<checkpoint::ModelTensorSpec> tensors;
  for (const model::Parameter& parameter : model::Inventory(spec))
    tensors.push_back({parameter.name, DType::kF16, parameter.shape});
  const auto count_up = [&](const checkpoint::ModelTensorSpec&, int64_t begin, absl::Span<std::byte> bytes) {
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      const uint16_t bits = half(begin / 2 + static_cast<int64_t>(i) / 2);
      std::memcpy(bytes.data() + i, &bits, 2);
    }
    return absl::OkStatus();
  };
  OrDie(checkpoint::WriteModelFolder(folder, tensors, count_up, int64_t{1} << 30));
  const layout::Ledger ledger(model::Inventory(spec), layout::Mesh{}, 0);
  const schedule::BuildOptions options{.micro_batch = 1, .setting = {.seq_len = 4}};
  parallel::ShardedState state(
      device::Device::Cpu(), ledger,
      schedule::BuildStep(schedule::GraphOf(spec, ledger, options), ledger, options).programs[0],
      options.setting.types, 0, optim::kAdamW);
  OrDie(trainer::LoadModelFolder(folder, state));
  int64_t wrong = 0;
  for (const layout::HeldBox& held : ledger.BoxesHeld(0)) {
    const float* values = static_cast<float*>(state.parts(held.bucket).master) + held.offset;
    for (int64_t i = 0; i < held.box.Count(); ++i) {
      wrong += static_cast<double>(values[i]) == ValueOfHalf(half(i)) ? 0 : 1;
    }
  }
  EXPECT_EQ(wrong, 0);
  OrDie(RemoveAll(folder));
}

INSTANTIATE_TEST_SUITE_P(
    Variants, GoldenTest,
    testing::Values("plain", "gqa", "tied", "rope_scaled", "biased", "packed", "qwen3", "mistral", "gemma",
                    "starcoder2", "arcee", "nemotron", "stablelm", "helium", "ernie4_5", "rope_linear",
                    "mistral_window", "qwen2_window", "ministral", "gemma2", "vaultgemma", "gemma3",
                    "granite", "smollm3", "cohere", "cohere2", "exaone4", "phi", "phi3", "glm", "glm4",
                    "gpt_neox", "gpt2", "rope_yarn", "rope_yarn_mscale", "qwen2_yarn", "phi3_longrope_short",
                    "phi3_longrope_long", "gpt_bigcode", "gptj", "opt", "granitemoehybrid",
                    "gpt_neox_sequential", "falcon", "falcon_40b", "internlm3", "exaone", "internlm2",
                    "olmo2", "olmo3", "hunyuan_v1_dense", "llama_relu", "opt_gelu"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trainctl
