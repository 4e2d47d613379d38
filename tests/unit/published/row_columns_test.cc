#include "published/row_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "tests/unit/published/score_rows.h"

namespace trainctl::published {
namespace {

using ::testing::HasSubstr;
using Cells = std::map<std::string, std::string>;

absl::StatusOr<std::string> ReadNoFile(const std::string& path) {
  return UsageError(absl::StrCat(path, ": no such file"));
}

PublishedRun Read(const Cells& changes, const FileReader& read_file = ReadNoFile) {
  const auto runs = ReadPublishedRuns(Header() + Row(changes), "r.csv", read_file);
  EXPECT_TRUE(runs.ok()) << runs.status();
  return runs.ok() ? (*runs)[0] : PublishedRun{};
}

std::string ErrorOf(const Cells& changes, const FileReader& read_file = ReadNoFile) {
  const auto runs = ReadPublishedRuns(Header() + Row() + Row(changes), "r.csv", read_file);
  if (runs.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(runs.status()), ExitCode::kBadData);
  return std::string(runs.status().message());
}

Cells With(Cells cells, const Cells& more) {
  for (const auto& [column, cell] : more) cells[column] = cell;
  return cells;
}

const Cells kMixture = {{"model", "DeepSeek-V3 671B-A37B"},
                        {"layers", ""},
                        {"hidden", ""},
                        {"ffn", ""},
                        {"heads", ""},
                        {"kv_heads", ""},
                        {"vocab", ""},
                        {"seq_len", "4096"},
                        {"gpu_type", "GB200"},
                        {"n_gpus", "256"},
                        {"pp", "4"},
                        {"vpp", "4"},
                        {"ep", "64"},
                        {"dp_shard", "zero1"},
                        {"global_batch_seqs", "2048"},
                        {"precision", "mxfp8"}};

// Words that say much to people.
const Cells kWords = {{"source", "pytorch/ao@1:bigscience/torchtune.md"},
                      {"notes", "nvidia-smi; OOM; 4x100Gb RoCE; rowwise; sect; micro_num=9; LoRA"},
                      {"optimizer", "8bit"}};

TEST(RowColumns, NothingIsReadFromNotesAndSource) {
  Cells row = {{"framework", "torchtitan"}, {"global_batch_seqs", ""}, {"tokens_per_sec_per_gpu", ""}};
  const PublishedRun plain = Read(row);
  const PublishedRun with_words = Read(With(row, kWords));
  ASSERT_TRUE(plain.workload.has_value() && with_words.workload.has_value());
  EXPECT_TRUE(*plain.workload == *with_words.workload);
  EXPECT_EQ(plain.metric, with_words.metric);
  EXPECT_EQ(with_words.outcome, RunOutcome::kUnknown);
}

TEST(RowColumns, ASwitchOfTheFrameworkIsTheRowsAlone) {
  const Cells row = {{"framework", "torchtitan"}};
  const PublishedRun usual = Read(row);
  const PublishedRun scores = Read(With(row, {{"settings", "attention=scores"}}));
  ASSERT_TRUE(usual.workload.has_value() && scores.workload.has_value());
  EXPECT_EQ(usual.workload->framework, frameworks::FindFramework("torchtitan"));
  EXPECT_EQ(scores.workload->framework->attention, frameworks::AttentionKernel::kScores);
  // Scores of 8,192 tokens are written and read.
  EXPECT_GT(frameworks::PriceTime(*scores.workload).step_seconds,
            1.1 * frameworks::PriceTime(*usual.workload).step_seconds);
  EXPECT_STREQ(scores.workload->framework->name, "torchtitan");
  // Two rows that say the same are one job.
  const auto both =
      ReadPublishedRuns(Header() + Row(With(row, {{"settings", "attention=scores"}})) +
                            Row(With(row, {{"settings", "attention = scores"}, {"notes", "again"}})),
                        "r.csv");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_TRUE(*(*both)[0].workload == *(*both)[1].workload);
  EXPECT_EQ((*both)[0].configuration, (*both)[1].configuration);
}

TEST(RowColumns, SettingsSayWhatNoOtherColumnDoes) {
  const Cells row = {
      {"framework", "megatron-core"}, {"dp_shard", "zero1"},         {"n_gpus", "64"}, {"pp", "4"},
      {"peak_mem_gib", "40"},         {"tokens_per_sec_per_gpu", ""}};
  const auto with = [&](const char* settings) { return Read(With(row, {{"settings", settings}})); };
  EXPECT_EQ(with("outcome=out-of-memory").outcome, RunOutcome::kOutOfMemory);
  EXPECT_EQ(with("").outcome, RunOutcome::kRan);
  EXPECT_NEAR(with("memory_unit=GB").measured_memory_gib, 40 * 1e9 / (1 << 30), 1e-9);
  EXPECT_EQ(with("memory_figure=first-step").metric, frameworks::MemoryMetric::kFirstStep);
  EXPECT_EQ(with("schedule=zb-h1").workload->Pipeline(), schedule::PipelineKind::kZbH1);
  EXPECT_EQ(with("stage_layers=9+8+8+7").workload->stage_layers, (std::vector<int64_t>{9, 8, 8, 7}));
  EXPECT_FALSE(with("stage_layers=9+8").workload.has_value());
  EXPECT_NE(with("variant=a").configuration, with("variant=b").configuration);
}

TEST(ModelConfig, FieldsThatDifferChangeTheKnownModel) {
  const Cells row = With(kMixture, {{"framework", "megatron-bridge"}, {"activation_recompute", "none"}});
  const PublishedRun known = Read(row);
  ASSERT_TRUE(known.workload.has_value()) << known.reason;
  EXPECT_EQ(NumDenseLayers(known.workload->model), 3);  // config.json of deepseek-ai/DeepSeek-V3
  const PublishedRun other =
      Read(With(row, {{"model_config", R"({"first_k_dense_replace": 1, "n_shared_experts": 2})"}}));
  ASSERT_TRUE(other.workload.has_value()) << other.reason;
  model::Architecture expected = known.workload->model;
  model::Experts experts = *FindExperts(expected);
  experts.shared_ffn = 2 * 2048;
  SetExperts(expected, experts, /*dense_layers=*/1);
  EXPECT_TRUE(other.workload->model == expected);
  EXPECT_THAT(other.reason, HasSubstr("first_k_dense_replace = 1"));
  // Of a model without a name the columns have the rest.
  const PublishedRun mine = Read({{"framework", "torchtitan"},
                                  {"model", "mine"},
                                  {"model_config", R"({"head_dim": 64, "tie_word_embeddings": true})"}});
  EXPECT_EQ(AttentionOf(mine.workload->model).head_dim, 64);
  EXPECT_EQ(mine.workload->model.hidden, 4096);
  EXPECT_TRUE(mine.workload->model.tie_embeddings);
}

constexpr char kMixtral[] =
    R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2})";

