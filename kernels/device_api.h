// The interface between the worker and a device plugin (libtrainctl_cuda.so): one table of C functions over
// plain types. The plugin exports a single symbol, a function that returns the table. The worker opens the
// plugin with dlopen if a recipe asks for the device, so one worker binary serves machines with and without
// it. A plugin with another version of the table, or built for another LibTorch, is rejected with an error
// that names both versions.
//
// Functions with a `reason` and an int result return 0, or non-zero with a null-terminated sentence in
// `reason`. No function throws.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace trainctl::kernels {

// Increment this with every change of the declarations below or in kernels.h.
inline constexpr uint32_t kDeviceAbi = 10;
inline constexpr char kDeviceApiSymbol[] = "trainctl_device_api";

struct DeviceProperties {
  char name[256] = {};
  int64_t memory_bytes = 0;
  int32_t capability_major = 0;
  int32_t capability_minor = 0;
};

// Results of end_graph. After kGraphFailed the device works as before begin_graph. After
// kGraphFailedAndDeviceToo it cannot be used any more.
inline constexpr int kGraphEnded = 0;
inline constexpr int kGraphFailed = 1;
inline constexpr int kGraphFailedAndDeviceToo = 2;

struct DeviceApi {
  uint32_t abi;               // kDeviceAbi of the plugin's own build; it stays first
  uint32_t table_bytes;       // sizeof(DeviceApi) of the plugin's own build
  const char* name;           // "cuda"
  const char* torch_version;  // version of the plugin's LibTorch headers, "2.11.0"
  const char* toolkit;        // "CUDA 13.0"
  const char* architectures;  // "sm_80 sm_90a"
  int32_t torch_device_type;  // c10::DeviceType of its tensors

  // Counts the devices that this process can use.
  int (*count_devices)(int* count, char* reason, size_t reason_bytes);
  // Selects device `ordinal` for this process. Call it once, before any function below.
  int (*open)(int ordinal, DeviceProperties* properties, char* reason, size_t reason_bytes);

  // The kernels. They work on the device's memory and on the calling thread's current LibTorch stream.
  const Kernels* kernels;
  // Reports an error of a kernel since the last call, as far as it is known without waiting for the device.
  int (*take_error)(char* reason, size_t reason_bytes);

  // Creates the collectives between the devices of `world_size` processes. Collective. `store` is a
  // c10d::Store*, which the caller keeps alive as long as the backend. Returns a c10d::Backend* with one
  // reference that belongs to the caller, or null on failure. A process calls its backends on at most
  // `num_streams` streams at the same time. The device must run the first operation of each of these streams,
  // in whatever order they were queued. An operation that waits for a peer on one stream must not block
  // another stream.
  void* (*make_backend)(void* store, int rank, int world_size, int64_t timeout_ms, int num_streams,
                        char* reason, size_t reason_bytes);

  // Graphs (device/graph.h). Between begin_graph and end_graph, launches on the calling thread's stream are
  // recorded instead of run. Memory that this thread allocates belongs to the graph. begin_graph returns null
  // on failure. After a success the caller calls end_graph and free_graph, whatever happens in between.
  // begin_graph itself is null if the device has no graphs.
  void* (*begin_graph)(char* reason, size_t reason_bytes);
  int (*end_graph)(void* graph, char* reason, size_t reason_bytes);
  int (*launch_graph)(void* graph, char* reason, size_t reason_bytes);
  void (*free_graph)(void* graph);
};

using DeviceApiFunction = const DeviceApi* (*)();

}  // namespace trainctl::kernels
