#include "trainer/choose_attention.h"

#include <cmath>
#include <exception>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "device/error_text.h"
#include "nn/time_attention.h"

namespace trainctl::trainer {
namespace {

constexpr char kSchema[] = "trainctl.attention.v1";

// A near tie must not be decided by noise.
constexpr double kNoise = 1.02;

Json DescribeShape(const device::Device& device, const nn::AttentionShape& shape) {
  return {{"device", device.description()}, {"batch", shape.batch},       {"seq_len", shape.seq_len},
          {"heads", shape.heads},           {"kv_heads", shape.kv_heads}, {"head_dim", shape.head_dim}};
}

// What was chosen so far. A damaged file is as none: it is measured again.
Json ReadChoices(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return Json::array();
  const absl::StatusOr<Json> json = ParseJson(*text, path);
  if (!json.ok() || !json->is_object() || !json->contains("choices") || !(*json)["choices"].is_array())
    return Json::array();
  return (*json)["choices"];
}

// Whether cuDNN's is used for this shape on this device.
std::optional<bool> FindChoice(const Json& choices, const Json& shape) {
  for (const Json& choice : choices) {
    if (!choice.is_object()) continue;
    bool is_of_shape = true;
    for (const auto& [name, value] : shape.items())
      is_of_shape = is_of_shape && choice.contains(name) && choice[name] == value;
    if (!is_of_shape || !choice.contains("kernel")) continue;
    if (choice["kernel"] == "cudnn") return true;
    if (choice["kernel"] == "flash") return false;
  }
  return std::nullopt;
}

absl::StatusOr<bool> MeasureChoice(const device::Device& device, const nn::AttentionShape& shape,
                                   const std::string& path,
                                   const std::function<void(const std::string&)>& say) {
  Json choice = DescribeShape(device, shape), choices = ReadChoices(path);
  if (const std::optional<bool> known = FindChoice(choices, choice); known.has_value()) return *known;
  std::optional<nn::AttentionSeconds> seconds;
  try {
    seconds = nn::TimeAttention(device, shape);
  } catch (const std::exception& error) {
    return WorkerError(absl::StrCat("attention could not be timed: ", device::ErrorText(error)));
  }
  if (!seconds.has_value()) return true;  // what serves is used: there is nothing to choose
  const double cudnn = seconds->cudnn.both(), flash = seconds->flash.both();
  const bool has_cudnn = std::isfinite(cudnn), is_cudnn = cudnn <= kNoise * flash;
  choice["cudnn_seconds"] = has_cudnn ? Json(cudnn) : Json();
  choice["flash_seconds"] = flash;
  choice["kernel"] = is_cudnn ? "cudnn" : "flash";
  choices.push_back(choice);
  const Json file = {{"schema", kSchema}, {"choices", choices}};
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(path, file.dump(2) + "\n"));
  const auto text = [](double s) { return absl::StrFormat("%.3g ms", 1e3 * s); };
  say(absl::StrCat("attention of a layer and micro-batch: flash takes ", text(flash), ", cuDNN ",
                   has_cudnn ? text(cudnn) : "has no kernel for this shape", "; ",
                   is_cudnn ? "cuDNN" : "flash", " is used"));
  return is_cudnn;
}

}  // namespace

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
