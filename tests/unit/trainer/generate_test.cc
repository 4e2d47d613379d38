// Generating and exporting in this process, with weights as a run begins with them.

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/json.h"
#include "device/counting_allocator.h"
#include "model/special_tokens.h"
#include "tokenizer/utf8.h"
#include "trainer/block_weights.h"
#include "trainer/context_reader.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    model::Architecture& spec = recipe_.model.spec;
    SetNumLayers(spec, 2);
    spec.hidden = 32;
    SetEach(spec, &model::Attention::heads, 4);
    SetEach(spec, &model::Attention::kv_heads, 2);
    SetEach(spec, &model::Attention::head_dim, 8);
    SetEach(spec, &model::Mlp::ffn, 48);
    spec.vocab = 256;
    spec.max_position = 16;
    spec.init_std = 0.5;  // far from a tie between the most likely tokens
    deps_.recipe = &recipe_;
    deps_.model_files_path = folder_ + "/model-files";
  }
  ~GenerateTest() override { (void)RemoveAll(folder_); }

  void KeepModelFile(const std::string& name, const std::string& text) {
    ASSERT_TRUE(MakeDirs(deps_.model_files_path).ok());
    ASSERT_TRUE(WriteFileAtomic(deps_.model_files_path + "/" + name, text).ok());
  }

  // What is written for `prompt`, the prompt first.
  std::vector<std::string> Pieces(const std::string& prompt, int64_t max_tokens) {
    notes_.clear();
    std::vector<std::string> pieces;
    const auto generated = RunGenerate(deps_, {.prompt = prompt, .max_tokens = max_tokens, .temperature = 0},
                                       {.write =
                                            [&](const std::string& text) {
                                              pieces.push_back(text);
                                              return absl::OkStatus();
                                            },
                                        .note = [&](const std::string& text) { notes_.push_back(text); }});
    EXPECT_TRUE(generated.ok()) << generated.status();
    if (generated.ok()) generated_ = *generated;
    if (!generated_.late_note.empty()) notes_.push_back(generated_.late_note);
    return pieces;
  }

  // The most likely bytes after `prompt`, each from a whole forward over all that the model may see.
  std::vector<int32_t> LikelyBytes(const std::string& prompt, int count) {
    const std::unique_ptr<BlockWeights> weights = *BlockWeights::Open(deps_);
    std::vector<int32_t> text;
    for (const char c : prompt) text.push_back(static_cast<unsigned char>(c));
    const auto window = static_cast<size_t>(weights->spec().max_position);
    size_t begin = 0;
    for (int i = 0; i < count; ++i) {
      if (text.size() - begin > window) begin = text.size() - window / 2;
      ContextReader reader(
          weights->spec(), [&](int block) { return weights->Of(block); }, weights->spec().max_position,
          /*threads=*/1);
      const at::Tensor logits = *reader.Read(absl::MakeConstSpan(text).subspan(begin));
      const float* values = logits.data_ptr<float>();
      text.push_back(static_cast<int32_t>(std::max_element(values, values + 256) - values));
    }
    return {text.end() - count, text.end()};
  }

  std::string folder_ = "/tmp/trainctl-generate-XXXXXX";
  recipe::Recipe recipe_;
  InferenceDeps deps_;
  std::vector<std::string> notes_;
  Generated generated_;
};

std::string Together(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

std::string AsText(const std::vector<int32_t>& bytes) {
  return tokenizer::RepairUtf8(std::string(bytes.begin(), bytes.end()));
}

TEST_F(GenerateTest, WritesWhatAWholeForwardForEachTokenWouldFarBeyondTheWindow) {
  const std::vector<std::string> pieces = Pieces("int ", 60);
  EXPECT_EQ(Together(pieces), "int " + AsText(LikelyBytes("int ", 60)));
  for (const std::string& piece : pieces) EXPECT_TRUE(tokenizer::IsUtf8(piece)) << piece;
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("at most 16 tokens")));
  // As it comes: more than one piece long before the end.
  EXPECT_GT(std::count_if(pieces.begin(), pieces.end(), [](const auto& p) { return !p.empty(); }), 3);
}

