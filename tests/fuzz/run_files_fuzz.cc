// Fuzzes the files of a run folder that `trainctl resume` and its workers read and that no other target has:
// plan.json, data.json, attention.json, batch-job.json, the step logs, the names and contents in terms/, and
// kept documents. The first byte chooses.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "cluster/slurm_job.h"
#include "data/data_record.h"
#include "data/document_store.h"
#include "data/kept_documents.h"
#include "plan/plan.h"
#include "run/attention_choices.h"
#include "run/grant.h"
#include "telemetry/log_follower.h"
#include "telemetry/step_log.h"

namespace trainctl {
namespace {

void CheckRefusal(const absl::Status& status) {
  TRAINCTL_CHECK(!status.message().empty());
  const ExitCode code = ExitCodeFor(status);
  TRAINCTL_CHECK(code == ExitCode::kBadData || code == ExitCode::kUsage || code == ExitCode::kEnvironment);
}

void FuzzPlan(const std::string& text) {
  const auto plan = plan::PlanFromJson(text, "plan.json");
  if (!plan.ok()) return CheckRefusal(plan.status());
  const std::string written = plan::PlanToJson(*plan);
  const auto again = plan::PlanFromJson(written, "plan.json");
  TRAINCTL_CHECK(again.ok() && plan::PlanToJson(*again) == written);
}

void FuzzData(const std::string& text) {
  const auto files = data::ParseDataRecord(text, "data.json");
  if (!files.ok()) return CheckRefusal(files.status());
  const std::string written = data::FormatDataRecord(*files);
  TRAINCTL_CHECK(data::FormatDataRecord(*data::ParseDataRecord(written, "data.json")) == written);
}

void FuzzAttention(const std::string& text) {
  const auto choices = run::ParseAttentionChoices(text, "attention.json");
  if (!choices.ok()) return CheckRefusal(choices.status());
  const std::string written = run::FormatAttentionChoices(*choices);
  TRAINCTL_CHECK(run::FormatAttentionChoices(*run::ParseAttentionChoices(written, "attention.json")) ==
                 written);
  for (const run::AttentionChoice& choice : *choices)
    TRAINCTL_CHECK(run::FindAttentionChoice(*choices, choice) != nullptr);
}

// What it finds is given to Slurm's programs as an argument.
void FuzzBatchJob(const std::string& text) {
  const auto job = cluster::FindRecordedJob(text, "/runs/a");
  if (!job) return;
  TRAINCTL_CHECK(!job->empty() && job->find_first_not_of("0123456789") == std::string::npos);
  TRAINCTL_CHECK(cluster::FindRecordedJob(text, "/runs/b") == std::nullopt);
}

void FuzzFollower(const std::string& path) {
  telemetry::LogFollower follower(path, path);
  follower.Update();
  TRAINCTL_CHECK(!follower.Update());
  for (const auto& [set, losses] : follower.numbers().evaluation) {
    TRAINCTL_CHECK(losses.last.step <= follower.numbers().step);
    TRAINCTL_CHECK(!losses.best.has_value() || !(losses.last.loss < losses.best->loss) ||
                   std::isinf(losses.last.loss));
  }
}

void FuzzStepLog(const std::string& folder, int64_t keep, const std::string& text) {
  const std::string path = folder + "/metrics.jsonl";
  TRAINCTL_CHECK(WriteFileAtomic(path, text).ok());
  FuzzFollower(path);
  {
    auto log = telemetry::StepLog::Open(path, keep);
    if (!log.ok()) {
      CheckRefusal(log.status());
      TRAINCTL_CHECK(*ReadFile(path) == text);  // as it was
      return;
    }
    TRAINCTL_CHECK(log->last_step() <= keep);
    TRAINCTL_CHECK(log->Append(keep + 1, "\"loss\":1").ok() && log->Sync().ok());
  }
  // The kept lines can be read again.
  TRAINCTL_CHECK(telemetry::StepLog::Open(path, keep + 1)->last_step() == keep + 1);
}

// Lines of "name content".
void FuzzTerms(const std::string& folder, const std::string& text) {
  TRAINCTL_CHECK(MakeDirs(folder + "/terms").ok());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const std::string name = line.substr(0, line.find(' '));
    at = end + 1;
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || name.size() > 200) {
      continue;
    }
    TRAINCTL_CHECK(WriteFileAtomic(absl::StrCat(folder, "/terms/", name), line.substr(name.size())).ok());
  }
  const auto term = run::ClaimTerm(folder);
  if (!term.ok()) return CheckRefusal(term.status());
  TRAINCTL_CHECK(*term > 0 && run::CheckGrant(folder, {*term, 0}).ok());
  TRAINCTL_CHECK(run::RecordGrant(folder, {*term, 7}).ok());
  TRAINCTL_CHECK(!run::CheckGrant(folder, {*term, 6}).ok() && run::CheckGrant(folder, {*term, 7}).ok());
}

