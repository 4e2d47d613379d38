#include "trainer/choose_attention.h"

#include <cmath>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status.h"
#include "device/error_text.h"
#include "nn/time_attention.h"
#include "run/attention_choices.h"

namespace trainctl::trainer {
namespace {

// A near tie must not be decided by noise.
constexpr double kNoise = 1.02;

// The choices in the file at `path`; none if there is no file yet.
absl::StatusOr<std::vector<run::AttentionChoice>> ReadChoices(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::vector<run::AttentionChoice>();
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return run::ParseAttentionChoices(text, path);
}

absl::StatusOr<bool> MeasureChoice(const device::Device& device, const nn::AttentionShape& shape,
                                   const std::string& path,
                                   const std::function<void(const std::string&)>& say) {
  run::AttentionChoice choice;
  choice.device = device.description();
  choice.batch = shape.batch;
  choice.seq_len = shape.seq_len;
  choice.heads = shape.heads;
  choice.kv_heads = shape.kv_heads;
  choice.head_dim = shape.head_dim;
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<run::AttentionChoice> choices, ReadChoices(path));
  if (const run::AttentionChoice* known = run::FindAttentionChoice(choices, choice)) return known->uses_cudnn;
  std::optional<nn::AttentionSeconds> seconds;
  try {
    seconds = nn::TimeAttention(device, shape);
  } catch (const std::exception& error) {
    return WorkerError(absl::StrCat("could not time attention: ", device::ErrorText(error)));
  }
  if (!seconds.has_value()) return true;  // what serves is used: there is nothing to choose
  const double cudnn = seconds->cudnn.both(), flash = seconds->flash.both();
  if (std::isfinite(cudnn)) choice.cudnn_seconds = cudnn;
  choice.flash_seconds = flash;
  choice.uses_cudnn = cudnn <= kNoise * flash;
  choices.push_back(choice);
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(path, run::FormatAttentionChoices(choices)));
  const auto text = [](double s) { return absl::StrFormat("%.3g ms", 1e3 * s); };
  say(absl::StrCat("attention per layer and micro-batch: flash takes ", text(flash), ", cuDNN ",
                   choice.cudnn_seconds ? text(cudnn) : "has no kernel for this shape", "; using ",
                   choice.uses_cudnn ? "cuDNN" : "flash"));
  return choice.uses_cudnn;
}

}  // namespace

nn::AttentionShape AttentionToChoose(const model::Graph& graph) {
  std::optional<nn::AttentionShape> first;
  for (const model::Segment& segment : graph.kinds) {
    for (const model::Operator& op : segment.operators) {
      if (op.kind != model::OpKind::kAttention) continue;
      const nn::AttentionShape shape =
          nn::AttentionShapeOf(segment.shape, op.As<model::AttentionAttributes>());
      if (shape.softcap == 0 && !shape.LimitsKeys(shape.seq_len)) return shape;
      if (!first) first = shape;
    }
  }
  TRAINCTL_CHECK(first.has_value());
  return *first;
}

absl::Status ChooseAttention(const recipe::Recipe& recipe, const device::Device& device,
                             const nn::AttentionShape& shape, const std::string& path, comm::Group& world,
                             const std::function<void(const std::string&)>& say) {
  if (device.is_cpu()) return absl::OkStatus();
  bool use_cudnn = recipe.run.attention != "flash";
  if (recipe.run.attention == "auto" && !recipe.run.deterministic && recipe.data.packing == "continuous") {
    absl::StatusOr<bool> chosen = true;
    if (world.index() == 0) chosen = MeasureChoice(device, shape, path, say);
    double votes[2] = {world.index() == 0 && chosen.ok() && *chosen ? 1.0 : 0.0, chosen.ok() ? 0.0 : 1.0};
    const absl::Status shared = world.AllReduceScalars("attention", votes);
    TRAINCTL_RETURN_IF_ERROR(chosen.status());
    TRAINCTL_RETURN_IF_ERROR(shared);
    if (votes[1] > 0) return WorkerError("rank 0 could not time attention");
    use_cudnn = votes[0] > 0;
  }
  nn::UseCudnnAttention(use_cudnn);
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
