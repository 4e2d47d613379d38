// The graph of a model as a step uses it: the operator table of each block, and the parameters that each
// block reads. A step, its cost, its checks and its hash depend on this graph and not on the architecture. A
// test can therefore use a graph that matches no real model. Pure data; thread-safe after it is built.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/architecture.h"
#include "model/parameters.h"
#include "model/segment.h"

namespace trainctl::model {

// Parameters of a table of rotary position angles (RopeAttributes::angle_table).
struct AngleTable {
  int64_t rotated_dim = 0;  // rotated elements of each head
  double theta = 0;
  std::optional<RopeScaling> scaling;
  bool operator==(const AngleTable&) const = default;
};

// Returns the angle tables of a model. There is one table for all layers, or none if no layer has RoPE. If
// the layers with a window have separate positions, their table is the second.
std::vector<AngleTable> AnglesOf(const Architecture& spec);

struct Graph {
  struct Block {
    int kind = -1;  // index in `kinds`
    // Indices in the inventory. An operator refers to its weights by position in this list.
    std::vector<int> parameters;
    bool operator==(const Block&) const = default;
  };
  std::vector<Segment> kinds;  // distinct operator tables
  std::vector<Block> blocks;   // in forward order
  std::vector<AngleTable> angles;

  int num_blocks() const { return static_cast<int>(blocks.size()); }
  const Segment& segment(int block) const {
    return kinds[static_cast<size_t>(blocks[static_cast<size_t>(block)].kind)];
  }
  // Size, in bytes, of the activations between two blocks. Their gradients have the same size.
  int64_t border_bytes() const;
  // Whether the last block reads a parameter that the first block also reads (tied embeddings).
  bool is_tied() const;
  bool operator==(const Graph&) const = default;
};

// Builds the graph of a trainable model. `inventory` is the result of Inventory(spec). Each kind of layer is
// built only once.
std::shared_ptr<const Graph> BuildGraph(const Architecture& spec, const std::vector<Parameter>& inventory,
                                        const SegmentOptions& options);

}  // namespace trainctl::model
