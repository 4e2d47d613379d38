// The catalogue of accelerators and the hosts in which they are sold or rented, with a source for every
// number. The planner uses it for machines that have not been measured. It does not detect devices (see
// host.h) or estimate times (see collectives.h for collectives). Thread-safe: the tables are constant, and
// pointers into them stay valid.
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

// The output tile that one compute unit computes in the vendor libraries' fastest matrix products. Used to
// model wave quantization, with the same tile for all devices. Source: "NVIDIA Deep Learning Performance:
// Matrix Multiplication Background User's Guide", section 3, according to which 256x128 and 128x256 are the
// most efficient tiles.
inline constexpr int kMatmulTileRows = 256;
inline constexpr int kMatmulTileColumns = 128;

// A device's chip generation. Each vendor's generations are listed from oldest to newest. Variants of a chip
// share a value.
enum class Silicon : uint8_t {
  kVolta,
  kAmpere,
  kAda,
  kHopper,
  kBlackwell,
  kBlackwellUltra,  // computes exponentials at twice the rate of kBlackwell
  kCdna,
};

// One accelerator as the driver presents it, for example one GPU of a GB200 or one die (GCD) of an MI250X.
struct Device {
  const char* name = "";    // canonical name, such as "h100-sxm-80gb"
  const char* label = "";   // name to display
  const char* vendor = "";  // "nvidia" or "amd"
  Silicon silicon = Silicon::kAmpere;

  // Up to ten constants, each with its source. Rates are for dense operands, never for structured sparsity. 0
  // means that the hardware lacks the feature or, for the two measured constants, that no measurement has
  // been published.
  Constant memory_bytes;  // memory that the driver lets a process allocate; if nominal, the source says so
  Constant memory_bandwidth;  // bytes/s
  Constant single_flops;      // FLOP/s of matrix products with fp32 operands, in TF32 if supported
  Constant half_flops;        // FLOP/s of fp16 and, if has_bf16, bf16 matrix products that accumulate in fp32
  Constant fp8_flops;
  Constant fp4_flops;
  Constant compute_units;              // number of SMs or CUs
  Constant watts;                      // power limit in normal operation
  Constant measured_half_flops;        // FLOP/s of the fastest published matrix product
  Constant measured_memory_bandwidth;  // bytes/s of a large copy or element-wise kernel

  bool has_bf16 = true;
  // Whether its host is a Grace CPU on the same module, connected by NVLink-C2C.
  bool grace_host = false;
  // Name of the Link to its neighbors in the default node.
  const char* scale_up = "";
  // Name of the Node that estimates assume if the recipe states none.
  const char* default_node = "";
  // Remarks on this variant, such as its power limit; may be empty.
  const char* note = "";
};

inline constexpr int kDeviceConstants = 10;
struct DeviceConstant {
  const char* name;
  const char* unit;  // "B", "B/s", "FLOP/s", "W"; "" for a count
  Constant constant;
};
// Returns the constants of `device`, in the order in which Device declares them.
std::array<DeviceConstant, kDeviceConstants> DeviceConstants(const Device& device);

// A host, or the part of a rack connected by one scale-up link (72 GPUs in an NVL72).
struct Node {
  std::string name;         // canonical name, such as "dgx-h100"
  std::string description;  // description to display
  const Device* device = nullptr;
  int gpus = 0;
  const Link* scale_up = nullptr;   // link between the GPUs of this node
  const Link* scale_out = nullptr;  // link between nodes
  // Number of scale_out adapters per node that collectives use.
  int nics = 0;
  int64_t cpu_memory_bytes = 0;  // host memory; 0 if unknown
  std::string source;
};

absl::Span<const Device> Devices();
absl::Span<const Node> Nodes();

struct DeviceMatch {
  const Device* device = nullptr;
  // Explains how an ambiguous text was interpreted; empty if the text was exact.
  std::string assumption;
};

// Finds the device that `text` names: a canonical name, the driver's name ("NVIDIA A100-SXM4-80GB"), or an
// informal one ("h100", "A100 40GB", "MI300X", "B200 (power limited)"). Words in parentheses are used only if
// the rest is ambiguous. The defaults are SXM rather than PCIe, the 80 GB A100 and the 32 GB V100. Returns
// UsageError with the closest names if the device is unknown, and with the variants if the stated memory size
// or form factor does not exist.
absl::StatusOr<DeviceMatch> FindDevice(absl::string_view text);

// Finds a node by its canonical name or a common spelling ("DGX H100", "p5.48xlarge", "Jean Zay"). Returns
// UsageError with the closest names if it is unknown.
absl::StatusOr<const Node*> FindNode(absl::string_view text);

// Returns the node in which `device` is most commonly found. `device` must be a row of the catalogue.
const Node& DefaultNodeFor(const Device& device);

}  // namespace trainctl::cluster
