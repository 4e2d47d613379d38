#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/parameter_groups.h"
#include "model/parameters.h"
#include "recipe/check_subjects.h"
#include "recipe/trained_model.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

// Reports the error at the stated field that the message names, or otherwise at the field that chooses the
// model.
void FailModel(CheckContext& context, absl::string_view message) {
  for (const auto& [path, where] : context.origins()) {
    const bool is_stated = where != "default" && !absl::EndsWith(where, ")");
    if (absl::StartsWith(path, "model.") && is_stated && absl::StrContains(message, path)) {
      return context.FailAt(where, message);
    }
  }
  context.Fail({"model.preset", "model.from", "model.family"}, message);
}

void CheckTokenizer(CheckContext& context) {
  const DataConfig& data = context.recipe().data;
  const int64_t vocab = context.recipe().model.spec.vocab;
  if (data.tokenizer != "byte") return;
  if (vocab < 256) {
    const bool has_folder = !context.recipe().model.from.empty();
    const char* const fix = has_folder
                                ? "; model.from has no tokenizer.json or tokenizer.model, so text is read "
                                  "as bytes; add the model's tokenizer, or set data.tokenizer"
                                : "; set data.tokenizer, or model.vocab = 256 or more";
    context.Fail({"model.vocab", "model.preset", "model.from"},
                 absl::StrCat("model.vocab (", vocab,
                              ") is less than the 256 tokens that data.tokenizer = \"byte\" needs", fix));
  }
  const std::string& end = data.end_of_document;
  if (end != "auto") {
    context.Fail({"data.end_of_document"},
                 absl::StrCat("data.end_of_document = ", QuoteToml(end),
                              ": the byte tokenizer always uses token 256 (if model.vocab is above 256); "
                              "leave this field at \"auto\", or set data.tokenizer"));
  }
}

void CheckNoDecay(CheckContext& context) {
  // Patterns that recipes for many models contain.
  constexpr const char* kUsualPatterns[] = {"*norm.weight", "*.bias", "*embed_tokens.weight"};
  const auto is_among = [](const auto& list, const std::string& selector) {
    return std::find(std::begin(list), std::end(list), selector) != std::end(list);
  };
  std::vector<model::Parameter> inventory;
  for (const std::string& pattern : context.recipe().optimizer.no_decay) {
    if (is_among(model::kParameterGroups, pattern) || is_among(kUsualPatterns, pattern)) continue;
    if (inventory.empty()) inventory = model::Inventory(context.recipe().model.spec);
    const bool matches = std::any_of(inventory.begin(), inventory.end(), [&](const model::Parameter& p) {
      return model::IsSelected(pattern, p);
    });
    if (matches) continue;
    context.Fail({"optimizer.no_decay"},
                 absl::StrCat("optimizer.no_decay: ", QuoteToml(pattern),
                              " matches no parameter; an example of a parameter name is ",
                              inventory[inventory.size() / 2].name));
  }
}

}  // namespace

void CheckModel(CheckContext& context) {
  if (context.IsBadBelow("model")) return;
  const ModelConfig& model = context.recipe().model;
  const int64_t seq_len = context.recipe().data.seq_len;
  if (const absl::Status status = model::CheckTrainable(model.spec); !status.ok()) {
    return FailModel(context, absl::StrCat(status.message(), WhatElseOf(model.spec, status)));
  }
  CheckTokenizer(context);
  context.FailEach({
      {{"data.seq_len", "model.max_position"},
       seq_len > model.spec.max_position,
       absl::StrCat("data.seq_len (", seq_len, ") is above model.max_position (", model.spec.max_position,
                    "); lower data.seq_len, or set model.max_position = ", seq_len)},
      {{"model.weights"},
       model.weights == "from" && model.from.empty(),
       "model.weights = \"from\" requires model.from, the folder that contains the weights"},
  });
  if (context.IsUsable({"optimizer.no_decay"})) CheckNoDecay(context);
}

void CheckWhatIfModel(CheckContext& context) {
  if (context.IsBadBelow("model")) return;
  const absl::Status status = model::Validate(context.recipe().model.spec);
  if (!status.ok()) FailModel(context, status.message());
}

}  // namespace trainctl::recipe
