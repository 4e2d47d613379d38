#include "apps/trainctl/node_look.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "apps/trainctl/worker_program.h"
#include "base/files.h"
#include "base/temporary_folder.h"
#include "cluster/host.h"
#include "data/fingerprint.h"
#include "doctor/detect_device.h"
#include "launcher/program_files.h"
#include "launcher/worker_contract.h"

namespace trainctl::cli {
namespace {

// Of those that are there; empty: one cannot be read. `is_quick`: of large files, pieces.
std::string HashOf(const std::vector<std::string>& paths, bool is_quick = false) {
  std::string hashes;
  for (const std::string& path : paths) {
    if (!PathExists(path)) continue;
    const absl::StatusOr<data::FileFingerprint> found =
        is_quick ? data::QuickFingerprintFile(path) : data::FingerprintFile(path);
    if (!found.ok()) return "";
    absl::StrAppendFormat(&hashes, "%s%016x", hashes.empty() ? "" : "+", found->xxh3);
  }
  return hashes;
}

// As a worker would find them, whose environment `variables` adds to this one. Loads nothing.
std::string HashOfLibTorch(const std::vector<std::string>& programs,
                           const std::map<std::string, std::string>& variables) {
  const absl::StatusOr<std::vector<std::string>> paths = launcher::FindLibTorch(programs, variables);
  return paths.ok() ? HashOf(*paths, /*is_quick=*/true) : "";
}

}  // namespace

std::string HashRunFiles(const std::string& run_dir) {
  const std::vector<std::string> paths = {run_dir + "/recipe.json", run_dir + "/plan.json"};
  for (const std::string& path : paths) {
    if (!PathExists(path)) return "";
  }
  return HashOf(paths);
}

rendezvous::NodeFacts LookAtThisNode(const std::string& worker_program, const rendezvous::NodeSetup& setup) {
  rendezvous::NodeFacts facts;
  const std::vector<std::string> programs = {worker_program, launcher::CudaPluginOf(worker_program)};
  facts.programs = HashOf(programs);
  facts.libraries = HashOfLibTorch(programs, setup.env);
  if (const absl::StatusOr<std::string> own = OwnProgram(); own.ok()) facts.trainctl = HashOf({*own});
  facts.run_files = HashRunFiles(setup.run_dir);
  facts.run_free_bytes = FreeBytes(setup.run_dir).value_or(std::nullopt).value_or(-1);
  facts.temp_free_bytes = FreeBytes(TemporaryFolders().front()).value_or(std::nullopt).value_or(-1);
  const absl::StatusOr<cluster::Host> host = cluster::DetectHost();
  if (host.ok()) facts.memory_available_bytes = host->memory_available_bytes;
  const absl::StatusOr<doctor::ShownDevices> devices = doctor::FindShownDevices();
  // A container may have devices without the library that shows them.
  const bool is_told =
      devices.ok() && (!devices->models.empty() || !devices->hidden.empty() || !PathExists("/dev/nvidiactl"));
  if (is_told) facts.num_devices = static_cast<int64_t>(devices->models.size());
  return facts;
}

}  // namespace trainctl::cli