// Of a model that is larger than the memory for it no more than a block and what stays is there at a time.
TEST_F(GenerateTest, WeightsForWhichThereIsNoRoomAreReadAnew) {
  device::InstallCountingAllocator();
  SetNumLayers(recipe_.model.spec, 6);
  const std::string whole = Together(Pieces("int ", 20));
  const std::unique_ptr<BlockWeights> all = *BlockWeights::Open(deps_);
  EXPECT_TRUE(all->all_stay());
  int64_t total = 0;
  for (const model::Parameter& parameter : all->inventory())
    total += parameter.numel * int64_t{sizeof(float)};
  for (const bool tied : {false, true}) {
    recipe_.model.spec.tie_embeddings = tied;
    const auto graph =
        model::BuildGraph(recipe_.model.spec, model::Inventory(recipe_.model.spec), /*options=*/{});
    const std::unique_ptr<BlockWeights> every = *BlockWeights::Open(deps_);
    for (int block = 0; block < model::NumBlocks(recipe_.model.spec); ++block)
      ASSERT_TRUE(every->Of(block).ok());
    for (const int64_t bytes : {total / 2, int64_t{1}}) {
      deps_.weight_bytes = bytes;
      const std::unique_ptr<BlockWeights> some = *BlockWeights::Open(deps_);
      EXPECT_FALSE(some->all_stay());
      const int64_t before = device::LiveTensorBytes();
      int64_t most = 0;
      for (int round = 0; round < 2; ++round) {
        for (int block = 0; block < model::NumBlocks(recipe_.model.spec); ++block) {
          const std::vector<int>& parameters = graph->blocks[static_cast<size_t>(block)].parameters;
          const nn::BoundParameters& bound = **some->Of(block);
          const nn::BoundParameters& expected = **every->Of(block);
          ASSERT_EQ(bound.size(), parameters.size());
          for (size_t i = 0; i < parameters.size(); ++i) {
            const int64_t numel = some->inventory()[static_cast<size_t>(parameters[i])].numel;
            EXPECT_EQ(
                std::memcmp(bound[i].data, expected[i].data, static_cast<size_t>(numel) * sizeof(float)), 0);
          }
          if (round > 0) most = std::max(most, device::LiveTensorBytes() - before);
        }
      }
      EXPECT_LE(most, bytes > 1 ? bytes + total / 100 : total / 3);
      EXPECT_GT(most, 0);
    }
    deps_.weight_bytes = 0;
  }
  recipe_.model.spec.tie_embeddings = false;
  deps_.weight_bytes = 1;
  EXPECT_EQ(Together(Pieces("int ", 20)), whole);
}

TEST_F(GenerateTest, APromptLongerThanTheWindowIsContinuedFromItsEnd) {
  const std::string prompt = "a prompt that is longer than the window";
  EXPECT_EQ(Together(Pieces(prompt, 5)), prompt + AsText(LikelyBytes(prompt, 5)));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("its newest 8")));
  EXPECT_THAT(generated_.late_note, IsEmpty());  // it came before the text
  // The text fills the window of 16 tokens without a token that goes beyond it.
  (void)Pieces("short", 12);
  EXPECT_THAT(notes_, IsEmpty());
  (void)Pieces("short", 13);
  EXPECT_THAT(generated_.late_note, HasSubstr("its newest 8"));
}

TEST_F(GenerateTest, EndsWithEachOfTheModelsEnds) {
  const std::vector<int32_t> bytes = LikelyBytes("int ", 12);
  ASSERT_EQ(Together(Pieces("int ", 12)), "int " + AsText(bytes));
  const auto first = [&](int32_t byte) { return std::find(bytes.begin(), bytes.end(), byte); };
  const auto until = [&](auto end) { return "int " + AsText({bytes.begin(), end}); };
  ASSERT_NE(first(bytes[4]), first(bytes[9]));
  // Whichever file names the one that comes first.
  for (const auto& [in_config, in_list] : {std::pair(bytes[4], bytes[9]), std::pair(bytes[9], bytes[4])}) {
    KeepModelFile("generation_config.json", "{}");
    KeepModelFile("config.json", absl::StrCat("{\"eos_token_id\": ", in_config, "}"));
    EXPECT_EQ(Together(Pieces("int ", 12)), until(first(in_config)));
    KeepModelFile("generation_config.json", absl::StrCat("{\"eos_token_id\": [255, ", in_list, "]}"));
    EXPECT_EQ(Together(Pieces("int ", 12)), until(std::min(first(in_config), first(in_list))));
    EXPECT_TRUE(generated_.ended);
    EXPECT_EQ(generated_.tokens,
              std::vector<int32_t>(bytes.begin(), std::min(first(in_config), first(in_list))));
  }
}

