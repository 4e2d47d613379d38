// A checkpoint's model as a Hugging Face folder.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/model_folder.h"
#include "kernels/kernels.h"
#include "model/config_json.h"
#include "trainer/codec.h"
#include "trainer/inference_model.h"

namespace trainctl::trainer {
namespace {

constexpr int64_t kMaxShardBytes = int64_t{5} << 30;
constexpr char kTokenizerConfig[] = "tokenizer_config.json";

absl::Status WriteWeights(InferenceModel& model, DType dtype, const std::string& out_folder) {
  std::vector<checkpoint::ModelTensorSpec> tensors;
  std::map<std::string, const float*> data;
  for (size_t i = 0; i < model.ledger().inventory().size(); ++i) {
    const model::Parameter& parameter = model.ledger().inventory()[i];
    tensors.push_back({parameter.name, dtype, parameter.shape});
    const int index = static_cast<int>(i);
    data[parameter.name] =
        model.state().master(model.ledger().bucket_of(index)) + model.ledger().offset_of(index);
  }
  return checkpoint::WriteModelFolder(
      out_folder, tensors,
      [&](const checkpoint::ModelTensorSpec& tensor, int64_t begin_bytes, absl::Span<std::byte> bytes) {
        const int64_t element_bytes = DTypeBytes(dtype);
        const float* source = data.at(tensor.name) + begin_bytes / element_bytes;
        kernels::Cpu().For(dtype).round(bytes.data(), source,
                                        static_cast<int64_t>(bytes.size()) / element_bytes);
        return absl::OkStatus();
      },
      kMaxShardBytes);
}

// What the run keeps of its model's folder, but for config.json, which is written anew.
absl::Status CopyModelFiles(const std::string& kept, const std::string& out_folder) {
  for (const std::string& name : FolderEntries(kept)) {
    if (name == "config.json") continue;
    TRAINCTL_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(absl::StrCat(kept, "/", name)));
    TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(absl::StrCat(out_folder, "/", name), bytes));
  }
  return absl::OkStatus();
}

// Without it transformers takes the tokenizer class of the model's family, which adds tokens of its own.
absl::Status WriteTokenizerConfig(const Codec& codec, const std::string& out_folder) {
  const std::string path = absl::StrCat(out_folder, "/", kTokenizerConfig);
  if (!PathExists(out_folder + "/tokenizer.json") || PathExists(path)) return absl::OkStatus();
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!codec.end_of_document().empty()) config["eos_token"] = codec.end_of_document();
  return WriteFileAtomic(path, config.dump(2) + "\n");
}

// The names and sizes of what is new in a folder that held `before`.
absl::StatusOr<std::string> DescribeNewFiles(const std::string& folder,
                                             const std::vector<std::string>& before) {
  std::string text;
  for (const std::string& name : FolderEntries(folder)) {
    if (std::find(before.begin(), before.end(), name) != before.end()) continue;
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(absl::StrCat(folder, "/", name)));
    absl::StrAppendFormat(&text, "  %-30s %10s\n", name, FormatBytes(bytes));
  }
  return text;
}

absl::StatusOr<std::string> Export(const InferenceDeps& deps, const std::string& out_folder, bool bf16) {
  TRAINCTL_ASSIGN_OR_RETURN(const Codec codec, Codec::Open(deps));
  InferenceModel model(deps, {1, 1});
  TRAINCTL_RETURN_IF_ERROR(model.Load(deps));
  const DType dtype = bf16 ? DType::kBF16 : DType::kF32;
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(out_folder));
  const std::vector<std::string> before = FolderEntries(out_folder);
  TRAINCTL_RETURN_IF_ERROR(WriteWeights(model, dtype, out_folder));
  TRAINCTL_RETURN_IF_ERROR(CopyModelFiles(deps.model_files_path, out_folder));
  TRAINCTL_RETURN_IF_ERROR(WriteTokenizerConfig(codec, out_folder));
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(
      out_folder + "/config.json", model::ToHuggingFaceConfig(model.spec(), dtype, codec.special_tokens())));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string files, DescribeNewFiles(out_folder, before));
  return absl::StrCat("Wrote ", deps.checkpoint_path, " as a model to ", out_folder, ", ",
                      bf16 ? "bf16" : "fp32", ":\n", files,
                      codec.is_bytes() ? "No tokenizer: its tokens are bytes\n" : "");
}

}  // namespace

absl::StatusOr<std::string> RunExport(const InferenceDeps& deps, const std::string& out_folder, bool bf16) {
  return Guarded(deps, [&] { return Export(deps, out_folder, bf16); });
}

}  // namespace trainctl::trainer
