#include "recipe/finetune_starter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "recipe/derive.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr bool kChoice = true;
constexpr int64_t kMostTokens = 2048;  // largest data.seq_len that is written
constexpr int64_t kSequences = 16;     // sequences per step, rounded up to a multiple of the workers
constexpr int64_t kUnknownSteps = 500;
constexpr int64_t kEpochs = 3;
constexpr int64_t kLeastSteps = 100;  // smaller data gets smaller batches
constexpr char kEvalSet[] = "held-out";

// A tenth of the rates with which the GPT-3 models of about the same size were trained (arXiv 2005.14165,
// table 2.1). The sizes are the geometric means of those of neighboring models. Models of 1B parameters and
// more get the rate with which Llama 2 of 7B to 70B parameters was fine-tuned (arXiv 2307.09288, section
// 3.1), which is also a tenth of that of the 1.3B model.
struct SizeRate {
  int64_t below_parameters;
  double lr;
};
constexpr SizeRate kRates[] = {{209'000'000, 6e-5}, {516'000'000, 3e-5}, {994'000'000, 2.5e-5}};
constexpr double kRateOfLargeModels = 2e-5;

int64_t DivideUp(int64_t number, int64_t divisor) { return (number + divisor - 1) / divisor; }

std::string FilesToml(const std::vector<std::string>& files) {
  if (files.size() == 1) return absl::StrCat("[", QuoteToml(files[0]), "]");
  std::string text = "[\n";
  for (const std::string& file : files) absl::StrAppend(&text, "  ", QuoteToml(file), ",\n");
  return absl::StrCat(text, "]");
}

std::string SeqLenNote(int64_t max_position) {
  if (max_position <= kMostTokens)
    return "This is the longest sequence of the model. Lower it to save memory.";
  return absl::StrCat("The model supports up to ", max_position,
                      ". Raise this value if examples are longer, or lower it to save memory.");
}

struct RunLength {
  int64_t batch_sequences = 0;
  int64_t steps = 0;
};

RunLength LengthOf(const FineTune& choices, int64_t seq_len) {
  int64_t per_worker = DivideUp(kSequences, choices.num_workers);
  const auto length = [&]() -> RunLength {
    const int64_t batch = per_worker * choices.num_workers;
    if (choices.epoch_tokens == 0) return {batch, kUnknownSteps};
    Recipe run;
    run.data.seq_len = seq_len;
    run.train.batch_sequences = batch;
    return {batch, std::max<int64_t>(1, StepsForEpochs(run, kEpochs, choices.epoch_tokens))};
  };
  while (length().steps < kLeastSteps && per_worker > 1) per_worker /= 2;
  return length();
}

// Lines of the training data.
std::vector<StarterLine> DataLines(const FineTune& choices) {
  const bool is_known = !choices.text_field.empty();
  std::vector<StarterLine> lines = {{"data.train[0].name", "\"examples\""}};
  if (choices.files.empty()) {
    lines.push_back(
        {"data.train[0].files", "[\"data/train.jsonl\"]", !kChoice, "Replace this with your files."});
  } else {
    lines.push_back({"data.train[0].files", FilesToml(choices.files)});
  }
  if (!choices.has_fields) return lines;
  std::string note;
  if (choices.has_conversations) {
    note = "The fields of the rendered examples.";
  } else if (!is_known) {
    note = "Replace this and the next field with those of your examples.";
    if (!choices.field_names.empty()) {
      absl::StrAppend(&note, " The first example has ",
                      absl::StrJoin(choices.field_names, ", ",
                                    [](std::string* out, const std::string& name) {
                                      absl::StrAppend(out, QuoteToml(name));
                                    }),
                      ".");
    }
  }
  const std::string prompt = is_known ? choices.prompt_field : "prompt";
  lines.push_back({"data.train[0].prompt_field", QuoteToml(prompt.empty() ? "prompt" : prompt),
                   prompt.empty() ? kChoice : !kChoice, note});
  lines.push_back({"data.train[0].text_field", QuoteToml(is_known ? choices.text_field : "text")});
  return lines;
}

