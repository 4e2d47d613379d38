#include "checkpoint/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "checkpoint/model_weights.h"
#include "checkpoint/odd_weights.h"
#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A file written by the reference library (PyPI safetensors 0.8.0): safetensors.numpy.save({"b.weight":
// arange(6, float32).reshape(2, 3), "a.weight": arange(3, float16), "c": [7, -1] int64, "d": [True, False],
// "e": 1.5 float64, "f": zeros((0, 4), float32), "g": [3] uint8, "h": [9] int32, "i": [65535] uint16},
// {"format": "pt"}).
std::string ReferenceFile() {
  return absl::HexStringToBytes("2002000000000000") +
         R"({"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
         R"("e":{"dtype":"F64","shape":[],"data_offsets":[16,24]},)"
         R"("b.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[24,48]},)"
         R"("f":{"dtype":"F32","shape":[0,4],"data_offsets":[48,48]},)"
         R"("h":{"dtype":"I32","shape":[1],"data_offsets":[48,52]},)"
         R"("a.weight":{"dtype":"F16","shape":[3],"data_offsets":[52,58]},)"
         R"("i":{"dtype":"U16","shape":[1],"data_offsets":[58,60]},)"
         R"("g":{"dtype":"U8","shape":[1],"data_offsets":[60,61]},)"
         R"("d":{"dtype":"BOOL","shape":[2],"data_offsets":[61,63]}} )" +
         absl::HexStringToBytes(
             "0700000000000000ffffffffffffffff000000000000f83f000000000000803f0000004000004040000080400000a04"
             "0"
             "090000000000003c0040ffff030100");
}

std::vector<ModelTensorSpec> SpecsOf(const ModelFolder& folder) {
  std::vector<ModelTensorSpec> specs;
  for (const ModelTensor& tensor : folder.tensors())
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  return specs;
}

ModelTensorReader CopyFrom(const ModelFolder& folder) {
  return [&folder](const ModelTensorSpec& spec, int64_t begin, absl::Span<std::byte> bytes) {
    return folder.Read(*folder.Find(spec.name), begin, bytes);
  };
}

