// A checkpoint's model as a Hugging Face folder.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/units.h"
#include "checkpoint/folder_parameters.h"
#include "kernels/kernels.h"
#include "model/config_json.h"
#include "model/update_config.h"
#include "tokenizer/qwen2_words.h"
#include "trainer/block_weights.h"
#include "trainer/codec.h"

namespace trainctl::trainer {
namespace {

constexpr int64_t kMaxShardBytes = int64_t{5} << 30;
constexpr char kTokenizerConfig[] = "tokenizer_config.json";

// Hands out the elements of each parameter once and in order, from buffers that are filled by long reads.
class BufferedReader {
 public:
  explicit BufferedReader(const BlockWeights& weights) : weights_(weights) {}

  // Rounds elements of a parameter, from the `begin`-th on, to `dtype`.
  absl::Status Read(int parameter, int64_t begin, DType dtype, absl::Span<std::byte> bytes) {
    const int64_t count = static_cast<int64_t>(bytes.size()) / DTypeBytes(dtype);
    const int64_t numel = weights_.inventory()[static_cast<size_t>(parameter)].numel;
    Buffer& buffer = buffers_[parameter];
    if (begin < buffer.begin || begin + count > buffer.begin + static_cast<int64_t>(buffer.values.size())) {
      constexpr int64_t kAtOnce = int64_t{16} << 20;
      buffer.begin = begin;
      buffer.values.resize(static_cast<size_t>(std::min(numel - begin, std::max(count, kAtOnce))));
      TRAINCTL_RETURN_IF_ERROR(weights_.Read(parameter, begin, absl::MakeSpan(buffer.values)));
    }
    kernels::Cpu().For(dtype).round(bytes.data(), buffer.values.data() + (begin - buffer.begin), count);
    if (begin + count == numel) buffers_.erase(parameter);
    return absl::OkStatus();
  }

 private:
  struct Buffer {
    int64_t begin = 0;
    std::vector<float> values;
  };
  const BlockWeights& weights_;
  std::map<int, Buffer> buffers_;  // by parameter; several are open if a tensor contains several parameters
};

absl::Status WriteWeights(const BlockWeights& weights, DType dtype, const std::string& out_folder) {
  BufferedReader reader(weights);
  return checkpoint::WriteParameters(
      out_folder, weights.inventory(), dtype,
      [&](int parameter, int64_t begin, absl::Span<std::byte> bytes) {
        return reader.Read(parameter, begin, dtype, bytes);
      },
      kMaxShardBytes);
}

// generation_config.json, with `end` among the tokens that end a text.
absl::StatusOr<std::string> EndingWith(int64_t end, const std::string& text, const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const model::SpecialTokens tokens, model::ReadSpecialTokens(text, path));
  if (end < 0 || std::find(tokens.eos.begin(), tokens.eos.end(), end) != tokens.eos.end()) return text;
  Json ends = end;
  if (!tokens.eos.empty()) {
    ends = Json::array({end});
    for (const int64_t id : tokens.eos) ends.push_back(id);
  }
  return WithJsonField(text, "eos_token_id", ends);
}

// The files that the run keeps of its model's folder, except config.json.
absl::Status CopyModelFiles(const std::string& kept, int64_t end, const std::string& out_folder) {
  for (const std::string& name : FolderEntries(kept)) {
    if (name == "config.json") continue;
    const std::string path = absl::StrCat(kept, "/", name);
    TRAINCTL_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
    if (name == "generation_config.json") {
      TRAINCTL_ASSIGN_OR_RETURN(bytes, EndingWith(end, bytes, path));
    }
    TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(absl::StrCat(out_folder, "/", name), bytes));
  }
  return absl::OkStatus();
}

