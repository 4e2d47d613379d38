// The catalogue of accelerators and of the hosts that they are sold or rented in, as data with a source
// for every number. It answers what the planner prices with when nobody has measured the machine; it detects
// nothing (host.h does) and prices nothing (collectives.h does, for collectives). Thread safe: tables are
// constant, pointers into them never die.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const cluster::DeviceMatch match, cluster::FindDevice("H100-80GB (DGX)"));
//   const cluster::Node& node = cluster::DefaultNodeFor(*match.device);
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/links.h"

namespace trainctl::cluster {

// The output tile that one compute unit works on in the matrix products of vendor libraries at their best;
// for wave quantisation. "NVIDIA Deep Learning Performance: Matrix Multiplication Background User's Guide",
// section 3: 256x128 and 128x256 are the most efficient tiles. One value for all devices.
inline constexpr int kMatmulTileRows = 256;
inline constexpr int kMatmulTileColumns = 128;

// What a device is made of, newest last within a vendor; versions of one chip share it.
enum class Silicon : uint8_t {
  kVolta,
  kAmpere,
  kAda,
  kHopper,
  kBlackwell,
  kBlackwellUltra,  // twice the exponentials
  kCdna,
};

// One accelerator as the driver shows it: a GPU of a GB200, a die (GCD) of an MI250X.
struct Device {
  const char* name = "";    // canonical, such as "h100-sxm-80gb"
  const char* label = "";   // for people
  const char* vendor = "";  // "nvidia" or "amd"
  Silicon silicon = Silicon::kAmpere;

  // At most ten numbers, each with its source; rates are dense, never those with structured sparsity; 0 means
  // that the hardware does not have it, or for the two measured ones that nobody published it.
  Constant
      memory_bytes;  // what the driver lets a process allocate in all; the source says so if it is nominal
  Constant memory_bandwidth;  // bytes/s
  Constant single_flops;      // products of fp32 operands: TF32 where it has that, FLOP/s
  Constant half_flops;        // fp16 and, where has_bf16, bf16 matrix products that accumulate in fp32
  Constant fp8_flops;
  Constant fp4_flops;
  Constant compute_units;              // SMs or CUs
  Constant watts;                      // limit of what it draws, as it is run
  Constant measured_half_flops;        // best matrix product that somebody published, FLOP/s
  Constant measured_memory_bandwidth;  // of a large copy or element-wise kernel, bytes/s

  bool has_bf16 = true;
  bool grace_host = false;        // its host is a Grace on the same module, joined by NVLink-C2C
  const char* scale_up = "";      // name of the Link to its neighbours in the default node
  const char* default_node = "";  // name of the Node it is priced in when none is given
  const char* note = "";          // what to know of this variant, for example its power limit; may be empty
};

inline constexpr int kDeviceConstants = 10;
struct DeviceConstant {
  const char* name;
  const char* unit;  // "B", "B/s", "FLOP/s", "W"; "" of a count
  Constant constant;
};
// The constants of `device`, in the order above.
std::array<DeviceConstant, kDeviceConstants> DeviceConstants(const Device& device);

// A host, or the part of a rack that one scale-up link joins (72 GPUs of an NVL72).
struct Node {
  std::string name;         // canonical, such as "dgx-h100"
  std::string description;  // for people
  const Device* device = nullptr;
  int gpus = 0;
  const Link* scale_up = nullptr;   // between GPUs of this node
  const Link* scale_out = nullptr;  // between nodes
  int nics = 0;                     // adapters of scale_out that collectives use, per node
  int64_t cpu_memory_bytes = 0;     // 0: unknown
  std::string source;
};

absl::Span<const Device> Devices();
absl::Span<const Node> Nodes();

struct DeviceMatch {
  const Device* device = nullptr;
  std::string assumption;  // what the text left open and how it was taken; empty when it was exact
};

// The device that people mean by `text`: a canonical name, the driver's name ("NVIDIA A100-SXM4-80GB"), or a
// loose spelling ("h100", "A100 40GB", "MI300X", "B200 (power limited)"). Words in parentheses are read only
// for what the rest leaves open. Defaults: SXM over PCIe, 80 GB A100, 32 GB V100. UsageError with the nearest
// names for an unknown one, and with the variants when the stated memory or form does not exist.
absl::StatusOr<DeviceMatch> FindDevice(absl::string_view text);

// By canonical name or the usual spellings ("DGX H100", "p5.48xlarge", "Jean Zay"). UsageError with the
// nearest names otherwise.
absl::StatusOr<const Node*> FindNode(absl::string_view text);

// The node of the catalogue in which `device` (a row of the catalogue) is most often met.
const Node& DefaultNodeFor(const Device& device);

}  // namespace trainctl::cluster
