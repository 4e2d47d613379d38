#include "apps/worker/inference_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/status.h"
#include "data/example_fields.h"
#include "data/source_kind.h"
#include "data/unused_prompts.h"
#include "recipe/load.h"
#include "recipe/model_folder.h"
#include "recipe/recipe_json.h"
#include "tokenizer/other_files.h"
#include "tokenizer/tokenizer.h"

namespace trainctl {
namespace {

constexpr int64_t kNumBytes = 256;

// Sets the fields of a JSONL file that the command line does not name: those that FindExampleFields knows,
// where the file does not have the source's.
absl::Status FindFields(const InferenceRequest& request, recipe::DataSource& source,
                        std::vector<std::string>& notes) {
  if (!request.text_field.empty() || !request.prompt_field.empty()) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> names, data::FieldNamesOfFirstLine(request.data));
  if (std::find(names.begin(), names.end(), source.text_field) != names.end()) return absl::OkStatus();
  const data::ExampleFields found = data::FindExampleFields(names);
  if (found.text_field.empty()) return absl::OkStatus();
  notes.push_back(absl::StrCat(
      request.data, " has no field '", source.text_field, "'; the text is its field '", found.text_field, "'",
      found.prompt_field.empty() ? "" : absl::StrCat(", and the prompt is '", found.prompt_field, "'")));
  source.text_field = found.text_field;
  source.prompt_field = found.prompt_field;
  return absl::OkStatus();
}

// Replaces the recipe's evaluation sets with all of `request.data`.
absl::Status EvaluateOnly(const InferenceRequest& request, InferenceModel& model) {
  recipe::Recipe& recipe = model.recipe;
  recipe::DataSource source = recipe.data.train.empty() ? recipe::DataSource{} : recipe.data.train.front();
  source.name = request.data;
  source.files = {request.data};
  source.kind = "auto";
  source.weight.reset();
  source.holdout = 0;
  if (!request.text_field.empty()) source.text_field = request.text_field;
  if (!request.prompt_field.empty()) source.prompt_field = request.prompt_field;
  const absl::StatusOr<data::SourceKind> kind = data::KindOfFile(source, request.data);
  if (!kind.ok() || !data::HasRows(*kind)) {
    if (!request.text_field.empty() || !request.prompt_field.empty()) {
      return UsageError(
          absl::StrCat("--text-field and --prompt-field apply only to JSONL and Parquet, which ",
                       request.data, " is not"));
    }
    source.prompt_field.clear();
  } else if (*kind == data::SourceKind::kJsonl) {
    TRAINCTL_RETURN_IF_ERROR(FindFields(request, source, model.notes));
  }
  if (kind.ok() && *kind == data::SourceKind::kJsonl && source.prompt_field.empty()) {
    const std::string name = data::FindUnusedPrompt(request.data, source.text_field);
    if (!name.empty()) {
      model.notes.push_back(absl::StrCat("the field '", name, "' of ", request.data,
                                         " is not read, so the loss is that of '", source.text_field,
                                         "' without it; for the loss of the text given the prompt, pass ",
                                         "--prompt-field ", name));
    }
  }
  for (recipe::DataSource& train : recipe.data.train) train.holdout = 0;
  recipe.data.eval = {std::move(source)};
  recipe.train.eval_batches = int64_t{1} << 40;
  return absl::OkStatus();
}

absl::Status SetLength(int64_t seq_len, recipe::Recipe& recipe) {
  const int64_t most = recipe.model.spec.max_position;
  if (seq_len > most) {
    return UsageError(absl::StrCat("--seq-len ", seq_len, " is above the ", most,
                                   " tokens that the model supports (max_position_embeddings)"));
  }
  recipe.data.seq_len = seq_len;
  return absl::OkStatus();
}

bool ReadsTokens(const recipe::Recipe& recipe) {
  if (recipe.data.eval.empty()) return false;
  const recipe::DataSource& source = recipe.data.eval.front();
  const absl::StatusOr<data::SourceKind> kind = data::KindOfFile(source, source.files.front());
  return kind.ok() && *kind == data::SourceKind::kIndexed;
}

// Without a readable tokenizer, the model reads bytes, as with model.weights = "from". A tokenizer of another
// format is an error.
absl::Status CheckTokenizer(const std::string& folder, InferenceModel& model) {
  if (model.recipe.data.tokenizer != "byte" || ReadsTokens(model.recipe)) return absl::OkStatus();
  if (!tokenizer::DescribeOthersIn(FolderEntries(folder), folder).empty()) {
    return tokenizer::Tokenizer::FindFile(folder).status();
  }
  const int64_t vocab = model.recipe.model.spec.vocab;
  if (vocab < kNumBytes) {
    return BadDataError(
        absl::StrCat(folder, " has neither tokenizer.json nor tokenizer.model, and its vocabulary of ", vocab,
                     " tokens is too small for byte tokens; add the model's tokenizer"));
  }
  model.notes.push_back(absl::StrCat(
      folder,
      " has neither tokenizer.json nor tokenizer.model, so each byte of a text is treated as a token"));
  return absl::OkStatus();
}

absl::StatusOr<InferenceModel> OpenModel(const InferenceRequest& request) {
  InferenceModel model;
  if (!request.folder.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(model.recipe, recipe::RecipeOfFolder(request.folder, recipe::RealAccess()));
    model.files_path = request.folder;
    return model;
  }
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(request.run_dir));
  TRAINCTL_ASSIGN_OR_RETURN(model.recipe, ReadStoredRecipe(run));
  model.files_path = run.model_files_path();
  return model;
}

}  // namespace

absl::StatusOr<InferenceModel> OpenInferenceModel(const InferenceRequest& request) {
  TRAINCTL_ASSIGN_OR_RETURN(InferenceModel model, OpenModel(request));
  if (!request.data.empty()) TRAINCTL_RETURN_IF_ERROR(EvaluateOnly(request, model));
  if (request.seq_len > 0) TRAINCTL_RETURN_IF_ERROR(SetLength(request.seq_len, model.recipe));
  if (!request.folder.empty()) TRAINCTL_RETURN_IF_ERROR(CheckTokenizer(request.folder, model));
  return model;
}

absl::StatusOr<recipe::Recipe> ReadStoredRecipe(const run::RunFolder& folder) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder.recipe_path()));
  return recipe::RecipeFromJson(text, folder.recipe_path());
}

}  // namespace trainctl
