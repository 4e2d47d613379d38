#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "verify/verify.h"

namespace trainctl::verify {
namespace {

constexpr size_t kShownFindings = 12;

const char* PrecisionName(DType dtype) { return dtype == DType::kBF16 ? "bf16" : "fp32"; }

std::string Sizes(const Report& report) {
  const model::Architecture& spec = report.small.spec;
  const layout::Layout& layout = report.small.layout;
  return absl::StrFormat(
      "%d layers, hidden %d, %d heads (%d of keys), ffn %d, vocabulary %d; %d micro-batch%s of %d sequence%s "
      "of "
      "%d tokens",
      NumLayers(spec), spec.hidden, AttentionOf(spec).heads, AttentionOf(spec).kv_heads, MlpOf(spec).ffn,
      spec.vocab, layout.num_micro_batches, layout.num_micro_batches == 1 ? "" : "es", layout.micro_batch,
      layout.micro_batch == 1 ? "" : "s", report.small.seq_len);
}

std::string Line(const Finding& finding) {
  return absl::StrCat(
      "  ", finding.parameter, ": off by ", absl::StrFormat("%.2g", finding.error), " (",
      absl::StrFormat("%.3g", finding.ratio), " times the correct value); ", finding.placement,
      finding.axes.empty() ? "" : absl::StrCat("; summed over ", absl::StrJoin(finding.axes, ", ")), "\n");
}

}  // namespace

std::string ReportToText(const Report& report) {
  std::string text = absl::StrCat(report.small.layout.ToString(), ", ", report.num_ranks,
                                  report.num_ranks == 1 ? " process" : " processes", " on CPUs\n",
                                  "Shrunk to ", Sizes(report), ".\n");
  absl::StrAppend(&text, absl::StrFormat("fp64, compared with one process: loss %.1e, gradient norm %.1e, "
                                         "worst of %d gradients %.1e (%s).\n",
                                         report.loss_error, report.grad_norm_error, report.num_parameters,
                                         report.gradient_error, report.worst_parameter));
  absl::StrAppend(&text, "After three updates, ",
                  report.update_wrong.empty()
                      ? absl::StrFormat("parameters and optimizer state agree within %.0e",
                                        Tolerances::OfDouble().gradient)
                      : report.update_wrong,
                  ".\n");
  absl::StrAppend(
      &text,
      absl::StrFormat("%s, compared with fp64: worst gradient %.1e; with one process, %.1e.\n",
                      PrecisionName(report.precision), report.rounding_error, report.rounding_error_alone));
  if (report.wrong.empty())
    return absl::StrCat(text, "Correct: this layout computes the same gradient as one process.\n");
  absl::StrAppend(&text, "WRONG: ", report.wrong, ".\n");
  for (size_t i = 0; i < std::min(report.findings.size(), kShownFindings); ++i)
    text += Line(report.findings[i]);
  if (report.findings.size() > kShownFindings)
    absl::StrAppend(&text, "  and ", report.findings.size() - kShownFindings, " more (--json lists all)\n");
  for (const MissingExchange& missing : report.missing)
    absl::StrAppend(&text, "Missing or wrong: ", missing.call, ", over ", missing.axis, ".\n");
  return text;
}

std::string ReportToJson(const Report& report) {
  const model::Architecture& spec = report.small.spec;
  Json json = {{"schema", "trainctl.verify.v2"},
               {"right", report.wrong.empty()},
               {"wrong", report.wrong},
               {"layout", report.small.layout.ToString()},
               {"processes", report.num_ranks},
               {"model",
                {{"layers", NumLayers(spec)},
                 {"hidden", spec.hidden},
                 {"heads", AttentionOf(spec).heads},
                 {"kv_heads", AttentionOf(spec).kv_heads},
                 {"ffn", MlpOf(spec).ffn},
                 {"vocab", spec.vocab}}},
               {"seq_len", report.small.seq_len},
               {"parameters", report.num_parameters},
               {"loss_error", report.loss_error},
               {"grad_norm_error", report.grad_norm_error},
               {"gradient_error", report.gradient_error},
               {"worst_parameter", report.worst_parameter},
               {"update_wrong", report.update_wrong}};
  json["rounding"] = {{"precision", PrecisionName(report.precision)},
                      {"gradient_error", report.rounding_error},
                      {"one_process_error", report.rounding_error_alone},
                      {"wrong", report.rounding_wrong}};
  json["findings"] = Json::array();
  for (const Finding& finding : report.findings) {
    json["findings"].push_back({{"parameter", finding.parameter},
                                {"error", finding.error},
                                {"ratio", finding.ratio},
                                {"placement", finding.placement},
                                {"summed_over", finding.axes}});
  }
  json["missing"] = Json::array();
  for (const MissingExchange& missing : report.missing)
    json["missing"].push_back({{"call", missing.call}, {"axis", missing.axis}});
  return FormatJson(json, 2) + "\n";
}

}  // namespace trainctl::verify
