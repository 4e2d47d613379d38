// Folders whose tensors are not the model's parameters. The loops that make the folders here follow the
// modules in transformers, without the code under test.
#include "checkpoint/folder_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/model_weights.h"
#include "model/config_json.h"
#include "model/folder_form.h"
#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Sizes {
  int64_t layers = 2, hidden = 8, ffn = 6, heads = 4, kv_heads = 2, head_dim = 2, vocab = 5;
};

using Bits = std::vector<uint32_t>;  // one value per element
struct Stored {
  std::vector<int64_t> shape;
  Bits bits;
};
using Tensors = std::map<std::string, Stored>;

// Returns a finite value in both types.
uint32_t BitsOf(size_t parameter, size_t element) {
  const uint64_t product = (uint64_t{parameter + 1} << 32 | element) * 0x9e3779b97f4a7c15;
  return static_cast<uint32_t>(product >> 32) & 0xbfffbfff;
}

// A matrix or a bias of a layer, and its number of rows.
using Rows = std::vector<Bits>;
Rows RowsOf(const Stored& stored) {
  const size_t width = stored.shape.size() == 2 ? static_cast<size_t>(stored.shape[1]) : 1;
  Rows rows;
  for (size_t i = 0; i < stored.bits.size(); i += width) {
    rows.emplace_back(stored.bits.begin() + static_cast<int64_t>(i),
                      stored.bits.begin() + static_cast<int64_t>(i + width));
  }
  return rows;
}

Stored FromRows(const Rows& rows, bool is_matrix) {
  Stored stored = {{static_cast<int64_t>(rows.size())}, {}};
  if (is_matrix) stored.shape.push_back(static_cast<int64_t>(rows[0].size()));
  for (const Bits& row : rows) stored.bits.insert(stored.bits.end(), row.begin(), row.end());
  return stored;
}

Stored Transposed(const Stored& stored) {
  if (stored.shape.size() == 1) return stored;
  const Rows rows = RowsOf(stored);
  Rows cols(rows[0].size());
  for (const Bits& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) cols[i].push_back(row[i]);
  }
  return FromRows(cols, true);
}

void Append(Rows& rows, const Rows& more) { rows.insert(rows.end(), more.begin(), more.end()); }
void AppendHead(Rows& rows, const Rows& more, int64_t head, int64_t head_dim) {
  for (int64_t i = 0; i < head_dim; ++i) rows.push_back(more[static_cast<size_t>(head * head_dim + i)]);
}

struct Form {
  std::string name;
  model::FolderForm form;
  // Replaces the parameters of a layer ("q_proj.weight" and so on, after `prefix`) by the folder's tensors.
  std::function<void(const Sizes& sizes, const std::string& prefix, Tensors& tensors)> store;
};

// Moves parameters out of `tensors`.
Rows Take(Tensors& tensors, const std::string& name) { return RowsOf(tensors.extract(name).mapped()); }

void StoreConcatenated(const Sizes&, const std::string& prefix, Tensors& tensors) {
  for (const char* suffix : {".weight", ".bias"}) {
    const bool is_matrix = suffix[1] == 'w';
    Rows qkv, gate_up;
    for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
      Append(qkv, Take(tensors, absl::StrCat(prefix, "self_attn.", module, suffix)));
    }
    for (const char* module : {"gate_proj", "up_proj"}) {
      Append(gate_up, Take(tensors, absl::StrCat(prefix, "mlp.", module, suffix)));
    }
    tensors[absl::StrCat(prefix, "self_attn.qkv_proj", suffix)] = FromRows(qkv, is_matrix);
    tensors[absl::StrCat(prefix, "mlp.gate_up_proj", suffix)] = FromRows(gate_up, is_matrix);
  }
}