TEST(ModelConfig, AWholeOneIsTheModelWhateverItsName) {
  Cells row = {{"framework", "megatron-core"}, {"model", "nemotron bloom gpt"}, {"vocab", ""}};
  row["model_config"] = kMixtral;
  const PublishedRun text = Read(row);
  ASSERT_TRUE(text.workload.has_value()) << text.reason;
  EXPECT_EQ(FindExperts(text.workload->model)->num_experts, 8);
  EXPECT_EQ(text.workload->model.vocab, 32000);
  EXPECT_TRUE(MlpOf(text.workload->model).gated);
  row["model_config"] = "models/mixtral.json";
  const PublishedRun file = Read(row, [](const std::string& path) -> absl::StatusOr<std::string> {
    EXPECT_EQ(path, "models/mixtral.json");
    return std::string(kMixtral);
  });
  EXPECT_TRUE(file.workload->model == text.workload->model);
}

TEST(RowColumns, AMistakeNamesItsRowAndColumn) {
  EXPECT_THAT(ErrorOf({{"framework", "torchtitn"}}),
              HasSubstr("r.csv:3: framework: 'torchtitn' is not known; nearest: torchtitan"));
  EXPECT_THAT(ErrorOf({{"framework", ""}, {"settings", "compiled=yes"}}),
              HasSubstr("r.csv:3: settings: need a framework"));
  EXPECT_THAT(ErrorOf({{"framework", "fsdp1"}, {"settings", "attention=flash9"}}),
              HasSubstr("r.csv:3: settings: attention is 'flash9' but must be one of scores"));
  const auto config_error = [](const char* config, const FileReader& reader = ReadNoFile) {
    return ErrorOf({{"framework", "fsdp1"}, {"model_config", config}}, reader);
  };
  EXPECT_THAT(config_error("{"), HasSubstr("r.csv:3: model_config: "));
  EXPECT_THAT(config_error(R"({"first_k_dense": 1})"),
              HasSubstr("'first_k_dense' is not a field that a model may differ in; nearest: "
                        "first_k_dense_replace"));
  EXPECT_THAT(config_error(R"({"head_dim": "64"})"),
              HasSubstr("head_dim is \"64\" but must be a whole number"));
  EXPECT_THAT(config_error(R"({"mlp_bias": 1})"), HasSubstr("must be true or false"));
  EXPECT_THAT(config_error(R"({"head_dim": -1})"), HasSubstr("must be a whole number"));
  EXPECT_THAT(config_error(R"({"model_type": "mixtra"})"), HasSubstr("field 'model_type'"));
  EXPECT_THAT(config_error("m/config.json"), HasSubstr("model_config: m/config.json: no such file"));
  EXPECT_THAT(config_error("m/config.json", {}), HasSubstr("files are not read here"));
  EXPECT_THAT(config_error(R"({"num_hidden_layers": 16})"),
              HasSubstr("model_config: says 16 where the column layers says 32"));
  EXPECT_EQ(config_error(R"({"num_hidden_layers": 32})"), "OK");
}

}  // namespace
}  // namespace trainctl::published