TEST_F(GenerateTest, EndsWhereTheTextCannotBeWritten) {
  int num_written = 0;
  const auto generated =
      RunGenerate(deps_, {.prompt = "x", .max_tokens = 1000},
                  {.write =
                       [&](const std::string&) {
                         return ++num_written < 3 ? absl::OkStatus() : EnvironmentError("Broken pipe");
                       },
                   .note = [](const std::string&) {}});
  EXPECT_THAT(generated.status().message(), HasSubstr("Broken pipe"));
  EXPECT_EQ(num_written, 3);
}

// At a temperature of 1,000 all 256 bytes are about as likely, so those that have half of the probability
// together are about 128.
TEST_F(GenerateTest, TopPSamplesAmongTheMostLikelyTokens) {
  const auto first_byte = [&](double temperature, double top_p, uint64_t seed) {
    std::string text;
    const auto write = [&](const std::string& piece) {
      text += piece;
      return absl::OkStatus();
    };
    EXPECT_TRUE(
        RunGenerate(
            deps_, {.prompt = "x", .max_tokens = 1, .temperature = temperature, .top_p = top_p, .seed = seed},
            {.write = write, .note = [](const std::string&) {}})
            .ok());
    return text;
  };
  const std::string likeliest = first_byte(0, 1, 0);
  std::set<std::string> half, all;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    EXPECT_EQ(first_byte(1000, 1e-9, seed), likeliest);
    half.insert(first_byte(1000, 0.5, seed));
    all.insert(first_byte(1000, 1, seed));
  }
  EXPECT_TRUE(half.contains(likeliest));
  // Bytes above 127 are not characters and look alike, so 300 draws find 58 (88) texts on average.
  EXPECT_LT(half.size() * 5, all.size() * 4);
}

TEST_F(GenerateTest, AnExportHasTheIdsAndFilesThatTheRunKeeps) {
  KeepModelFile("config.json", R"({"bos_token_id": 1, "eos_token_id": [2, 7], "pad_token_id": null})");
  KeepModelFile("generation_config.json", R"({"eos_token_id": 7, "temperature": 0.6})");
  KeepModelFile("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast"})");
  const std::string out = folder_ + "/out";
  const absl::StatusOr<Exported> exported = RunExport(deps_, out, /*bf16=*/false);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(FolderEntries(out), ElementsAre("config.json", "generation_config.json", "model.safetensors",
                                              "tokenizer_config.json"));
  std::vector<std::string> said;
  for (const ExportedFile& file : exported->files) said.push_back(file.name);
  EXPECT_EQ(said, FolderEntries(out));
  EXPECT_EQ(*model::ReadSpecialTokens(*ReadFile(out + "/config.json"), "config.json"),
            (model::SpecialTokens{.bos = {1}, .eos = {2, 7}}));
  EXPECT_EQ(*ReadFile(out + "/generation_config.json"), R"({"eos_token_id": 7, "temperature": 0.6})");
  // The run's copy of config.json describes no model.
  EXPECT_THAT(exported->notes, ElementsAre(HasSubstr("config.json was written from scratch")));
}

TEST_F(GenerateTest, AnExportKeepsTheFoldersOwnConfigExceptForWhatChanged) {
  constexpr char kConfig[] =
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "use_cache": true,
    "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": 256, "max_position_embeddings": 16, "rms_norm_eps": 1e-5,
    "initializer_range": 0.5, "dtype": "bfloat16", "eos_token_id": 7,
    "layer_types": ["full_attention", "full_attention", "full_attention"]})";
  KeepModelFile("config.json", kConfig);
  const std::string out = folder_ + "/out";
  const absl::StatusOr<Exported> exported = RunExport(deps_, out, /*bf16=*/false);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(*ReadFile(out + "/config.json"),
            absl::StrReplaceAll(kConfig,
                                {{"layers\": 3", "layers\": 2"},
                                 {"bfloat16", "float32"},
                                 {R"("layer_types": ["full_attention", "full_attention", "full_attention"])",
                                  R"("layer_types": ["full_attention","full_attention"])"}}));
  EXPECT_THAT(exported->notes, IsEmpty());
}

TEST_F(GenerateTest, AnExportOfBytesSaysWhereATextEnds) {
  recipe_.model.spec.vocab = 257;
  const std::string out = folder_ + "/out";
  ASSERT_TRUE(RunExport(deps_, out, /*bf16=*/true).ok());
  EXPECT_EQ(*model::ReadSpecialTokens(*ReadFile(out + "/config.json"), "config.json"),
            (model::SpecialTokens{.eos = {256}}));
}

}  // namespace
}  // namespace trainctl::trainer