void StoreByKvHead(const Sizes& sizes, const std::string& prefix, Tensors& tensors) {
  for (const char* suffix : {".weight", ".bias"}) {
    const Rows q = Take(tensors, absl::StrCat(prefix, "self_attn.q_proj", suffix));
    const Rows k = Take(tensors, absl::StrCat(prefix, "self_attn.k_proj", suffix));
    const Rows v = Take(tensors, absl::StrCat(prefix, "self_attn.v_proj", suffix));
    const int64_t group = sizes.heads / sizes.kv_heads;
    Rows qkv;
    for (int64_t head = 0; head < sizes.kv_heads; ++head) {
      for (int64_t i = 0; i < group; ++i) AppendHead(qkv, q, head * group + i, sizes.head_dim);
      AppendHead(qkv, k, head, sizes.head_dim);
      AppendHead(qkv, v, head, sizes.head_dim);
    }
    tensors[absl::StrCat(prefix, "attention.query_key_value", suffix)] = FromRows(qkv, suffix[1] == 'w');
  }
}

void StoreTransposed(const Sizes&, const std::string& prefix, Tensors& tensors) {
  for (const char* suffix : {".weight", ".bias"}) {
    Rows qkv;
    for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
      Append(qkv, Take(tensors, absl::StrCat(prefix, "self_attn.", module, suffix)));
    }
    tensors[absl::StrCat(prefix, "attn.c_attn", suffix)] = FromRows(qkv, suffix[1] == 'w');
  }
  for (auto& [name, stored] : tensors) {
    if (absl::StartsWith(name, prefix)) stored = Transposed(stored);
  }
}

