#include "apps/trainctl/node_look.h"

#include "absl/strings/str_format.h"
#include "base/files.h"
#include "cluster/host.h"
#include "data/fingerprint.h"
#include "doctor/detect_device.h"
#include "launcher/worker_contract.h"

namespace trainctl::cli {
namespace {

std::string HashOf(const std::string& program) {
  std::string hashes;
  for (const std::string& path : {program, launcher::CudaPluginOf(program)}) {
    if (!PathExists(path)) continue;
    const absl::StatusOr<data::FileFingerprint> found = data::FingerprintFile(path);
    if (!found.ok()) return "";
    absl::StrAppendFormat(&hashes, "%s%016x", hashes.empty() ? "" : "+", found->xxh3);
  }
  return hashes;
}

}  // namespace

rendezvous::NodeFacts LookAtThisNode(const std::string& worker_program) {
  rendezvous::NodeFacts facts;
  facts.programs = HashOf(worker_program);
  const absl::StatusOr<cluster::Host> host = cluster::DetectHost();
  if (host.ok()) facts.memory_available_bytes = host->memory_available_bytes;
  const absl::StatusOr<doctor::ShownDevices> devices = doctor::FindShownDevices();
  // A container may have devices without the library that shows them.
  const bool is_told = devices.ok() && (!devices->models.empty() || !PathExists("/dev/nvidiactl"));
  if (is_told) facts.num_devices = static_cast<int64_t>(devices->models.size());
  return facts;
}

}  // namespace trainctl::cli