std::string BeforeOf(const FineTune& choices) {
  if (choices.files.empty()) {
    return "Create data/train.jsonl (objects with \"prompt\" and \"text\") next to the recipe, then run: "
           "trainctl "
           "plan {recipe}";
  }
  if (choices.has_conversations) {
    return "Render the conversations into a file of objects with \"prompt\" and \"text\", name that file in "
           "the "
           "recipe, then run: trainctl plan {recipe}";
  }
  if (choices.has_fields && choices.text_field.empty()) {
    return "Set prompt_field and text_field to the fields of your examples, then run: trainctl plan {recipe}";
  }
  return "To see what a batch looks like, run: trainctl data batch {recipe} --step 1. Then run: trainctl "
         "plan "
         "{recipe}";
}

}  // namespace

double FineTuneLearningRate(int64_t num_parameters) {
  for (const SizeRate& row : kRates) {
    if (num_parameters < row.below_parameters) return row.lr;
  }
  return kRateOfLargeModels;
}

Starter FineTuneStarter(const FineTune& choices) {
  const int64_t seq_len = std::min(choices.max_position, kMostTokens);
  const auto [batch, steps] = LengthOf(choices, seq_len);
  // Evaluations and checkpoints at the same steps, so that the best of them can be kept.
  const std::string every = absl::StrCat(DivideUp(steps, 5));
  // About 3 %, as usual for fine-tuning, but less than the whole run.
  const int64_t warmup = std::min(DivideUp(steps * 3, 100), steps - 1);
  const std::string size = FormatCount(choices.num_parameters);

  std::vector<StarterLine> lines = {
      {"run.name", "\"finetune\""},
      {"model.from", QuoteToml(choices.model)},
      {"model.weights", "\"from\""},
      {"data.seq_len", absl::StrCat(seq_len), !kChoice, SeqLenNote(choices.max_position)},
      {"data.long_documents", "", kChoice}};
  for (StarterLine& line : DataLines(choices)) lines.push_back(std::move(line));
  lines.push_back({"data.eval[0].name", QuoteToml(kEvalSet)});
  lines.push_back({"data.eval[0].holdout", "0.05"});
  if (choices.epoch_tokens > 0) {
    lines.push_back({"train.epochs", absl::StrCat(kEpochs), !kChoice,
                     absl::StrCat("With the current data: ", steps, " steps.")});
  } else {
    lines.push_back({"train.steps", absl::StrCat(steps), !kChoice,
                     "To set the number of passes over the data instead: epochs = 3"});
  }
  const std::vector<StarterLine> rest = {
      {"train.batch_sequences", absl::StrCat(batch), !kChoice,
       batch < kSequences ? "Small, because the data is enough for only a few steps." : ""},
      {"train.micro_batch", "\"auto\"", kChoice},
      {"train.precision", "\"auto\""},
      {"train.master_dtype", "", kChoice},
      {"train.eval_every", every},
      {"optimizer.lr", FormatDouble(FineTuneLearningRate(choices.num_parameters)), !kChoice,
       absl::StrCat("Chosen for ", size,
                    " parameters: a tenth of the rate with which the GPT-3 model of about this size was "
                    "trained (arXiv 2005.14165, table 2.1). From 1B parameters on it is 2e-5, as for Llama 2 "
                    "(arXiv 2307.09288, section 3.1).")},
      {"optimizer.warmup_steps", absl::StrCat(warmup), !kChoice,
       absl::StrCat("About 3 % of the ", steps, " steps.")},
      {"optimizer.lr_schedule", "\"linear\""},
      {"optimizer.clip_norm", "", kChoice},
      {"cluster.device", "\"auto\""},
      {"parallel.zero_stage", "\"auto\"", kChoice},
      {"parallel.recompute", "\"auto\"", kChoice},
      {"checkpoint.every_steps", every},
      {"checkpoint.keep", "", kChoice},
      {"checkpoint.keep_best", QuoteToml(kEvalSet)}};
  lines.insert(lines.end(), rest.begin(), rest.end());
  return {"finetune", absl::StrCat("fine-tuning a Hugging Face model of ", size, " parameters"),
          BeforeOf(choices), std::move(lines)};
}

}  // namespace trainctl::recipe