std::vector<Form> Forms() {
  return {{"plain", {}, [](const Sizes&, const std::string&, Tensors&) {}},
          {"concatenated", {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"}, StoreConcatenated},
          {"by_kv_head", {.qkv = "attention.query_key_value", .by_kv_head = true}, StoreByKvHead},
          {"transposed", {.qkv = "attn.c_attn", .transposed = true}, StoreTransposed}};
}

// A model, and the tensors of its folder in one form.
struct Case {
  Case(const Form& form, const Sizes& sizes, DType dtype) : dtype(dtype) {
    model::Architecture spec = model::LlamaOf({.layers = sizes.layers,
                                               .hidden = sizes.hidden,
                                               .ffn = sizes.ffn,
                                               .heads = sizes.heads,
                                               .kv_heads = sizes.kv_heads,
                                               .head_dim = sizes.head_dim,
                                               .vocab = sizes.vocab});
    model::SetAllLinearBiases(spec, true);
    parameters = model::Inventory(spec);
    for (size_t i = 0; i < parameters.size(); ++i) {
      Bits bits(static_cast<size_t>(parameters[i].numel));
      for (size_t e = 0; e < bits.size(); ++e) bits[e] = BitsOf(i, e);
      tensors[parameters[i].name] = {parameters[i].shape, bits};
      values.push_back(std::move(bits));
    }
    for (int64_t layer = 0; layer < sizes.layers; ++layer) {
      form.store(sizes, absl::StrCat("model.layers.", layer, "."), tensors);
    }
    model::SetFolderPlaces(form.form, *model::FindParameterNames("llama"), absl::MakeSpan(parameters));
  }

  void WriteFolder(const std::string& path) const {
    std::vector<ModelTensorSpec> specs;
    for (const auto& [name, stored] : tensors) specs.push_back({name, dtype, stored.shape});
    const auto read = [&](const ModelTensorSpec& spec, int64_t begin_bytes, absl::Span<std::byte> bytes) {
      Encode(tensors.at(spec.name).bits, begin_bytes / DTypeBytes(dtype), bytes);
      return absl::OkStatus();
    };
    const absl::Status status = WriteModelFolder(path, specs, read, int64_t{1} << 30);
    ASSERT_TRUE(status.ok()) << status;
  }

  void Encode(const Bits& bits, int64_t begin, absl::Span<std::byte> bytes) const {
    const size_t width = static_cast<size_t>(DTypeBytes(dtype));
    for (size_t i = 0; i < bytes.size(); i += width) {
      std::memcpy(bytes.data() + i, &bits[static_cast<size_t>(begin) + i / width], width);
    }
  }

  absl::Status Check() const {
    TempFolder temp;
    WriteFolder(temp.path());
    return CheckWeights(temp.path(), *ModelFolder::Open(temp.path()), parameters);
  }

  DType dtype;
  std::vector<model::Parameter> parameters;
  std::vector<Bits> values;  // by parameter
  Tensors tensors;           // of the folder
};

// Expects that the elements of a box are those of the parameter. Returns the number of parts in which they
// were read.
int ExpectValues(const Case& of, const ModelFolder& folder, size_t parameter, const layout::Box& box) {
  const std::vector<int64_t> flat = FlatIndices({.shape = of.parameters[parameter].shape, .box = box});
  std::vector<std::byte> read;
  int parts = 0;
  const absl::Status status =
      ReadParameter(folder, of.parameters[parameter], box, [&](const ReadElements& elements) {
        EXPECT_EQ(elements.position * DTypeBytes(of.dtype), static_cast<int64_t>(read.size()));
        read.insert(read.end(), elements.bytes.begin(), elements.bytes.end());
        ++parts;
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  Bits expected;
  for (const int64_t element : flat) expected.push_back(of.values[parameter][static_cast<size_t>(element)]);
  std::vector<std::byte> bytes(expected.size() * static_cast<size_t>(DTypeBytes(of.dtype)));
  of.Encode(expected, 0, absl::MakeSpan(bytes));
  EXPECT_TRUE(read == bytes) << of.parameters[parameter].name << " " << box.ToString();
  return parts;
}

// The parts of a parameter that ranks hold: by rows or columns (tensor parallelism), and ranges of elements
// (ZeRO).
std::vector<layout::Box> BoxesOf(const model::Parameter& parameter) {
  std::vector<layout::Box> boxes = {layout::WholeBox(parameter.shape)};
  for (size_t d = 0; d < parameter.shape.size(); ++d) {
    layout::Box box = boxes.front();
    box.dims[d] = {0, parameter.shape[d] / 2};
    boxes.push_back(box);
    box.dims[d] = {parameter.shape[d] / 2, parameter.shape[d]};
    boxes.push_back(box);
    box.dims[d] = {1, parameter.shape[d] - 1};
    boxes.push_back(box);
  }
  const int64_t third = parameter.numel / 3;
  for (int64_t begin = 0; begin < parameter.numel; begin += third) {
    const int64_t count = std::min(third, parameter.numel - begin);
    for (layout::Box& box : layout::BoxesOfRange(parameter.shape, begin, count)) {
      boxes.push_back(std::move(box));
    }
  }
  return boxes;
}

class FolderForms : public testing::TestWithParam<Form> {};

TEST_P(FolderForms, AFolderIsReadAsTheParametersOfTheModel) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Case of(GetParam(), {}, dtype);
    TempFolder temp;
    of.WriteFolder(temp.path());
    const auto folder = ModelFolder::Open(temp.path());
    ASSERT_TRUE(folder.ok()) << folder.status();
    const absl::Status checked = CheckWeights(temp.path(), *folder, of.parameters);
    ASSERT_TRUE(checked.ok()) << checked;
    for (size_t i = 0; i < of.parameters.size(); ++i) {
      for (const layout::Box& box : BoxesOf(of.parameters[i])) ExpectValues(of, *folder, i, box);
    }
  }
}

TEST_P(FolderForms, AFolderIsWrittenBackByteForByte) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Case of(GetParam(), {}, dtype);
    TempFolder temp;
    of.WriteFolder(temp.path() + "/given");
    std::vector<int64_t> next(of.parameters.size());
    const auto read = [&](int parameter, int64_t begin, absl::Span<std::byte> bytes) {
      const auto i = static_cast<size_t>(parameter);
      EXPECT_EQ(begin, next[i]) << of.parameters[i].name << " is read once and in order";
      next[i] = begin + static_cast<int64_t>(bytes.size()) / DTypeBytes(dtype);
      of.Encode(of.values[i], begin, bytes);
      return absl::OkStatus();
    };
    ASSERT_TRUE(WriteParameters(temp.path() + "/whole", of.parameters, dtype, read, 1 << 20).ok());
    const std::string name = "/model.safetensors";
    EXPECT_TRUE(*ReadFile(temp.path() + "/whole" + name) == *ReadFile(temp.path() + "/given" + name));

    std::fill(next.begin(), next.end(), 0);
    ASSERT_TRUE(WriteParameters(temp.path() + "/shards", of.parameters, dtype, read, 200).ok());
    const auto shards = ModelFolder::Open(temp.path() + "/shards");
    ASSERT_TRUE(shards.ok()) << shards.status();
    EXPECT_GT(shards->files().size(), 2u);
    for (size_t i = 0; i < of.parameters.size(); ++i) {
      ExpectValues(of, *shards, i, layout::WholeBox(of.parameters[i].shape));
    }
  }
}