std::string BytesOf(const ModelFolder& folder, const ModelTensor& tensor) {
  std::string bytes(static_cast<size_t>(tensor.num_bytes), '\0');
  const absl::Status status =
      folder.Read(tensor, 0, absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

std::string RefusalOf(const std::string& path) {
  const auto folder = ModelFolder::Open(path);
  EXPECT_EQ(ExitCodeFor(folder.status()), ExitCode::kBadData) << folder.status();
  return std::string(folder.status().message());
}

// What is not there is not damaged.
std::string AbsenceOf(const std::string& path) {
  const auto folder = ModelFolder::Open(path);
  EXPECT_EQ(ExitCodeFor(folder.status()), ExitCode::kEnvironment) << folder.status();
  return std::string(folder.status().message());
}

TEST(ModelFolder, AFileOfTheReferenceLibraryIsReadAndWrittenBackByteForByte) {
  TempFolder temp;
  WriteOrDie(temp.path() + "/model.safetensors", ReferenceFile());
  const auto folder = ModelFolder::Open(temp.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_EQ(folder->tensors().size(), 9u);
  const std::string weight = BytesOf(*folder, *folder->Find("b.weight"));
  float values[6];
  ASSERT_EQ(weight.size(), sizeof values);
  std::memcpy(values, weight.data(), sizeof values);
  EXPECT_THAT(values, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(folder->Find("f")->shape, ElementsAre(0, 4));

  const std::string copy = temp.path() + "/copy";
  ASSERT_TRUE(WriteModelFolder(copy, SpecsOf(*folder), CopyFrom(*folder), int64_t{1} << 30).ok());
  EXPECT_EQ(*ReadFile(copy + "/model.safetensors"), ReferenceFile());
}

TEST(ModelFolder, ShardsAreNamedFilledAndIndexedAsHuggingFaceDoes) {
  TempFolder temp;
  // 40, 40, 100, 8 and 8 bytes with a limit of 80: [a b] [c alone, over the limit] [d e].
  const std::vector<ModelTensorSpec> specs = {{"b", DType::kF32, {10}},
                                              {"a", DType::kF32, {2, 5}},
                                              {"c", DType::kU8, {100}},
                                              {"d", DType::kI64, {1}},
                                              {"e", DType::kBF16, {4}}};
  const auto fill = [](const ModelTensorSpec& spec, int64_t begin, absl::Span<std::byte> bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = ExpectedByte(3, StreamOf(spec.name), begin + static_cast<int64_t>(i));
    }
    return absl::OkStatus();
  };
  ASSERT_TRUE(WriteModelFolder(temp.path(), specs, fill, 80).ok());
  EXPECT_EQ(*ReadFile(temp.path() + "/model.safetensors.index.json"),
            "{\n  \"metadata\": {\n    \"total_size\": 196\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"model-00001-of-00003.safetensors\",\n"
            "    \"b\": \"model-00001-of-00003.safetensors\",\n"
            "    \"c\": \"model-00002-of-00003.safetensors\",\n"
            "    \"d\": \"model-00003-of-00003.safetensors\",\n"
            "    \"e\": \"model-00003-of-00003.safetensors\"\n  }\n}\n");
  const auto folder = ModelFolder::Open(temp.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_EQ(folder->tensors().size(), 5u);
  EXPECT_EQ(folder->files().size(), 3u);
  for (const ModelTensor& tensor : folder->tensors()) {
    const std::string bytes = BytesOf(*folder, tensor);
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(static_cast<std::byte>(bytes[i]),
                ExpectedByte(3, StreamOf(tensor.name), static_cast<int64_t>(i)));
    }
  }
  // A folder that was loaded and saved has the same files.
  const std::string copy = temp.path() + "/copy";
  std::vector<ModelTensorSpec> again = specs;
  ASSERT_TRUE(WriteModelFolder(copy, again, CopyFrom(*folder), 80).ok());
  for (const std::string& name : folder->files()) {
    EXPECT_EQ(*ReadFile(copy + "/" + name), *ReadFile(temp.path() + "/" + name)) << name;
  }
  // Ranged read, and one beyond the tensor.
  std::byte two[2];
  EXPECT_TRUE(folder->Read(*folder->Find("c"), 98, two).ok());
  EXPECT_EQ(two[1], ExpectedByte(3, StreamOf("c"), 99));
  EXPECT_EQ(ExitCodeFor(folder->Read(*folder->Find("c"), 99, two)), ExitCode::kInternal);
}

TEST(ModelFolder, LargeTensorsPassThroughInParts) {
  TempFolder temp;
  const std::vector<ModelTensorSpec> specs = {{"large", DType::kBF16, {1'234'567}}, {"odd", DType::kU8, {3}}};
  int64_t next = 0;
  ASSERT_TRUE(WriteModelFolder(
                  temp.path(), specs,
                  [&](const ModelTensorSpec& spec, int64_t begin, absl::Span<std::byte> bytes) {
                    if (spec.name == "large") {
                      EXPECT_EQ(begin, next);
                      EXPECT_EQ(bytes.size() % 2, 0u);
                      next += static_cast<int64_t>(bytes.size());
                    }
                    std::fill(bytes.begin(), bytes.end(), std::byte{1});
                    return absl::OkStatus();
                  },
                  int64_t{1} << 30)
                  .ok());
  EXPECT_EQ(next, 2 * 1'234'567);
  EXPECT_TRUE(ModelFolder::Open(temp.path()).ok());
}

TEST(ModelFolder, AFolderThatHoldsWeightsIsNotOverwritten) {
  TempFolder temp;
  WriteOrDie(temp.path() + "/model.safetensors", ReferenceFile());
  const absl::Status status = WriteModelFolder(
      temp.path(), {}, [](const auto&, int64_t, auto) { return absl::OkStatus(); }, 100);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage);
  EXPECT_EQ(*ReadFile(temp.path() + "/model.safetensors"), ReferenceFile());
}

TEST(ModelFolder, AFailureWhileWritingLeavesNoFile) {
  TempFolder temp;
  const std::string path = temp.path() + "/out";
  int calls = 0;
  const absl::Status status = WriteModelFolder(
      path, {{"a", DType::kU8, {10}}, {"b", DType::kU8, {10}}},
      [&](const auto&, int64_t, auto) { return ++calls == 2 ? InternalError("lost") : absl::OkStatus(); },
      10);
  EXPECT_EQ(status.message(), "lost");
  EXPECT_EQ(::rmdir(path.c_str()), 0) << "something was left in it";
}

TEST(ModelFolder, DamagedFoldersAreRefusedByName) {
  TempFolder temp;
  const std::string index = temp.path() + "/model.safetensors.index.json";
  EXPECT_THAT(AbsenceOf(temp.path()), HasSubstr("contains neither model.safetensors nor"));
  EXPECT_THAT(AbsenceOf(temp.path() + "/none"), HasSubstr("contains neither"));
  for (const char* bad :
       {"../secret.safetensors", "/etc/passwd", "", "..", ".hidden", "a/b.safetensors", "a\\u0000b"}) {
    WriteOrDie(index, absl::StrCat(R"({"weight_map":{"w":")", bad, R"("}})"));
    EXPECT_THAT(RefusalOf(temp.path()), HasSubstr("is not a plain file name")) << bad;
  }
  WriteOrDie(index, R"({"weight_map":{"w":"model-00001-of-00001.safetensors"}})");
  EXPECT_THAT(AbsenceOf(temp.path()), HasSubstr("shard model-00001-of-00001.safetensors"));
  WriteOrDie(temp.path() + "/model-00001-of-00001.safetensors", ReferenceFile());
  EXPECT_THAT(RefusalOf(temp.path()),
              HasSubstr("says that tensor 'w' is in model-00001-of-00001.safetensors"));
  WriteOrDie(index, R"({"weight_map":{"c":"model-00001-of-00001.safetensors"}})");
  const auto folder = ModelFolder::Open(temp.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->tensors().size(), 1u);  // the index decides
  WriteOrDie(index, R"({"weight_map":["c"]})");
  EXPECT_THAT(RefusalOf(temp.path()), HasSubstr("no weight_map"));
  WriteOrDie(index, R"({"weight_map":{"c":1}})");
  EXPECT_THAT(RefusalOf(temp.path()), HasSubstr("is not a string"));

  const std::string single = temp.path() + "/model.safetensors";
  for (size_t length = 0; length < ReferenceFile().size(); ++length) {
    WriteOrDie(single, ReferenceFile().substr(0, length));
    RefusalOf(temp.path());
  }
  WriteOrDie(single, ReferenceFile() + "x");
  EXPECT_THAT(RefusalOf(temp.path()), HasSubstr("too long"));
  ASSERT_EQ(::unlink(single.c_str()), 0);
  ASSERT_EQ(::mkfifo(single.c_str(), 0600), 0);
  EXPECT_THAT(RefusalOf(temp.path()), HasSubstr("not a regular file")) << "and nobody waits for a writer";
}

TEST(ModelFolder, GitLfsPointersAreRefused) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00001.safetensors"}) {
    TempFolder temp;
    const std::string path = absl::StrCat(temp.path(), "/", name);
    WriteOrDie(temp.path() + "/model.safetensors.index.json",
               R"({"weight_map":{"c":"model-00001-of-00001.safetensors"}})");
    WriteOrDie(path, pointer);
    EXPECT_EQ(RefusalOf(temp.path()),
              absl::StrCat(path,
                           " is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull` "
                           "in its repository"));
  }
}

