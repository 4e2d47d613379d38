// Internal to lib/model: what config.json states about rotary positions.
#pragma once

#include "base/json.h"
#include "model/architecture.h"
#include "model/config_reader.h"
#include "model/families.h"

namespace trainctl::model {

// Reads the base, the rotated share of each head and the scaling. Reads `spec.max_position` and the size of
// the heads.
void ReadRope(ConfigReader& reader, const Family& family, Architecture& spec);
void WriteRope(const Family& family, const Architecture& spec, Json& config);

}  // namespace trainctl::model