// A file of two documents, and what was kept of it in a folder.
class KeptFile {
 public:
  KeptFile() {
    TRAINCTL_CHECK(::mkdtemp(folder_.data()) != nullptr);
    TRAINCTL_CHECK(WriteFileAtomic(folder_ + "/a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"\"}\n").ok());
    source_.files = {folder_ + "/a.jsonl"};
    source_.kind = "jsonl";
    data::KeptDocuments kept(folder_ + "/kept", 1);
    expected_ = Read(&kept);
    TRAINCTL_CHECK(kept.Write(folder_ + "/kept").ok());
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/kept"))
      parts_.push_back(entry.path().string());
    std::sort(parts_.begin(), parts_.end());
    TRAINCTL_CHECK(!parts_.empty());
  }
  ~KeptFile() { (void)RemoveAll(folder_); }

  // What was damaged is read again from the file itself.
  void Damage(size_t part, const std::string& text) const {
    const std::string& path = parts_[part % parts_.size()];
    const std::string whole = *ReadFile(path);
    TRAINCTL_CHECK(WriteFileAtomic(path, text).ok());
    data::KeptDocuments kept(folder_ + "/kept", 1);
    TRAINCTL_CHECK(Read(&kept) == expected_);
    TRAINCTL_CHECK(WriteFileAtomic(path, whole).ok());
  }

 private:
  std::vector<int32_t> Read(data::KeptDocuments* kept) const {
    const auto store = data::OpenDocuments(source_, 257, {.kept = kept});
    TRAINCTL_CHECK(store.ok());
    std::vector<int32_t> all;
    for (int64_t i = 0; i < (*store)->num_documents(); ++i) {
      const auto count = static_cast<size_t>((*store)->DocumentTokens(i));
      std::vector<int32_t> tokens(count);
      std::vector<uint8_t> learn(count);
      TRAINCTL_CHECK((*store)->Read(i, 0, static_cast<int64_t>(count), tokens.data(), learn.data()).ok());
      all.push_back(-1);
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    return all;
  }

  std::string folder_ = "/tmp/trainctl-kept-XXXXXX";
  recipe::DataSource source_;
  std::vector<std::string> parts_;
  std::vector<int32_t> expected_;
};

}  // namespace
}  // namespace trainctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace trainctl;
  if (size_bytes < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size_bytes - 2);
  if (data[0] == 'p') FuzzPlan(text);
  if (data[0] == 'd') FuzzData(text);
  if (data[0] == 'a') FuzzAttention(text);
  if (data[0] == 'b') FuzzBatchJob(text);
  static const KeptFile kept_file;
  if (data[0] == 'k') kept_file.Damage(data[1], text);
  if (data[0] != 's' && data[0] != 't') return 0;
  std::string folder = "/tmp/trainctl-run-files-XXXXXX";
  TRAINCTL_CHECK(::mkdtemp(folder.data()) != nullptr);
  if (data[0] == 's') FuzzStepLog(folder, data[1] % 8, text);
  if (data[0] == 't') FuzzTerms(folder, text);
  TRAINCTL_CHECK(RemoveAll(folder).ok());
  return 0;
}