TEST(ModelFolder, AFileThatShrinksAfterOpenIsNoticed) {
  TempFolder temp;
  const std::string single = temp.path() + "/model.safetensors";
  WriteOrDie(single, ReferenceFile());
  const auto folder = ModelFolder::Open(temp.path());
  ASSERT_TRUE(folder.ok());
  ASSERT_EQ(::truncate(single.c_str(), 560), 0);
  std::byte bytes[2];
  const absl::Status status = folder->Read(*folder->Find("d"), 0, bytes);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'d'"));
}

model::Architecture TinySpec() {
  return model::LlamaOf(
      {.layers = 1, .hidden = 4, .ffn = 6, .heads = 2, .kv_heads = 2, .head_dim = 2, .vocab = 8});
}

std::vector<ModelTensorSpec> TensorsOf(const model::Architecture& spec, DType dtype) {
  std::vector<ModelTensorSpec> tensors;
  for (const model::Parameter& parameter : model::Inventory(spec))
    tensors.push_back({parameter.name, dtype, parameter.shape});
  return tensors;
}

// What CheckModelFolder says of a folder with these tensors, full of zeros.
absl::Status CheckOf(const std::vector<ModelTensorSpec>& tensors, int64_t max_shard_bytes = 1 << 20) {
  TempFolder temp;
  const auto zeros = [](const ModelTensorSpec&, int64_t, absl::Span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return absl::OkStatus();
  };
  EXPECT_TRUE(WriteModelFolder(temp.path(), tensors, zeros, max_shard_bytes).ok());
  return CheckModelFolder(temp.path(), TinySpec());
}