TEST_P(FolderForms, LargeTensorsPassThroughInParts) {
  Sizes sizes = {
      .layers = 1, .hidden = 512, .ffn = 2200, .heads = 4, .kv_heads = 2, .head_dim = 96, .vocab = 3};
  if (GetParam().form.transposed) sizes.ffn *= 4;
  const Case of(GetParam(), sizes, DType::kBF16);
  TempFolder temp;
  of.WriteFolder(temp.path() + "/given");
  const auto folder = ModelFolder::Open(temp.path() + "/given");
  ASSERT_TRUE(folder.ok()) << folder.status();
  int most_parts = 0;
  for (size_t i = 0; i < of.parameters.size(); ++i) {
    most_parts = std::max(most_parts, ExpectValues(of, *folder, i, layout::WholeBox(of.parameters[i].shape)));
  }
  EXPECT_EQ(most_parts, 2);
  const auto read = [&](int parameter, int64_t begin, absl::Span<std::byte> bytes) {
    EXPECT_LE(bytes.size(), size_t{1} << 20);
    of.Encode(of.values[static_cast<size_t>(parameter)], begin, bytes);
    return absl::OkStatus();
  };
  ASSERT_TRUE(
      WriteParameters(temp.path() + "/copy", of.parameters, DType::kBF16, read, int64_t{1} << 30).ok());
  const std::string name = "/model.safetensors";
  EXPECT_TRUE(*ReadFile(temp.path() + "/copy" + name) == *ReadFile(temp.path() + "/given" + name));
}

TEST_P(FolderForms, AWrongTensorIsRefusedByItsNameInTheFolder) {
  const Case whole(GetParam(), {.layers = 1}, DType::kF32);
  for (const auto& [name, stored] : whole.tensors) {
    Case of = whole;
    of.tensors.erase(name);
    const absl::Status missing = of.Check();
    EXPECT_EQ(ExitCodeFor(missing), ExitCode::kBadData);
    EXPECT_THAT(std::string(missing.message()),
                AllOf(HasSubstr(": 1 tensor does"), HasSubstr(absl::StrCat("\n  ", name, " is missing"))));
    Stored& wrong = (of.tensors[name] = stored);
    ++wrong.shape[0];
    wrong.bits.resize(1000);
    EXPECT_THAT(std::string(of.Check().message()),
                AllOf(HasSubstr(": 1 tensor does"),
                      HasSubstr(absl::StrCat("\n  ", name, " is ", ShapeText(wrong.shape),
                                             ", but the model's is ", ShapeText(stored.shape)))));
  }
  // Names of the base model.
  Case base = whole;
  base.tensors.clear();
  for (const auto& [name, stored] : whole.tensors) {
    base.tensors[absl::StartsWith(name, "model.") ? name.substr(6) : name] = stored;
  }
  EXPECT_TRUE(base.Check().ok()) << base.Check();
}

TEST_P(FolderForms, AValueThatIsNotFiniteIsNamedByTheRowOfTheTensor) {
  const Case whole(GetParam(), {.layers = 1}, DType::kF32);
  for (const auto& [name, stored] : whole.tensors) {
    const size_t element = stored.bits.size() * 2 / 3;
    const size_t row = element / (stored.shape.size() == 2 ? static_cast<size_t>(stored.shape[1]) : 1);
    Case of = whole;
    of.tensors[name].bits[element] = 0x7fc00000;
    TempFolder temp;
    of.WriteFolder(temp.path());
    const auto folder = ModelFolder::Open(temp.path());
    ASSERT_TRUE(folder.ok()) << folder.status();
    int refused = 0;
    for (const model::Parameter& parameter : of.parameters) {
      const absl::Status status = ReadParameter(*folder, parameter, layout::WholeBox(parameter.shape),
                                                [](const ReadElements&) { return absl::OkStatus(); });
      if (status.ok()) continue;
      ++refused;
      EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat(name, ": row ", row, " contains a NaN or infinite value")));
    }
    EXPECT_EQ(refused, 1) << name << ": each element belongs to one parameter";
  }
}

