// What a device plugin (libtrainctl_cuda.so) gives the worker: one table of C functions over plain types,
// returned by the one symbol that it exports. The worker opens the plugin with dlopen when a recipe asks for
// the device, so that one worker serves machines with and without it; a plugin of another table, or made for
// another LibTorch, is refused with both versions named.
//
// Functions that can fail return 0, or non-zero with a sentence in `reason` (always terminated). None throws.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace trainctl::kernels {

// Raised with every change of what follows or of kernels.h.
inline constexpr uint32_t kDeviceAbi = 8;
inline constexpr char kDeviceApiSymbol[] = "trainctl_device_api";

struct DeviceProperties {
  char name[256] = {};
  int64_t memory_bytes = 0;
  int32_t capability_major = 0;
  int32_t capability_minor = 0;
};

// What end_graph returns. After kGraphFailed the device works as before begin_graph.
inline constexpr int kGraphEnded = 0;
inline constexpr int kGraphFailed = 1;
inline constexpr int kGraphFailedAndDeviceToo = 2;

struct DeviceApi {
  uint32_t abi;               // kDeviceAbi of the plugin's own build; it stays first
  uint32_t table_bytes;       // sizeof(DeviceApi) of the plugin's own build
  const char* name;           // "cuda"
  const char* torch_version;  // of the headers that the plugin was built with, "2.11.0"
  const char* toolkit;        // "CUDA 13.0"
  const char* architectures;  // "sm_80 sm_90a"
  int32_t torch_device_type;  // c10::DeviceType of its tensors

  // How many devices this process can use.
  int (*count_devices)(int* count, char* reason, size_t reason_bytes);
  // Makes device `ordinal` the calling process's; once, before anything below.
  int (*open)(int ordinal, DeviceProperties* properties, char* reason, size_t reason_bytes);

  // On the device's memory and the calling thread's current stream of LibTorch.
  const Kernels* kernels;
  // What went wrong in a kernel since the last call, as far as is known without waiting for the device.
  int (*take_error)(char* reason, size_t reason_bytes);

  // Collectives between the devices of `world_size` processes. `store` is a c10d::Store*, kept alive by the
  // caller for as long as the backend; the result is a c10d::Backend* with one reference that is the
  // caller's, null on failure. Collective. A process calls its backends on at most `num_streams` streams at
  // once. The device must run what is first on each of these streams, in whatever order it was queued: what
  // waits for a peer on one stream must not keep back another stream.
  void* (*make_backend)(void* store, int rank, int world_size, int64_t timeout_ms, int num_streams,
                        char* reason, size_t reason_bytes);

  // Graphs (device/graph.h). Between begin and end what is launched on the calling thread's stream is kept,
  // and what that thread allocates is the graph's. begin returns null on failure; end and free follow
  // whatever happened in between. begin is null if the device has no graphs.
  void* (*begin_graph)(char* reason, size_t reason_bytes);
  int (*end_graph)(void* graph, char* reason, size_t reason_bytes);
  int (*launch_graph)(void* graph, char* reason, size_t reason_bytes);
  void (*free_graph)(void* graph);
};

using DeviceApiFunction = const DeviceApi* (*)();

}  // namespace trainctl::kernels