TEST(ModelWeights, EveryTensorIsHeldAgainstTheModel) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    EXPECT_TRUE(CheckOf(TensorsOf(TinySpec(), dtype)).ok());
    EXPECT_TRUE(CheckOf(TensorsOf(TinySpec(), dtype), 100).ok()) << "in shards";
  }
  std::vector<ModelTensorSpec> tensors = TensorsOf(TinySpec(), DType::kF32);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {1}});
  EXPECT_TRUE(CheckOf(tensors).ok()) << "old folders have it";
  tensors = TensorsOf(TinySpec(), DType::kF32);
  tensors[0].dtype = DType::kI32;        // model.embed_tokens.weight
  tensors[1].shape = {5};                // model.layers.0.input_layernorm.weight
  tensors.back().name = "lm_head.bias";  // lm_head.weight
  const absl::Status status = CheckOf(tensors);
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("4 tensors"), HasSubstr("\n  model.embed_tokens.weight is I32; only F32, BF16 and F16"),
            HasSubstr("\n  model.layers.0.input_layernorm.weight is [5], but the model's is [4]"),
            HasSubstr("\n  the model has no parameter lm_head.bias"),
            HasSubstr("\n  lm_head.weight is missing")));
  // Of another model nearly all are wrong.
  model::Architecture wider = TinySpec();
  wider.hidden = 8;
  EXPECT_THAT(std::string(CheckOf(TensorsOf(wider, DType::kF32)).message()), HasSubstr("\n  ... and "));
}

// transformers may write a tied matrix under either name, and keeps a separate head if its values differ.
TEST(ModelWeights, ATiedEmbeddingMayHaveEitherNameButNotTwoValues) {
  model::Architecture spec = TinySpec();
  spec.tie_embeddings = true;
  std::vector<ModelTensorSpec> tensors = TensorsOf(spec, DType::kBF16);
  ASSERT_EQ(tensors[0].name, "model.embed_tokens.weight");
  const auto check = [&](std::byte of_head) {
    TempFolder temp;
    const auto read = [&](const ModelTensorSpec& tensor, int64_t, absl::Span<std::byte> bytes) {
      std::fill(bytes.begin(), bytes.end(), std::byte{1});
      if (tensor.name == "lm_head.weight") bytes.back() = of_head;
      return absl::OkStatus();
    };
    EXPECT_TRUE(WriteModelFolder(temp.path(), tensors, read, 1 << 20).ok());
    return CheckModelFolder(temp.path(), spec);
  };
  tensors.push_back(tensors[0]);
  tensors.back().name = "lm_head.weight";
  EXPECT_TRUE(check(std::byte{1}).ok()) << check(std::byte{1});
  const absl::Status other = check(std::byte{2});
  EXPECT_EQ(ExitCodeFor(other), ExitCode::kBadData);
  EXPECT_THAT(std::string(other.message()),
              AllOf(HasSubstr("lm_head.weight differs from"), HasSubstr("model.tie_embeddings = false")));
  tensors.erase(tensors.begin());
  EXPECT_TRUE(check(std::byte{2}).ok()) << "the head alone is the embedding: " << check(std::byte{2});
}

// The head and the embedding have different types, so their bytes differ even if their values are equal.
TEST(ModelWeights, ATiedEmbeddingMayHaveTheSameValuesInTwoTypes) {
  model::Architecture spec = TinySpec();
  spec.tie_embeddings = true;
  std::vector<ModelTensorSpec> tensors = TensorsOf(spec, DType::kF32);
  tensors.push_back({"lm_head.weight", DType::kBF16, tensors[0].shape});
  for (const uint32_t bits : {0x3fc00000, 0x3fc00001}) {  // 1.5, and the next float, not a BF16 value
    TempFolder temp;
    const auto read = [&](const ModelTensorSpec& tensor, int64_t, absl::Span<std::byte> bytes) {
      const uint16_t upper = 0x3fc0;
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      if (tensor.name == "lm_head.weight") std::memcpy(bytes.data(), &upper, sizeof upper);
      if (tensor.name == "model.embed_tokens.weight") std::memcpy(bytes.data(), &bits, sizeof bits);
      return absl::OkStatus();
    };
    ASSERT_TRUE(WriteModelFolder(temp.path(), tensors, read, 1 << 20).ok());
    EXPECT_EQ(CheckModelFolder(temp.path(), spec).ok(), bits == 0x3fc00000);
  }
}