INSTANTIATE_TEST_SUITE_P(All, FolderForms, testing::ValuesIn(Forms()),
                         [](const auto& form) { return form.param.name; });

// GPT-NeoX and BLOOM: one query per key-value head.
TEST(FolderParameters, HeadsWithOneQueryEachAreStoredInTurn) {
  const Case of(Forms()[2], {.heads = 4, .kv_heads = 4}, DType::kF32);
  TempFolder temp;
  of.WriteFolder(temp.path());
  const auto folder = ModelFolder::Open(temp.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_TRUE(CheckWeights(temp.path(), *folder, of.parameters).ok());
  for (size_t i = 0; i < of.parameters.size(); ++i) {
    for (const layout::Box& box : BoxesOf(of.parameters[i])) ExpectValues(of, *folder, i, box);
  }
}

// Reads a tensor of a folder.
std::vector<std::byte> BytesOf(const ModelFolder& folder, const ModelTensor& tensor) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.num_bytes));
  EXPECT_TRUE(folder.Read(tensor, 0, absl::MakeSpan(bytes)).ok());
  return bytes;
}

// Folders of tests/goldens are as save_pretrained of transformers writes them, one for each family.
TEST(FolderParameters, FoldersOfTransformersAreWrittenAsTheyWere) {
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINCTL_SOURCE_DIR "/tests/goldens")) {
    if (!entry.is_directory()) continue;
    ++folders;
    const std::string path = entry.path().string();
    const absl::StatusOr<std::string> config = ReadFile(path + "/config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    const absl::StatusOr<model::Architecture> spec = model::FromHuggingFaceConfig(*config, path);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const absl::StatusOr<ModelFolder> folder = ModelFolder::Open(path);
    ASSERT_TRUE(folder.ok()) << folder.status();
    const std::vector<model::Parameter> parameters = model::Inventory(*spec);
    const absl::Status checked = CheckWeights(path, *folder, parameters);
    ASSERT_TRUE(checked.ok()) << checked;
    std::vector<std::vector<std::byte>> values;
    for (const model::Parameter& parameter : parameters) {
      std::vector<std::byte>& all = values.emplace_back();
      const absl::Status read =
          ReadParameter(*folder, parameter, layout::WholeBox(parameter.shape), [&](const ReadElements& part) {
            all.insert(all.end(), part.bytes.begin(), part.bytes.end());
            return absl::OkStatus();
          });
      ASSERT_TRUE(read.ok()) << read;
    }
    TempFolder temp;
    const absl::Status written = WriteParameters(
        temp.path(), parameters, DType::kF32,
        [&](int parameter, int64_t begin, absl::Span<std::byte> bytes) {
          std::memcpy(bytes.data(), values[static_cast<size_t>(parameter)].data() + 4 * begin, bytes.size());
          return absl::OkStatus();
        },
        int64_t{1} << 30);
    ASSERT_TRUE(written.ok()) << written;
    const absl::StatusOr<ModelFolder> copy = ModelFolder::Open(temp.path());
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ(copy->tensors().size(), folder->tensors().size()) << path;
    for (const ModelTensor& tensor : folder->tensors()) {
      const ModelTensor* same = copy->Find(tensor.name);
      ASSERT_NE(same, nullptr) << path << ": " << tensor.name;
      EXPECT_EQ(same->shape, tensor.shape) << tensor.name;
      EXPECT_EQ(BytesOf(*copy, *same), BytesOf(*folder, tensor)) << path << ": " << tensor.name;
    }
  }
  EXPECT_GE(folders, 40);
}

TEST(FolderParameters, PiecesBeyondTheTensorAreRefused) {
  const Case of(Forms()[0], {}, DType::kF32);
  TempFolder temp;
  of.WriteFolder(temp.path());
  const auto folder = ModelFolder::Open(temp.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  const ModelTensor& tensor = *folder->Find("lm_head.weight");  // 160 bytes
  std::byte bytes[8];
  EXPECT_TRUE(folder->ReadPieces(tensor, 96, 4, 60, bytes).ok());
  EXPECT_EQ(ExitCodeFor(folder->ReadPieces(tensor, 97, 4, 60, bytes)), ExitCode::kInternal);
}

}  // namespace
}  // namespace trainctl::checkpoint