// Updates the config.json of the folder that the model came from, so that its other fields are not lost.
// Writes a new one if there is none, or if it cannot be updated, and returns a note in the second case.
absl::StatusOr<std::string> WriteConfig(const std::string& kept, const BlockWeights& weights, DType dtype,
                                        const model::SpecialTokens& tokens, const std::string& out_folder) {
  std::optional<std::string> config;
  const std::string path = kept + "/config.json";
  const bool is_kept = PathExists(path);
  if (is_kept) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    config = model::UpdateConfig(text, weights.spec(), dtype, tokens);
  }
  const bool is_new = is_kept && !config.has_value();
  if (!config.has_value()) config = model::ToHuggingFaceConfig(weights.spec(), dtype, tokens);
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(out_folder + "/config.json", *config));
  if (!is_new) return std::string();
  return absl::StrCat("config.json was written from scratch, because ", path,
                      " could not be updated for this model. If you need fields that trainctl does not use, "
                      "copy them from that file");
}

// Without this file, transformers uses the tokenizer class of the model's family, which adds its own tokens.
absl::Status WriteTokenizerConfig(const Codec& codec, const std::string& out_folder) {
  const std::string path = absl::StrCat(out_folder, "/", kTokenizerConfig);
  if (!PathExists(out_folder + "/tokenizer.json") || PathExists(path)) return absl::OkStatus();
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!codec.end_of_document().empty()) config["eos_token"] = codec.end_of_document();
  return WriteFileAtomic(path, FormatJson(config, 2) + "\n");
}

// A sentence if the AutoTokenizer of transformers would cut texts differently from the exported tokenizer,
// else empty.
absl::StatusOr<std::string> NoteOfAutoTokenizer(absl::string_view model_type, const std::string& out_folder) {
  const std::string path = out_folder + "/tokenizer.json";
  if (model_type != "qwen2" || !PathExists(path)) return std::string();
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (tokenizer::CutsAsQwen2(text)) return std::string();
  return absl::StrCat(
      "transformers 5 ignores the way ", path,
      " splits text into words: for model_type qwen2, AutoTokenizer always uses Qwen's own normalizer and "
      "pre-tokenizer. Load the tokenizer with PreTrainedTokenizerFast.from_pretrained instead");
}

// The files in `folder` that are not in `before`.
absl::StatusOr<std::vector<ExportedFile>> NewFiles(const std::string& folder,
                                                   const std::vector<std::string>& before) {
  std::vector<ExportedFile> files;
  for (const std::string& name : FolderEntries(folder)) {
    if (std::find(before.begin(), before.end(), name) != before.end()) continue;
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(absl::StrCat(folder, "/", name)));
    files.push_back({name, bytes});
  }
  return files;
}

absl::StatusOr<Exported> Export(const InferenceDeps& deps, const std::string& out_folder, bool bf16) {
  TRAINCTL_ASSIGN_OR_RETURN(const Codec codec, Codec::Open(deps));
  TRAINCTL_ASSIGN_OR_RETURN(const std::unique_ptr<BlockWeights> weights, BlockWeights::Open(deps));
  const DType dtype = bf16 ? DType::kBF16 : DType::kF32;
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(out_folder));
  const std::vector<std::string> before = FolderEntries(out_folder);
  TRAINCTL_RETURN_IF_ERROR(WriteWeights(*weights, dtype, out_folder));
  TRAINCTL_RETURN_IF_ERROR(CopyModelFiles(deps.model_files_path, codec.end_of_document_id(), out_folder));
  TRAINCTL_RETURN_IF_ERROR(WriteTokenizerConfig(codec, out_folder));
  Exported exported{.is_bytes = codec.is_bytes()};
  TRAINCTL_ASSIGN_OR_RETURN(std::string of_config, WriteConfig(deps.model_files_path, *weights, dtype,
                                                               codec.special_tokens(), out_folder));
  TRAINCTL_ASSIGN_OR_RETURN(std::string of_tokenizer,
                            NoteOfAutoTokenizer(model::ModelTypeOf(weights->spec()), out_folder));
  for (std::string* note : {&of_config, &of_tokenizer}) {
    if (!note->empty()) exported.notes.push_back(std::move(*note));
  }
  TRAINCTL_ASSIGN_OR_RETURN(exported.files, NewFiles(out_folder, before));
  return exported;
}

}  // namespace

absl::StatusOr<Exported> RunExport(const InferenceDeps& deps, const std::string& out_folder, bool bf16) {
  return Guarded(deps, [&] { return Export(deps, out_folder, bf16); });
}

}  // namespace trainctl::trainer