TEST(ModelWeights, WhatTransformersLeavesOutOrRenamesIsAccepted) {
  // A folder saved from the base model, in which names do not begin with "model.".
  std::vector<ModelTensorSpec> tensors = TensorsOf(TinySpec(), DType::kF32);
  for (ModelTensorSpec& tensor : tensors) tensor.name = std::string(absl::StripPrefix(tensor.name, "model."));
  tensors.push_back({"rotary_emb.inv_freq", DType::kF32, {1}});
  EXPECT_TRUE(CheckOf(tensors).ok()) << CheckOf(tensors);
  TempFolder base;
  const auto zeros = [](const ModelTensorSpec&, int64_t, absl::Span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return absl::OkStatus();
  };
  ASSERT_TRUE(WriteModelFolder(base.path(), tensors, zeros, 1 << 20).ok());
  const ModelFolder folder = *ModelFolder::Open(base.path());
  const std::vector<model::Parameter> parameters = model::Inventory(TinySpec());
  EXPECT_EQ(WeightsOf(folder, parameters.front()).name, "embed_tokens.weight");
  EXPECT_EQ(WeightsOf(folder, parameters.back()).name, "lm_head.weight");
  tensors.push_back({"model.norm.weight", DType::kF32, {4}});
  EXPECT_THAT(std::string(CheckOf(tensors).message()), HasSubstr("the model has no parameter norm.weight"));

  const std::string attention = "model.layers.0.self_attn.";
  const std::vector<ModelTensorSpec> harmless = {{attention + "rotary_emb.cos_cached", DType::kF32, {8, 2}},
                                                 {attention + "rotary_emb.sin_cached", DType::kF16, {8, 2}},
                                                 {attention + "masked_bias", DType::kF32, {1}},
                                                 {attention + "bias", DType::kBool, {1, 1, 4, 4}},
                                                 {"lm_head.bias", DType::kF32, {8}},
                                                 {attention + "q_proj.bias", DType::kBF16, {4}},
                                                 {"model.lm_head.weight", DType::kBF16, {8, 4}}};
  tensors = TensorsOf(TinySpec(), DType::kF32);
  tensors.insert(tensors.end(), harmless.begin(), harmless.end());
  std::string not_zero;
  const auto check = [&](std::vector<std::string>* unused) {
    TempFolder temp;
    const auto read = [&](const ModelTensorSpec& tensor, int64_t, absl::Span<std::byte> bytes) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      bytes.back() = std::byte(tensor.name == not_zero ? 0x3f : 0x80);  // otherwise the sign of -0
      return absl::OkStatus();
    };
    EXPECT_TRUE(WriteModelFolder(temp.path(), tensors, read, 1 << 20).ok());
    return CheckModelFolder(temp.path(), TinySpec(), unused);
  };
  std::vector<std::string> unused;
  EXPECT_TRUE(check(&unused).ok()) << check(&unused);
  EXPECT_EQ(unused.size(), harmless.size());
  for (const char* name : {"lm_head.bias", "model.layers.0.self_attn.q_proj.bias"}) {
    not_zero = name;
    EXPECT_THAT(std::string(check(nullptr).message()),
                HasSubstr(absl::StrCat("no parameter ", name, ", whose values are not all zero")));
  }
  not_zero = "model.lm_head.weight";
  EXPECT_THAT(std::string(check(nullptr).message()),
              HasSubstr("model.lm_head.weight, which differs from lm_head.weight"));
}

TEST(ModelWeights, NamesFromAWrapperAreRefusedWithWhatToSave) {
  for (const auto& [prefix, inside] : {std::pair("_orig_mod.", "model._orig_mod"),
                                       {"module.", "model.module"},
                                       {"base_model.model.", "model.merge_and_unload()"}}) {
    std::vector<ModelTensorSpec> tensors = TensorsOf(TinySpec(), DType::kF32);
    for (ModelTensorSpec& tensor : tensors) tensor.name.insert(0, prefix);
    EXPECT_EQ(ExitCodeFor(CheckOf(tensors)), ExitCode::kBadData);
    EXPECT_THAT(std::string(CheckOf(tensors).message()), AllOf(HasSubstr(prefix), HasSubstr(inside)));
  }
}

TEST(ModelWeights, HugeValuesAreNamedByTheirRowAndZerosAreKnown) {
  OddWeights odd;
  const auto see = [&](const std::string& name, std::vector<float> values) {
    const ModelTensor tensor = {.name = name, .dtype = DType::kF32, .shape = {3, 4}, .num_bytes = 48};
    const model::Parameter parameter = {.name = name};
    odd.See({.parameter = &parameter, .tensor = &tensor, .first_row = 1, .cols = {0, 4}}, values);
  };
  see("usual", {0, -300, 1e4F, 0});
  see("zeros", {0, 0, -0.0F, 0});
  EXPECT_THAT(odd.HugeValues(), IsEmpty());
  EXPECT_TRUE(odd.HasNonZero("usual"));
  EXPECT_FALSE(odd.HasNonZero("zeros"));
  see("huge", {1, 1, 1, 1, -1e30F});
  see("more", {1, 1e5F, 1e6F, 1});
  EXPECT_THAT(odd.HugeValues(),
              ElementsAre("huge: row 2 contains -1e+30", "more: row 1 contains 1e+05 and 1 more such value"));
}

TEST(ModelWeights, WhatIsAbsentAndWhatIsDamagedAreToldApart) {
  TempFolder temp;
  const std::string single = temp.path() + "/model.safetensors";
  EXPECT_EQ(ExitCodeFor(CheckModelFolder(temp.path(), TinySpec())), ExitCode::kEnvironment);
  const std::string older = temp.path() + "/pytorch_model.bin";
  ASSERT_TRUE(WriteFileAtomic(older, "").ok());
  const absl::Status unreadable = CheckModelFolder(temp.path(), TinySpec());
  EXPECT_EQ(ExitCodeFor(unreadable), ExitCode::kEnvironment);
  EXPECT_THAT(
      std::string(unreadable.message()),
      AllOf(HasSubstr("but pytorch_model.bin, which trainctl cannot read"), HasSubstr("save_pretrained")));
  ASSERT_EQ(::mkfifo(single.c_str(), 0600), 0);
  EXPECT_EQ(ExitCodeFor(CheckModelFolder(temp.path(), TinySpec())), ExitCode::kBadData) << "nobody waits";
  ASSERT_EQ(::unlink(single.c_str()), 0);
  const auto zeros = [](const ModelTensorSpec&, int64_t, absl::Span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return absl::OkStatus();
  };
  ASSERT_TRUE(WriteModelFolder(temp.path(), TensorsOf(TinySpec(), DType::kF16), zeros, 1 << 20).ok());
  ASSERT_TRUE(CheckModelFolder(temp.path(), TinySpec()).ok());
  const int64_t whole_bytes = *FileBytes(single);
  ASSERT_EQ(::truncate(single.c_str(), whole_bytes - 1), 0);
  const absl::Status cut = CheckModelFolder(temp.path(), TinySpec());
  EXPECT_EQ(ExitCodeFor(cut), ExitCode::kBadData);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("truncated"));
}

TEST(ModelWeights, ACheckpointIsHeldAgainstTheModel) {
  TempFolder temp;
  model::Architecture spec = TinySpec();
  std::vector<Slice> slices;
  for (const model::Parameter& parameter : model::Inventory(spec)) {
    slices.push_back({parameter.name, DType::kF32, parameter.shape, layout::WholeBox(parameter.shape)});
  }
  slices.push_back({"optimizer.exp_avg/lm_head.weight", DType::kF32, {8, 4}, layout::WholeBox({8, 4})});
  CheckpointWriter writer(temp.path(), 3, 0, 1);
  ASSERT_TRUE(writer.Begin().ok());
  const auto zeros = [](size_t, int64_t, absl::Span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    return absl::OkStatus();
  };
  ASSERT_TRUE(writer.Write(slices, zeros).ok());
  ASSERT_TRUE(writer.Commit({3, "{}"}).ok());
  const std::string folder = temp.path() + "/step-00000003";
  EXPECT_TRUE(CheckCheckpointFolder(folder, spec).ok()) << CheckCheckpointFolder(folder, spec);
  spec.vocab = 9;
  EXPECT_THAT(
      std::string(CheckCheckpointFolder(folder, spec).message()),
      AllOf(HasSubstr("2 tensors"), HasSubstr("lm_head.weight is [8, 4], but the model's is [9, 4]")));
  ASSERT_EQ(::truncate((folder + "/rank-00000.safetensors").c_str(), 9), 0);
  EXPECT_EQ(ExitCodeFor(CheckCheckpointFolder(folder, TinySpec())), ExitCode::kBadData);
}

}  // namespace
}  // namespace trainctl::checkpoint
